/* SPDX-License-Identifier: Apache-2.0 */
/* advise.h - the cheapest changes that make a layout fit its memory. */
#ifndef LOCKSTEP_PLANNER_ADVISE_H
#define LOCKSTEP_PLANNER_ADVISE_H

#include "planner/predict.h"

enum { ADVICES = 3, ADVICES_TRIED = 32, ADVICE_BYTES = 192,
       ADVICE_AT_ONCE = 3 };
struct advised {
    char what[ADVICE_BYTES]; /* "train.recompute=[block]" */
    unsigned changes;        /* a bit for each of them */
    double memory_bytes, step_s;
    bool plan_only;          /* the executor cannot do it yet */
    struct layout layout;    /* with the changes */
};
struct advice { struct advised items[ADVICES_TRIED]; int count; };

/* Changes that make it fit, `at_once` of them, 1 to ADVICE_AT_ONCE, and no more
 * than enough: none of `known` is a part of them. Those that take the least
 * time, the cheapest first. Memory by the closed form: the caller keeps ADVICES
 * of those that an exact plan confirms. */
status advise(struct advice *out, const struct cost *cost,
              const struct advice *known, double limit, int at_once);

#endif
