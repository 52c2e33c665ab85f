/* SPDX-License-Identifier: Apache-2.0 */
/* schedules.h - `bench schedules`: how long it takes to make, to verify and to
 * simulate each schedule of the table. */
#ifndef LOCKSTEP_BENCH_SCHEDULES_H
#define LOCKSTEP_BENCH_SCHEDULES_H

#include <stdio.h>

#include "base/json.h"

struct bench_schedules_settings {
    int ranks, microbatches; /* 0: those of the two goals, one after the other:
                              * 1,000 ranks; 64 ranks and 512 micro-batches */
    int repeats;             /* the best counts; 0: 3 */
};

/* Prints, or writes to `json` when not NULL. Times are of this process's one
 * thread (CPU time), so that other work does not count. */
status bench_schedules(const struct bench_schedules_settings *settings,
                       FILE *out, struct json_writer *json);

#endif
