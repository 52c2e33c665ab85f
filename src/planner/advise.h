/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h - the cheapest changes that make a layout fit its memory. */
#ifndef LOCKSTEP_PLANNER_ADVISE_H
#define LOCKSTEP_PLANNER_ADVISE_H

#include "planner/predict.h"

enum { ADVICES = 3, ADVICES_TRIED = 8, ADVICE_BYTES = 96 };
struct advised {
    char what[ADVICE_BYTES]; /* "train.recompute=[block]" */
    double memory_bytes, step_s;
    bool plan_only;          /* the executor cannot do it yet */
    struct layout layout;    /* with the changes */
};
struct advice { struct advised items[ADVICES_TRIED]; int count; };

/* Changes that make it fit, `at_once` 1 or 2 of them; those that take the least
 * time, the cheapest first. Memory by the closed form: the caller keeps ADVICES
 * of those that an exact plan confirms. */
status advise(struct advice *out, const struct cost *cost, double limit,
              int at_once);

#endif
