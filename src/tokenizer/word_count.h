/* SPDX-License-Identifier: Apache-2.0 */
/* word_count.h - how often each word of a text occurs, on all threads.
 *
 * Each thread counts its share of the text in a table of its own; the tables
 * are added at the end, so counts do not depend on the number of threads. */
#ifndef LOCKSTEP_TOKENIZER_WORD_COUNT_H
#define LOCKSTEP_TOKENIZER_WORD_COUNT_H

#include <stdint.h>
#include "base/status.h"
#include "base/threads.h"
#include "tokenizer/scan.h"

struct counted_word {
    uint64_t hash;
    size_t start;    /* into bytes */
    uint32_t length; /* bytes; 0: an empty place */
    int64_t count;
};

struct word_table {
    struct counted_word *places; /* owned [capacity], a power of two */
    size_t capacity, count;
    unsigned char *bytes;        /* owned; the words behind each other */
    size_t bytes_used, bytes_capacity;
};

/* *out = the word's place, made with count 0 where it is new; until the next
 * call. ERR_FORMAT: an empty word or one of 2 GiB. */
status word_table_get(struct word_table *table, const unsigned char *word,
                      size_t length, struct counted_word **out);
void word_table_free(struct word_table *table);

/* Adds the words of a text (valid UTF-8) to tables [threads_count(threads)],
 * cut by `scan`, which must not join anything but white space to the space
 * before it (true of scan_gpt2): there the text is divided among threads. */
status word_count(struct word_table *tables, struct threads *threads,
                  scan_piece *scan, const char *text, size_t length);

/* The first place at or behind `at` where a space follows an ASCII letter, or
 * the end: no piece crosses it. */
size_t word_count_cut(const char *text, size_t at, size_t length);

#endif
