/* SPDX-License-Identifier: Apache-2.0 */
/* word_spill.h - counts of more words than memory holds.
 *
 * Tables that are full are written to a file as a run, words in order of their
 * bytes, and emptied. Merging the runs gives every word once, with its whole
 * count: which words met in which run does not show.
 *
 *   text -> tables --full--> run 0, run 1, ... --merged--> words in order
 */
#ifndef LOCKSTEP_TOKENIZER_WORD_SPILL_H
#define LOCKSTEP_TOKENIZER_WORD_SPILL_H

#include <stdio.h>
#include "tokenizer/word_count.h"

enum { SPILL_RUNS = 128 }; /* open at once; then they become one */

struct word_spill {
    const char *directory; /* borrowed: where runs lie, unnamed */
    FILE *runs[SPILL_RUNS]; /* owned */
    int count;
    int64_t made;          /* runs, ever */
};

typedef status word_spill_take(void *context, const unsigned char *word,
                               size_t length, int64_t count);

/* Bytes of memory that a table has. */
size_t word_table_bytes(const struct word_table *table);

/* The words of the tables [count] become runs; the tables are empty then.
 * ERR_IO: the directory takes no more. */
status word_spill_write(struct word_spill *spill, struct word_table *tables,
                        int count, struct threads *threads);
/* Every word of all runs, in order. May be called again. */
status word_spill_merge(struct word_spill *spill, word_spill_take *take,
                        void *context);
void word_spill_free(struct word_spill *spill);

#endif
