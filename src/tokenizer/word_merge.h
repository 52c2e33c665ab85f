/* SPDX-License-Identifier: Apache-2.0 */
/* word_merge.h - merges within one word.
 *
 * The merge of smallest rank goes first, of several the leftmost; until none
 * is left. Short words scan for it; long ones keep a heap, so that a word of n
 * bytes costs n log n and a hostile one cannot stall the program. */
#ifndef LOCKSTEP_TOKENIZER_WORD_MERGE_H
#define LOCKSTEP_TOKENIZER_WORD_MERGE_H

#include "tokenizer/tokenizer.h"
#include "tokenizer/word_cache.h"

/* Appends the ids of the bytes [length] of one word to `out`, and to `sizes`
 * (NULL: not asked for) how much of the word each of them takes: bytes of the
 * word as the file's own library writes it, in its order, so that what it
 * drops moves the places of what follows. */
status word_merge(const struct tokenizer *tokenizer, struct word_cache *cache,
                  const unsigned char *bytes, size_t length,
                  struct token_list *out, struct token_list *sizes);
/* Bytes of one byte of a word in such a size: MODEL_BYTES writes it as a
 * character of its alphabet. */
int32_t word_byte_size(const struct tokenizer *tokenizer, unsigned char byte);

#endif
