/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h - the cheapest changes that make a layout fit its memory. */
#ifndef LOCKSTEP_PLANNER_ADVISE_H
#define LOCKSTEP_PLANNER_ADVISE_H

#include "planner/predict.h"

enum { ADVICES = 3, ADVICE_BYTES = 96 };
struct advised {
    char what[ADVICE_BYTES]; /* "train.recompute=[block]" */
    double memory_bytes, step_s;
    bool plan_only;          /* the executor cannot do it yet */
};
struct advice { struct advised items[ADVICES]; int count; };

/* One change at a time, then two; the three that take the least time. Memory
 * by the closed form. */
status advise(struct advice *out, const struct cost *cost, double limit);

#endif
