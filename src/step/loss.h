/* SPDX-License-Identifier: Apache-2.0 */
/* loss.h - the loss of a step, as a tree over the leaves of the grid.
 *
 * Per-token losses are summed in float64 as docs/numerics.md says: tokens of a
 * part of a chunk in granules; then the trees over parts, context leaves and
 * data leaves. Ranks fill what they have made; all else is zero, so that one
 * sum over all ranks, in any order, gives every rank the whole table. */
#ifndef LOCKSTEP_STEP_LOSS_H
#define LOCKSTEP_STEP_LOSS_H

#include "nn/run.h"

struct loss_sum {
    /* owned: [data leaves of the run][context leaves][tensor leaves], then
     * targets, then micro-batches whose loss is not finite */
    double *table;
    int leaves, contexts, parts;
    int bad;            /* of this rank's: the first one + 1; 0: none */
};

/* `leaves`: data leaves of the global batch; the rest of the run's grid. */
status loss_build(struct loss_sum *loss, int leaves, const struct grid *grid);
void loss_free(struct loss_sum *loss);
/* Before each step: nothing has been added. */
void loss_begin(struct loss_sum *loss);
/* The losses [tokens] of a micro-batch that has been run; `first` is the number
 * of its first sequence in the global batch, `index` its own. */
void loss_add(struct loss_sum *loss, const struct run *run,
              const double *losses, int64_t first, int index);
/* Doubles of the table that are joined over the ranks. */
int64_t loss_count(const struct loss_sum *loss);
int64_t loss_targets(const struct loss_sum *loss);
bool loss_is_bad(const struct loss_sum *loss);
/* The sum of all; the table is used up. */
double loss_total(struct loss_sum *loss);

/* The loss of one sequence without parts. losses [length]: each context leaf of
 * this rank in order, then their tree. */
double loss_sequence(const struct program *program, const double *losses);

#endif
