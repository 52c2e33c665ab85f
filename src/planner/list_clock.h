/* SPDX-License-Identifier: Apache-2.0 */
/* list_clock.h - the executor's own lists (list/list.h) with a clock: each
 * instruction with its events, messages and needs becomes one timed item.
 * Nothing of the step is described here.
 *
 * Instructions that are not in the background follow each other; those in the
 * background begin when they are issued, and their resource is free. */
#ifndef LOCKSTEP_PLANNER_LIST_CLOCK_H
#define LOCKSTEP_PLANNER_LIST_CLOCK_H

#include "list/list.h"
#include "planner/steps.h"
#include "planner/expert_travel.h"
#include "planner/known_costs.h"
#include "planner/list_leaves.h"

enum { WALK_CHUNKS = 64, /* stages of a rank; others share */
       WALK_SUMS = 48 /* of events, that are kept */ };

/* Seconds of an event of a stage; known: they are those of each micro-batch. */
struct list_clock_event {
    bool known;
    struct spent spent;
    double seconds, travelling;
};
/* Prices of all events of a stage. */
struct list_clock_prices {
    const struct event *of;    /* borrowed; NULL: of no other stage */
    struct list_clock_event *items; /* owned */
    struct leaf_adds adds;
};

/* Events [first, last) of prices `of`, added up. */
struct list_clock_sum { int of, first, last; struct spent spent; };

struct list_clock {
    const struct cost *cost;
    struct steps steps;        /* taken by list_clock_finish */
    struct step_list *lists;   /* owned, [ranks] */
    int ranks, made;
    int meetings;              /* of the rank that is made */
    struct list_clock_prices *prices; /* owned: of stages with plans of their
                               * own; stages may share a plan */
    int price_count, price_capacity;
    struct leaf_adds adds;     /* of the latest stage */
    int *priced;               /* owned, of the rank that is made: the prices of
                                * each of its stages */
    struct list_clock_sum sums[WALK_SUMS]; /* of the rank that is made */
    int sum_count;
    struct list_room room;     /* owned */
    struct known_costs known;  /* owned, of the rank that is made */
    struct expert_travel travel;      /* of the rank that is made: rows of
                                       * experts, */
    struct under_way rows[WALK_CHUNKS]; /* of each of its stages */
};

/* For a pipe of `ranks`. */
status list_clock_begin(struct list_clock *walk, const struct cost *cost,
                        int ranks);
/* The next pipe rank's list and its costs; the pipeline may be freed then. */
status list_clock_rank(struct list_clock *walk,
                       const struct pipeline *pipeline);
/* Joins sends with receives. `out` owns the lists then. */
status list_clock_finish(struct list_clock *walk, struct steps *out);
void list_clock_free(struct list_clock *walk);

#endif
