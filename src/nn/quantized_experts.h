/* SPDX-License-Identifier: Apache-2.0 */
/* quantized_experts.h - the products of experts by a recipe. An expert's rows
 * are a matrix of their own, whose spans are its tokens of each context chunk
 * of a sequence: no batch, no rank and no other expert shows in a block or a
 * scale.
 *
 *   tokens of a context chunk    0 1 2 3 4 5 6 7 | 0 1 2 3 4 5 6 7
 *   of them, expert 3      x   x x     x |     x         x
 *   its spans            [1 3 4 7]         [2 7]                            */
#ifndef LOCKSTEP_NN_QUANTIZED_EXPERTS_H
#define LOCKSTEP_NN_QUANTIZED_EXPERTS_H

#include "nn/expert_sums.h"
#include "nn/quantized_operands.h"
#include "nn/saved_codes.h"

struct quantized_experts {
    const struct step *step;          /* its first parameter is the matrix of
                                       * the first expert */
    const struct choice_lists *lists; /* of the rows, which may be of tokens of
                                       * several ranks, one after the other */
    void *memory;                     /* quantized_experts_bytes */
    int64_t rows;                     /* that there is room for */
    int64_t tokens;                   /* of a rank */
    bool again;                       /* rows, matrices: counted before */
    void *codes;                      /* x of W as codes (saved_codes.h); NULL:
                                       * it is there as it is */
};

/* Bytes for so many rows; 0: the step has no recipe. */
size_t quantized_experts_bytes(const struct step *step,
                               const struct program *p, int64_t rows);
/* The call, whose rows and matrices are rounded as the recipe says, or as it
 * is. USE_FORWARD or USE_DGRAD. */
status quantized_experts_product(struct run *run,
                                 const struct quantized_experts *few,
                                 enum product_use use,
                                 const struct experts_product *call);
/* Both operands of the sums over tokens, a: gradients. */
status quantized_experts_operands(struct run *run,
                                  const struct quantized_experts *few,
                                  struct expert_operands *of);
/* In F: x, rows [count, in-features] that lie expert after expert, as codes of
 * W at few->codes; at->first: the first one among those of the codes. Adds its
 * blocks to at->blocks. */
status quantized_experts_save(struct run *run,
                              const struct quantized_experts *few,
                              struct tensor x, struct saved_rows *at);
/* ERR_CONFIG: what no rank can do alone where ranks divide the experts. */
status quantized_experts_check(const struct program *p);

#endif
