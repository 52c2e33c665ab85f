/* SPDX-License-Identifier: Apache-2.0 */
/* spent.h - where the time of a supervised run went, from its journal and its
 * metrics. */
#ifndef LOCKSTEP_CLI_SPENT_H
#define LOCKSTEP_CLI_SPENT_H

#include "control/report.h"
#include "observe/metrics.h"

/* Seconds since the first supervisor began; parts add up to `all`. */
struct spent {
    double all;
    double steps;       /* steps that count, without waiting for data */
    double data;        /* steps' waiting for data */
    double validations;
    double recoveries;  /* from the last step before an incident to the next */
    double away;        /* no supervisor lived: from an end to the next start */
    double rest;        /* opening, saves, between steps */
};

/* `now_s`: seconds since 1970, of a run that goes on. */
void spent_find(struct spent *spent, const struct run_report *report,
                const struct metrics_table *table, double now_s);

#endif
