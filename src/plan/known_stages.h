/* SPDX-License-Identifier: Apache-2.0 */
/* known_stages.h - stages that were planned once, for all that have the same
 * plan: other places of a pipe, other schedules, other numbers of micro-batches
 * in flight. For what is planned and never opened: a search, a prediction. */
#ifndef LOCKSTEP_PLAN_KNOWN_STAGES_H
#define LOCKSTEP_PLAN_KNOWN_STAGES_H

#include "plan/stage.h"

struct known_stage;
struct known_stages {
    struct known_stage **items; /* owned */
    int count, capacity;
    int programs;          /* that were made; those of steps that differ in
                            * their batch alone share one */
};

/* Like stage_plan. The parts of the stage may be those of a known one: it lives
 * no longer than `known`, and is freed like any other. NULL: it is planned
 * alone. */
status known_stages_plan(struct known_stages *known, struct stage *stage,
                         const struct stage_request *request);
void known_stages_free(struct known_stages *known);

#endif
