/* SPDX-License-Identifier: Apache-2.0 */
/* saved_codes.h - inputs of products that wait for W as codes
 * (docs/precision.md).
 *
 * W of a product by a recipe reads x rounded to few bits, which says nothing
 * about the layout and is known in F already. So F makes it, and keeps codes
 * with scales in the frame instead of x, where nobody else reads x after F.
 *
 *   F   x --round as W does, encode--> codes | scales
 *   W                                  codes | scales --decode--> x rounded
 *
 * Both are the same numbers in every bit. Tallies and largest magnitudes of the
 * operand are taken in F, once.
 *
 * Experts have codes of the input of down or, where ranks divide them, of the
 * rows that came for gate and up. */
#ifndef LOCKSTEP_NN_SAVED_CODES_H
#define LOCKSTEP_NN_SAVED_CODES_H

#include "kernels/codes.h"
#include "nn/program.h"

/* Why the recipe has no codes of inputs that W could read; NULL: it has. */
const char *saved_codes(const struct precision_use *use);
/* Whether W of the step can read codes: the recipe has them, they are fewer
 * bytes, and its input is neither made again nor gathered for W. */
bool saved_possible(const struct program *p, const struct step *step);
/* Bytes of the codes and scales of the step's input. */
int64_t saved_bytes(const struct program *p, const struct step *step);

/* Where the codes and scales of context chunk `first` and those behind it lie
 * in the buffer of all. */
struct saved_place { uint8_t *codes; void *scales; int64_t row_bytes; };
struct saved_place saved_place(const struct program *p, const struct step *step,
                               void *buffer, int64_t first);

/* Like saved_place, of rows of experts, which lie expert after expert: those of
 * the step's first parameter, so many at most. A block has rows of one expert
 * and one context chunk alone, so how many blocks there are follows from the
 * choices: room is for the most of them. 0: codes would not be less. */
int64_t saved_experts_bytes(const struct program *p, const struct step *step,
                            int64_t rows);
/* Row `first`, behind whose rows there are so many blocks along rows. */
struct saved_rows { int64_t rows, first, blocks; };
struct saved_place saved_experts_place(const struct program *p,
                                       const struct step *step, void *buffer,
                                       const struct saved_rows *at);

#endif
