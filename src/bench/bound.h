/* SPDX-License-Identifier: Apache-2.0 */
/* bound.h - the best possible speed of this machine, or of its GPU, with the
 * kernels of a step, measured at the step's own shapes in the same run. */
#ifndef LOCKSTEP_BENCH_BOUND_H
#define LOCKSTEP_BENCH_BOUND_H

#include "plan/stage.h"
#include "observe/profile.h"

struct bound {
    double own_ms, peer_ms;  /* of a step's products: ours; oneDNN's, 0: it is
                              * not installed or has no such product */
    double best_ms;          /* the better for each shape */
    double flops;            /* of a step's products */
    double memory_rate;      /* bytes a second */
    double attention_rate;   /* FLOPs a second; of a device apart */
    char why_not[256];       /* the device failed: nothing is known of it, and
                              * rows have no limits; else "" */
};

/* The profile of the meter's steps, not merged, with a limit for every row:
 * products at the best time of their shape, alone, in this run; attention at
 * the rate of all products; the rest at the bandwidth of memory. On a device
 * apart by its kernels and its clock; the gradients are written over. Where it
 * has no memory for operands, or fails, why_not says so; the result is OK. */
status bound_measure(struct bound *bound, struct stage *stage,
                     const struct meter *meter, struct profile *profile);

#endif
