/* SPDX-License-Identifier: Apache-2.0 */
/* bound.h - the best possible speed of this machine with the kernels of a step,
 * measured at the step's own shapes in the same run. */
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
};

/* The profile of the meter's steps, not merged, with a limit for every row:
 * products at the best time of their shape, alone, in this run; attention at
 * the rate of all products; the rest at the bandwidth of memory. */
status bound_measure(struct bound *bound, struct stage *stage,
                     const struct meter *meter, struct profile *profile);

#endif
