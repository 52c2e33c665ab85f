/* SPDX-License-Identifier: Apache-2.0 */
/* trial.h - a few steps of a configuration under one layout, kept in memory:
 * what `verify` compares. No run directory is made. */
#ifndef LOCKSTEP_PROOF_TRIAL_H
#define LOCKSTEP_PROOF_TRIAL_H

#include "base/options.h"
#include "proof/gathered_numbers.h"
#include "step/step.h"

struct trial {
    int64_t steps;            /* with those beyond what was asked */
    int64_t warmup, length;   /* steps: as configured, and of the whole run */
    int64_t skipped;          /* of them: gradients overflowed float16 */
    int batches;              /* sizes of the batch: more than 1 in a ramp */
    double *losses;           /* owned, [steps] */
    double *norms;            /* owned, [steps]: of the gradients */
    double *others;           /* owned, [steps][2]: z-loss, largest score */
    struct gathered_numbers whole;       /* after the last step: weights,
                                          * states, and gradients, averaged and
                                          * clipped */
    bool exact;               /* the layout lies inside the grid */
    bool fast;                /* a library of the GPU made its products */
    bool narrow;              /* activations have 16 bits, or gradients that
                               * travel fewer (zero_format) */
    bool coarse;              /* products of 4 bits round rows of experts that
                               * ranks rounded before (nn/row_codes.h) */
    size_t memory_bytes;      /* the most that a rank takes, planned */
    char schedule[32];        /* of the pipeline; "" without one */
};

/* Trains `steps` steps of the configuration on `ranks` ranks, threads of this
 * process, and after them one of each batch of a ramp that they do not reach.
 * Token files go to data.cache, which must be set. Checked on every rank: what
 * was taken is what was planned, to the byte, and no step takes more; what was
 * sent with each batch is what was planned for it; all replicas of a number
 * have the same bits (ERR_VERIFY). */
status trial_run(struct trial *trial, const struct options_set *set,
                 int ranks, int64_t steps);
/* Like trial_run, on the ranks of a world: each calls it, rank 0 gets the
 * result. */
status trial_run_world(struct trial *trial, const struct options_set *set,
                       struct group *world, int64_t steps);
/* On one rank, with a function that looks before the first step (done 0) and
 * after each: it may run forward passes, and must not take memory after the
 * first look. The source begins with the first sample. */
struct trial_observer {
    status (*look)(void *argument, struct train_step *step,
                   const struct sample_source *source, int64_t done);
    void *argument;
};
status trial_observe(struct trial *trial, const struct options_set *set,
                     int64_t steps, const struct trial_observer *observer);
void trial_free(struct trial *trial);

/* How far `other` is from `one`. */
struct trial_difference {
    bool exact;               /* every bit of losses, norms and the whole */
    double loss, gradients, weights; /* largest |a - b| over the largest |b| */
};
void trial_compare(const struct trial *one, const struct trial *other,
                   struct trial_difference *out);

#endif
