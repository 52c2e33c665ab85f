/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.h - learns a byte-level BPE tokenizer from text.
 *
 *   feed texts -> words and their counts (GPT-2's pattern)
 *   finish     -> repeat: merge the most frequent pair of neighbours
 *
 * The vocabulary is: the end-of-text token (id 0), the 256 bytes in order of
 * their characters in the byte alphabet, then one token per merge. Of pairs
 * that occur equally often the one with smaller ids goes first. These are the
 * choices of the `tokenizers` library's BpeTrainer, so both learn the same
 * merges from the same text; neither threads nor the order of texts matter.
 * Counts that outgrow the memory go to a file (word_spill.h); if the distinct
 * words are too many to be merged in it, the rarest are left out.
 * Source: Sennrich et al. 2016, "Neural machine translation of rare words
 * with subword units", section 3.2. */
#ifndef LOCKSTEP_TOKENIZER_BPE_TRAIN_H
#define LOCKSTEP_TOKENIZER_BPE_TRAIN_H

#include <stdbool.h>
#include "base/text.h"
#include "base/threads.h"

struct bpe_progress {
    const char *doing; /* "counting words" or "merging" */
    int64_t done;      /* bytes of text, or tokens of the vocabulary */
    int64_t total;     /* 0: not known */
};

struct bpe_options {
    int64_t vocab;           /* tokens wanted, at least 257 */
    int64_t count_min;       /* a pair that occurs less often is not merged */
    const char *end_of_text; /* NULL: <|endoftext|> */
    struct threads *threads; /* borrowed; NULL: one */
    size_t memory;           /* bytes for words and merging; 0: no limit */
    const char *scratch;     /* borrowed: directory for words beyond that */
    void (*progress)(void *context, const struct bpe_progress *progress);
    void *context;           /* of progress, which may be NULL */
};

/* Words that did not fit the memory: the rarest. Without any the merges are
 * those of all words, whatever the memory. */
struct bpe_left_out {
    int64_t count_least; /* of the words that were kept; 1: all were */
    int64_t words, kept; /* distinct, left out and kept */
    int64_t occurrences, of; /* of those left out; of all */
};

struct bpe_trainer;

/* ERR_CONFIG: a vocabulary that is too small or too large. */
status bpe_trainer_build(struct bpe_trainer **out,
                         const struct bpe_options *options);
/* One document. ERR_FORMAT: not UTF-8. */
status bpe_trainer_feed(struct bpe_trainer *trainer, const char *text,
                        size_t length);
/* Appends a tokenizer.json. *vocab = its tokens: fewer than were asked for
 * when the text has no more pairs. ERR_CONFIG: nothing was fed. */
status bpe_trainer_finish(struct bpe_trainer *trainer, struct text *json,
                          int64_t *vocab);
/* After finish. */
const struct bpe_left_out *bpe_trainer_left_out(
    const struct bpe_trainer *trainer);
void bpe_trainer_free(struct bpe_trainer *trainer); /* NULL allowed */

#endif
