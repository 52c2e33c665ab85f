/* SPDX-License-Identifier: Apache-2.0 */
/* plan_step.h - `plan --explain step`: the list of everything that a rank does
 * in a step, the one that is executed. */
#ifndef LOCKSTEP_CLI_PLAN_STEP_H
#define LOCKSTEP_CLI_PLAN_STEP_H

#include "cli/table.h"
#include "train/draft.h"

/* Which list. */
struct plan_step_request {
    const struct draft *draft; /* of the rank */
    struct setup *setup;       /* its place changes */
    int rank;
    const char *after;         /* the last pass; NULL: all */
    const char *picture;       /* also an SVG; NULL: none */
};
/* A row for each instruction. The whole list is verified together with those of
 * the other ranks of the pipe. */
status plan_step(const struct plan_step_request *request,
                 struct table *table);

#endif
