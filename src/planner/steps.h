/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - the lists of a step with their costs: the schedule's own lists,
 * with transfers, gathers, reductions and the tail, one item for each stage and
 * micro-batch (more where weights are gathered unit by unit). One list for each
 * pipe position: ranks beside it on the other axes do the same. */
#ifndef LOCKSTEP_PLANNER_STEPS_H
#define LOCKSTEP_PLANNER_STEPS_H

#include "planner/cost.h"
#include "planner/simulator.h"

enum step_item {
    ITEM_F, ITEM_B, ITEM_W, ITEM_BACKWARD /* B with its W */, ITEM_TRANSFER,
    ITEM_GATHER, ITEM_REDUCE, ITEM_NORM, ITEM_UPDATE, ITEM_REGATHER,
    ITEM_OFFLOAD, ITEM_HOST, STEP_ITEMS
};
extern const char *const step_item_names[STEP_ITEMS];

struct steps {
    struct timed_lists lists;   /* items' kind: of spans */
    struct spent *spans;         /* owned, [span_count]: of the kinds */
    enum step_item *items;      /* owned, [span_count] */
    int span_count, span_capacity;
    struct schedule schedule;   /* owned */
    double body_work;           /* seconds of F, B and W, mean over positions */
};

/* ERR_CONFIG: the schedule cannot serve these numbers. */
status steps_build(struct steps *steps, const struct cost *cost);
void steps_free(struct steps *steps);

#endif
