/* SPDX-License-Identifier: Apache-2.0 */
/* state_copies.h - copies of the ranks' state on their way to other nodes, in
 * the time in which a planned step leaves the network idle.
 *
 *   network   ....[reduce]..[reduce]......[norm] update
 *   copies    ====        ==        ======|      after a step, until its norm
 *
 * A step's own messages go first, as the courier lets them
 * (control/courier_pace.h). What is left when ranks come to the norm of the
 * step is waited for. */
#ifndef LOCKSTEP_PLANNER_STATE_COPIES_H
#define LOCKSTEP_PLANNER_STATE_COPIES_H

#include "planner/steps.h"

/* Seconds of the step in which a copy travels, from the node or nodes that the
 * lists [first, last] are on. */
struct copy_span {
    int first, last;
    bool waited_for;
    double begin, end;
};

struct state_copies {
    /* These are of the node whose ranks wait longest, else send longest: */
    double node_bytes;     /* that leave it for each copy */
    double travel_s;       /* that they take alone */
    double window_s;       /* from the step's begin to its norm, */
    double idle_s;         /* of which its network is idle */
    double wait_s;         /* that ranks wait for the rest */
    struct copy_span *spans; /* owned: of all nodes */
    int span_count, span_capacity;
};

/* node_bytes [nodes]: what leaves each node for a copy, to `streams` others at
 * once. `steps` has its times. */
struct copies_sent {
    const double *node_bytes;
    int nodes, streams;
};
status state_copies_place(struct state_copies *out, const struct steps *steps,
                          const struct cost *cost,
                          const struct copies_sent *sent);
void state_copies_free(struct state_copies *copies);
/* Seconds that a rank stands still to make a copy: what its update writes of
 * itself takes none; from a device, or of masters that are split, a pass
 * does. */
double state_copies_pass(const struct cost *cost, double bytes);
/* Bytes of the copy of a rank at `position` of the pipe, in closed form. */
double state_copies_bytes(const struct layout *layout,
                          const struct shape *shape, int position);
/* Whether two ranks hold the same numbers. */
bool state_copies_same(const struct layout *layout, const struct shape *shape,
                       int a, int b);

#endif
