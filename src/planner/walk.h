/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - the executor's own lists (list/list.h) with a clock: each
 * instruction with its events, messages and needs becomes one timed item.
 * Nothing of the step is described here.
 *
 * Instructions that are not in the background follow each other; those in the
 * background begin when they are issued, and their lane is free. */
#ifndef LOCKSTEP_PLANNER_WALK_H
#define LOCKSTEP_PLANNER_WALK_H

#include "list/list.h"
#include "planner/steps.h"
#include "planner/travel.h"
#include "planner/walk_known.h"

enum { WALK_CHUNKS = 64 /* stages of a rank; others share */ };

/* Seconds of an event of a stage; known: they are those of each micro-batch. */
struct walk_event {
    bool known;
    struct spent spent;
    double seconds, travelling;
};

struct walk {
    const struct cost *cost;
    struct steps steps;        /* taken by walk_finish */
    struct step_list *lists;   /* owned, [ranks] */
    int ranks, made;
    int meetings;              /* of the rank that is made */
    struct walk_event *events; /* owned, of the rank that is made: of all its
                                * stages */
    struct known_costs known;  /* owned, of the rank that is made */
    struct travel travel;      /* of the rank that is made: rows of experts, */
    struct under_way rows[WALK_CHUNKS]; /* of each of its stages */
};

/* For a pipe of `ranks`. */
status walk_begin(struct walk *walk, const struct cost *cost, int ranks);
/* The next pipe rank's list and its costs; the pipeline may be freed then. */
status walk_rank(struct walk *walk, const struct pipeline *pipeline);
/* Joins sends with receives. `out` owns the lists then. */
status walk_finish(struct walk *walk, struct steps *out);
void walk_free(struct walk *walk);

#endif
