/* SPDX-License-Identifier: Apache-2.0 */
/* replay_trace.h - a trace of `train --trace` as times of the instructions of a
 * list, by their numbers. A trace is a file like any other: it may be of
 * another configuration, cut, or made up. */
#ifndef LOCKSTEP_CLI_REPLAY_TRACE_H
#define LOCKSTEP_CLI_REPLAY_TRACE_H

#include "base/file.h"
#include "planner/simulator.h"

enum { REPLAY_STEPS_MOST = 64 };

struct replay_trace {
    char path[PATH_BYTES];
    struct timed_list *list;
    double *first, *last;    /* owned, [count], us; last < 0: not seen */
    double *waited;          /* owned, [count], us, of the step */
    double *times;           /* owned, [REPLAY_STEPS_MOST][count], s */
    double *begins, *ends;   /* owned, the same, us: of the span */
    double *woke, *waits;    /* the same, of its wait for a message, and where
                              * that began, or the one before it, until a
                              * message of its own is read; 0: none */
    double begin[REPLAY_STEPS_MOST], end[REPLAY_STEPS_MOST];
    int steps;
    int rank, ranks;         /* of the pipe; readers */
};

/* With path and list; ERR_FORMAT: no trace, or one with other instructions.
 * Ends with replay_trace_free. */
status replay_trace_read(struct replay_trace *r);
void replay_trace_free(struct replay_trace *r);
/* Where arrays of [REPLAY_STEPS_MOST][count] have an instruction. */
size_t replay_place(const struct replay_trace *r, int step, int number);
/* Its own time, s. */
double *replay_time(const struct replay_trace *r, int step, int number);

#endif
