/* SPDX-License-Identifier: Apache-2.0 */
/* copy_every.h - how many steps must pay for a copy of the state, so that it
 * costs 1 percent of the time. */
#ifndef LOCKSTEP_TRAIN_COPY_EVERY_H
#define LOCKSTEP_TRAIN_COPY_EVERY_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "train/copy_delay.h"

struct team;

enum copy_way {
    COPY_WAY_NONE,    /* no copy was on its way to another node in the step */
    COPY_WAY_TRAVELS, /* one was */
    COPY_WAY_OTHER    /* nobody knows, or the step did more than most do */
};

struct copy_every {
    struct team *team;   /* borrowed */
    int threads;         /* of this rank */
    bool in_update;      /* an update writes the copy: to make it is no more */
    int64_t steps;       /* from copy to copy */
    bool measures;       /* `steps` follows the cost */
    int64_t made, looked; /* copies in this process; then, when their cost was
                           * last weighed */
    int64_t alone;       /* `made`, when no node was a partner; 0: there always
                          * was one */
    double copy_s, step_s; /* of the last one, smoothed */
    double fence_s;      /* that a step waited for the other node, smoothed */
    double carry_s;      /* that steps missed of the processors, for each */
    struct copy_delay delay; /* of steps during which one travels */
    double delay_s;      /* by which those are longer; 0: not seen */
    double used_s;       /* board_carrying() by then */
    int64_t told;        /* `steps`, when the cost was last said; 0: never */
};

/* How many steps must pay for a copy that costs so much, for 1 percent. */
int64_t copy_every_steps(double cost_s, double step_s);
/* A step took so long, without the checks, saves and validations after it. */
void copy_every_step(struct copy_every *every, double took_s,
                     enum copy_way way);
/* Before the step's copy: weighs them now and then. Collective then. */
status copy_every_look(struct copy_every *every, int64_t step);
/* A copy was made in so many seconds. */
void copy_every_made(struct copy_every *every, double took_s);
/* A step waited so long for other nodes. */
void copy_every_waited(struct copy_every *every, double waited_s);
/* At the end of a run: what copies cost, in the log, unless it is said. */
void copy_every_tell(struct copy_every *every);

#endif
