/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.h - a schedule with a clock instead of devices.
 *
 * A rank performs its list in order; a bundle begins when the rank is free and
 * all that it needs is there, a transfer after the action that made it where
 * that was another rank. Transfers are posted and block nobody. */
#ifndef LOCKSTEP_PLAN_SIMULATE_H
#define LOCKSTEP_PLAN_SIMULATE_H

#include "schedule/timeline.h"

/* Times are of one micro-batch on one rank, all its chunks. */
struct simulate_costs {
    int64_t time_ns[ACTION_COMPUTE_COUNT]; /* of F, B and W */
    int64_t pair_ns;      /* F beside B and W; 0: one after the other */
    int64_t transfer_ns;
    double weight_memory; /* held between B and W over held after F */
};

struct simulation {
    struct timeline timeline;
    int ranks;
    int64_t end_ns;     /* of the step */
    int64_t longest_ns; /* first begin to last end, longest over ranks */
    double bubble_rate; /* 1 - microbatches * (F + B + W) / longest_ns */
    double idle_share;  /* of ranks * end_ns: nothing is computed */
    double *peaks;      /* owned, [ranks], most micro-batches held */
};

/* ERR_CONFIG: what schedule_verify says, or times that do not fit in 63 bits.
 */
status simulate(struct simulation *out, const struct schedule *schedule,
                const struct simulate_costs *costs);
void simulation_free(struct simulation *simulation);
/* ERR_CONFIG: a rank holds more than `limit` micro-batches; 0: no limit. List
 * schedulers keep to it by themselves, the order of the others is fixed. */
status simulation_within(const struct simulation *simulation, const char *name,
                         double limit);

/* The column 1F1B-I of Qi et al. 2023, arXiv:2401.10241, table 5: the bubble
 * rate of interleaved 1f1b by the closed form
 * idle = (p - 1)(F + B + W) / v + (p (2 v - 1) - 2) transfer. It charges
 * p transfers less than an execution does. */
double interleaved_published_rate(const struct simulate_costs *costs,
                                  int ranks, int chunks, int microbatches);

#endif
