/* SPDX-License-Identifier: Apache-2.0 */
/* ramp.h - the global batch as a function of the step alone.
 *
 *   STEP=BATCH ...             0=16 100=32 300=64: from that step on
 *   START INCREMENT SAMPLES    16 16 6000: from START up to train.batch, one
 *                              INCREMENT each time that an equal part of
 *                              SAMPLES sequences has been read, as Megatron-LM
 *                              names it (--rampup-batch-size)
 *
 * Both become one table of steps, so what a step reads, and how many sequences
 * were read before it, are closed formulas: nothing to keep or to lose. */
#ifndef LOCKSTEP_OPTIMIZER_RAMP_H
#define LOCKSTEP_OPTIMIZER_RAMP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct ramp_row {
    int64_t step;    /* from which on */
    int64_t batch;   /* sequences */
    int64_t samples; /* sequences read before it */
};

struct ramp {
    struct ramp_row *rows; /* owned, [count]; the first is of step 0 */
    int count;
};

/* `batch`: train.batch, with which a ramp ends; without rows it is that all the
 * time. ERR_CONFIG names the row. */
status ramp_read(struct ramp *ramp, const char *const *rows, int count,
                 int64_t batch);
void ramp_free(struct ramp *ramp);
/* Step counts from 0. */
int64_t ramp_batch(const struct ramp *ramp, int64_t step);
/* Sequences read before the step. */
int64_t ramp_samples(const struct ramp *ramp, int64_t step);
/* The fewest steps that read so many. */
int64_t ramp_steps(const struct ramp *ramp, int64_t samples);
/* Batches that the first `steps` steps do not have: how many, and one of
 * them. */
int ramp_further(const struct ramp *ramp, int64_t steps);
int64_t ramp_further_batch(const struct ramp *ramp, int64_t steps, int which);
/* The greatest number that divides every batch. */
int64_t ramp_divisor(const struct ramp *ramp);
static inline bool ramp_changes(const struct ramp *ramp)
{
    return ramp->count > 1;
}

#endif
