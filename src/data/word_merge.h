/* SPDX-License-Identifier: Apache-2.0 */
/* word_merge.h - merges within one word.
 *
 * The merge of smallest rank goes first, of several the leftmost; until none
 * is left. Short words scan for it; long ones keep a heap, so that a word of n
 * bytes costs n log n and a hostile one cannot stall the program. */
#ifndef LOCKSTEP_DATA_WORD_MERGE_H
#define LOCKSTEP_DATA_WORD_MERGE_H

#include "data/tokenizer.h"
#include "data/word_cache.h"

/* Appends the ids of the bytes [length] of one word to `out`. */
status word_merge(const struct tokenizer *tokenizer, struct word_cache *cache,
                  const unsigned char *bytes, size_t length,
                  struct token_list *out);

#endif
