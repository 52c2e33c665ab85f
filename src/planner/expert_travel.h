/* SPDX-License-Identifier: Apache-2.0 */
/* expert_travel.h - a rank's clock while rows of experts travel: one resource
 * computes, one sends. Rows go in halves; work that does not need them goes on,
 * and both are slower meanwhile. */
#ifndef LOCKSTEP_PLANNER_EXPERT_TRAVEL_H
#define LOCKSTEP_PLANNER_EXPERT_TRAVEL_H

#include "planner/machine.h"

enum { TRAVEL_HALVES = 2 };

struct expert_travel {
    const struct machine *machine;
    double now;              /* seconds of the resource that computes */
    double free;             /* when all messages so far will have arrived, if
                              * nothing is computed until then */
};
/* When each half arrives. */
struct under_way { double half[TRAVEL_HALVES]; };

/* Starts `seconds` of messages as half `half`, behind all others. */
void expert_travel_start(struct expert_travel *travel, struct under_way *rows,
                         int half, double seconds);
/* Computes; what is under way takes longer. Returns the seconds by which the
 * computation is longer than alone. */
double expert_travel_compute(struct expert_travel *travel, double seconds);
/* Waits for a half; returns the seconds of that. */
double expert_travel_await(struct expert_travel *travel,
                           const struct under_way *rows, int half);

#endif
