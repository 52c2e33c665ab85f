/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - from summed gradients to new weights: scaling, the global norm,
 * clipping, AdamW. Each rank updates its own shard of every parameter, and the
 * bits are those of one rank that updates everything.
 *
 * The norm of a step, over all stages of all ranks:
 *   update_blocks    the mean gradient; sums of squares of the blocks of this
 *                    rank's shards
 *   (exchange)       the others' blocks, from the ranks that share the arena
 *   update_squares   blocks to one sum for each parameter and tensor leaf
 *   (exchange)       the others' parameters and leaves
 *   update_norm      the norm, the same on every rank */
#ifndef LOCKSTEP_OPTIMIZER_UPDATE_H
#define LOCKSTEP_OPTIMIZER_UPDATE_H

#include "kernels/kernels.h"
#include "mesh/shard.h"

/* One arena laid out as the table, or this rank's shards of it. */
struct update_arena {
    void *data;
    bool divided;            /* the shard arena, else the flat one */
};

/* Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2. */
struct update {
    const struct kernels *kernels;
    struct stream *stream;
    const struct param_table *params;
    const struct holding *holding;
    const struct shards *shards; /* what this rank updates */
    struct update_arena weights, gradients, first, second; /* real */
    struct update_arena copy; /* of the weights as kernels read them, of
                               * kernels->dtype; data NULL: none */
    double *blocks;          /* [shard_blocks] */
    double beta1, beta2, epsilon, weight_decay;
    double clip;             /* largest norm; 0: none */
    double loss_scale;       /* that the gradients have; 0: 1 */
    bool skips;              /* a norm that is not finite is no error */
};

struct update_result {
    double norm;             /* of all gradients, before clipping */
    double factor;           /* min(1, clip / (norm + 1e-6)); 1 without clip */
    bool finite;             /* else the step is to be skipped */
};

/* gradients *= (real)(1 / (targets loss_scale)): the mean over the unmasked
 * targets of the global batch. Fills update->blocks with what the norm is made
 * of: own blocks, 0 elsewhere. */
status update_blocks(const struct update *update, int64_t targets);
/* sums [parameters of the model][leaves of the grid]: adds those of this rank.
 * update->blocks is destroyed. */
void update_squares(const struct update *update, double *sums);
/* The global norm (docs/numerics.md) of `orders` parameters and the clip
 * factor; `sums` is destroyed. ERR_NUMERIC when the norm is not finite: names
 * the first parameter whose gradient is not; ERR_PEER where another rank holds
 * that one. */
status update_norm(const struct update *update, double *sums, int orders,
                   struct update_result *out);

/* Weights and moments of step t (counted from 1) with learning rate lr, and the
 * copy. */
status update_apply(const struct update *update, double factor, double lr,
                    int64_t t);
/* The copy of new weights that come from elsewhere. */
status update_copy(const struct update *update);

#endif
