/* SPDX-License-Identifier: Apache-2.0 */
/* plan_copies.h - `plan --time --copies K`: copies of the ranks' state on other
 * nodes, in the idle time of the step's network. */
#ifndef LOCKSTEP_CLI_PLAN_COPIES_H
#define LOCKSTEP_CLI_PLAN_COPIES_H

#include "cli/forecast.h"
#include "planner/state_copies.h"

struct plan_copies {
    bool asked;
    int64_t every;         /* steps from copy to copy */
    int64_t cheap_every;   /* fewest that keep the cost below 1 percent */
    int partners;          /* other nodes that keep a copy of each rank */
    double bytes;          /* of the largest rank's copy */
    double pass_s;         /* that this rank stands still to make it */
    struct state_copies sent; /* owned */
    char survives[256];
};

status plan_copies_find(struct plan_copies *out,
                        const struct arguments *arguments,
                        const struct forecast *forecast,
                        const struct steps *steps, double step_s);
void plan_copies_free(struct plan_copies *copies);
void plan_copies_print(const struct plan_copies *copies, double step_s);
/* The value of the key "copies"; null: nobody asked. */
void plan_copies_write(const struct plan_copies *copies, double step_s,
                       struct json_writer *writer);

#endif
