/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h - a few steps of a configuration under one layout, kept in memory:
 * what `verify` compares. No run directory is made. */
#ifndef LOCKSTEP_TRAIN_TRIAL_H
#define LOCKSTEP_TRAIN_TRIAL_H

#include "base/options.h"
#include "tensor/tensor.h"

struct trial {
    int64_t steps;
    double *losses;           /* owned, [steps] */
    int64_t elements;         /* of a flat arena */
    enum dtype dtype;
    void *weights;            /* owned: after the last step */
    void *gradients;          /* owned: of the last step, averaged */
    size_t memory_bytes;      /* planned, of one rank */
};

/* Trains `steps` steps of the configuration on `ranks` ranks. Token files go
 * to data.cache, which must be set. */
status trial_run(struct trial *trial, const struct options_set *set,
                 int ranks, int64_t steps);
void trial_free(struct trial *trial);

/* How far `other` is from `one`. */
struct trial_difference {
    bool exact;               /* every bit of the three */
    double loss, gradients, weights; /* largest |a - b| over the largest |b| */
};
void trial_compare(const struct trial *one, const struct trial *other,
                   struct trial_difference *out);

#endif
