/* SPDX-License-Identifier: Apache-2.0 */
/* straight_through.h - recipes whose gradients are those of the numbers that
 * the forward product read (straight-through), such as Quartet. Source: Castro
 * et al. 2025, arXiv:2505.14669, algorithm 1; mask and scale: Panferov et al.
 * 2025, arXiv:2502.05003.
 *
 *   x --rotate, round--> xq --\            W --rotate, round--> Wq
 *                              y = xq Wq'
 *   dxq = G(dy) H(Wq)     then dx = factor rotate(mask of x * dxq)
 *   dWq = G(dy)' H(xq)    then dW = factor rotate(mask of W * dWq)
 *
 * The first line is a layer of its own, before the product: so the sum of dxq
 * over tensor ranks is whole before it goes back. dWq goes back once the sum of
 * a data leaf is whole. */
#ifndef LOCKSTEP_NN_STRAIGHT_THROUGH_H
#define LOCKSTEP_NN_STRAIGHT_THROUGH_H

#include "nn/choice.h"
#include "nn/quantized_operands.h"

/* The slot that a product with this weight reads: x itself where the recipe is
 * not straight. choice: of the rows of experts in x; -1: x has a row for each
 * token. */
slot straight_rotate(struct program *p, slot x, const struct param_spec *weight,
                     slot choice, int choices);
/* Names the weight, once the product that reads `x` has it. */
void straight_name(struct program *p, slot x, int param);

/* Rows that a layer makes itself from h, gate and up, for a product by the
 * recipe: rounded where it is straight. */
struct straight_glu {
    const struct step *step;
    const struct param *param; /* of the product that reads them */
    struct tensor h;
    void *room;                /* float32: as many elements as rows have */
};
status straight_glu(struct run *run, const struct straight_glu *of,
                    struct tensor out);
/* The gradient of such rows before they were rounded, in its place. */
status straight_glu_back(struct run *run, const struct straight_glu *of,
                         struct tensor gradient);

/* The signs of the runs of a product's operands in this step. */
uint32_t straight_signs(const struct run *run, const struct param *param,
                        enum product_use use);

/* W of a step: gradients go back as soon as those of a leaf are whole. */
struct straight_weights { struct run *run; const struct step *step; };
void straight_begin(struct straight_weights *w, struct run *run,
                    const struct step *step);
void straight_end(struct run *run);

#endif
