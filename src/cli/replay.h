/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - the clock with measured durations: a trace of `train --trace`
 * gives the time of every instruction of the executor's lists, by its number.
 * The clock's step is then compared with the step that was measured. */
#ifndef LOCKSTEP_CLI_REPLAY_H
#define LOCKSTEP_CLI_REPLAY_H

#include "cli/forecast.h"
#include "cli/replay_trace.h"

enum { REPLAY_LARGEST = 3 };

struct replayed {
    double measured_s, replayed_s, predicted_s;
    int steps, instructions; /* in the trace */
    double errors[REPLAY_STEPS_MOST]; /* replayed / measured - 1 of each step */
    /* Instructions of pipe rank 0 whose prediction is furthest off. */
    struct replay_difference {
        int number;
        const char *what;
        double measured_s, predicted_s;
    } largest[REPLAY_LARGEST];
    int largest_count;
};

/* `path`: the trace of rank 0; with several ranks "NAME.rank-0.json".
 * ERR_FORMAT: no trace, or one of another configuration. */
status replay(struct replayed *out, struct forecast *forecast,
              const char *path);

#endif
