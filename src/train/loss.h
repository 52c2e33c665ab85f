/* SPDX-License-Identifier: Apache-2.0 */
/* loss.h - sums of losses of tokens, in float64, in the order of the grid
 * (docs/numerics.md): tokens of a part of a chunk in granules; then the trees
 * over parts, context leaves and data leaves. */
#ifndef LOCKSTEP_TRAIN_LOSS_H
#define LOCKSTEP_TRAIN_LOSS_H

#include "nn/program.h"

struct loss_sum {
    double part[LEAVES_MAX][LEAVES_MAX]; /* [data leaf][context leaf, part] */
    int64_t targets;
};

/* Adds a micro-batch; losses [tokens]. */
void loss_add(struct loss_sum *sum, const struct program *program,
              int64_t micro_batch, const double *losses);
/* leaf [grid.data] = what this rank has of each data leaf: the tree over parts,
 * then over its context leaves. */
void loss_leaves(struct loss_sum *sum, const struct program *program,
                 double *leaf);
/* Of one sequence without parts; losses [length]: each context leaf in order,
 * then their tree. */
double loss_sequence(const struct program *program, const double *losses);

#endif
