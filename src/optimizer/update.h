/* SPDX-License-Identifier: Apache-2.0 */
/* update.h - from summed gradients to new weights: scaling, the global norm,
 * clipping, AdamW. All arenas are flat, laid out as the parameter table. */
#ifndef LOCKSTEP_OPTIMIZER_UPDATE_H
#define LOCKSTEP_OPTIMIZER_UPDATE_H

#include "kernels/kernels.h"
#include "mesh/param.h"

/* Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2. */
struct update {
    const struct kernels *kernels;
    struct stream *stream;
    const struct param_table *params;
    int tensor_leaves;       /* of the grid: leaves of the norm */
    void *weights, *gradients, *first, *second; /* flat arenas */
    double beta1, beta2, epsilon, weight_decay;
    double clip;             /* largest norm; 0: none */
};

struct update_result {
    double norm;             /* of all gradients, before clipping */
    double factor;           /* min(1, clip / (norm + 1e-6)); 1 without clip */
};

/* gradients *= (real)(1 / targets): the mean over the unmasked targets of the
 * global batch. */
status update_average(const struct update *update, int64_t targets);
/* The global norm (docs/numerics.md) and the clip factor. ERR_NUMERIC when the
 * norm is not finite: names the first parameter whose gradient is not. */
status update_norm(const struct update *update, struct update_result *out);
/* Weights and moments of step t (counted from 1) with learning rate lr. */
status update_apply(const struct update *update, double factor, double lr,
                    int64_t t);

#endif
