/* SPDX-License-Identifier: Apache-2.0 */
/* pass_calls.h - the calls inside F, B and W are those that layers state.
 *
 * When a pass begins, what its events state is written down, event by event
 * (list/traffic.h). Each call is taken off the rows of the event that runs,
 * before it begins; a product that starts the sums of a relayout takes off that
 * one's. An instruction may end only when all calls of its events were made.
 * How many bytes rows of experts have is known when tokens have chosen: those
 * calls are compared with the counts that all ranks have joined. */
#ifndef LOCKSTEP_STEP_PASS_CALLS_H
#define LOCKSTEP_STEP_PASS_CALLS_H

#include "list/instruction.h"
#include "plan/exchange.h"

struct pass_row {
    struct exchange left; /* calls and bytes still to come */
    int event;
};

/* The passes of one stage, which never interleave. */
struct pass_calls {
    struct pass_row *rows; /* owned: of the present pass, by event */
    int count, capacity;
    int *first;            /* owned, [events + 1]: where each one's begin */
    int begin, end;        /* events of the pass */
    int event;             /* whose rows are being written down */
    int64_t routed_calls, routed_bytes; /* that rows of experts took so far:
                            * by the calls, */
    int64_t counted_calls, counted_bytes; /* and by the run when the pass
                            * began */
};

status pass_calls_build(struct pass_calls *calls, const struct stage *stage);
void pass_calls_free(struct pass_calls *calls);

/* A part of a pass. */
struct pass_case {
    enum instruction_kind kind;
    int first_event;
    int64_t microbatch;    /* of a round */
    bool alone;            /* F that no B follows */
};
status pass_calls_begin(struct pass_calls *calls, const struct stage *stage,
                        const struct pass_case *at);
/* A call of the event that runs. A difference ends the program. */
void pass_calls_compare(struct pass_calls *calls, const struct run *run,
                        const struct group *group,
                        const struct comm_call *call);
/* The events before `end` have run. */
void pass_calls_end(const struct pass_calls *calls, int end);

#endif
