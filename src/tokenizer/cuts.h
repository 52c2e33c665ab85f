/* SPDX-License-Identifier: Apache-2.0 */
/* cuts.h - where no merge can ever join two characters.
 *
 * Some tokenizers cut no words: SentencePiece merges in the whole text. But if
 * no merge has a left half that ends with `a` and a right half that begins
 * with `b`, then nothing ever crosses the boundary of a and b, and both sides
 * can be merged, and remembered, on their own. A set of such pairs, by hash: a
 * pair that is in it by accident costs a cut, never an id. */
#ifndef LOCKSTEP_TOKENIZER_CUTS_H
#define LOCKSTEP_TOKENIZER_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"

struct cuts {
    uint64_t *bits; /* in the arena; NULL: no cuts */
    uint64_t mask;  /* number of bits - 1, a power of two */
};

/* An empty set with room for `merges` pairs. */
status cuts_init(struct cuts *cuts, struct arena *arena, int64_t merges);
/* Some merge joins a text that ends with `left` to one that begins with
 * `right`. */
void cuts_join(struct cuts *cuts, uint32_t left, uint32_t right);
/* End of the longest piece of word [0, length) that starts at `at` < length
 * and that merges can reach across. Boundaries between two letters of ASCII
 * are not asked for: nearly all of them are joined. */
size_t cuts_next(const struct cuts *cuts, const unsigned char *word, size_t at,
                 size_t length);

#endif
