/* SPDX-License-Identifier: Apache-2.0 */
/* found_layouts.h - the layouts that a search found (planner/search.h), planned
 * to the byte as the trainer would, and timed on the executor's own lists. */
#ifndef LOCKSTEP_TRAIN_FOUND_LAYOUTS_H
#define LOCKSTEP_TRAIN_FOUND_LAYOUTS_H

#include "planner/search.h"
#include "train/forecast.h"

enum { REFUSED_BYTES = 256 };
struct found_layouts {
    struct forecast forecast; /* by the caller, up to forecast_model */
    enum objective objective;
    int top;                /* 1 to TOP_MOST */
    bool grid_stays;        /* keeps layouts that the options' grid allows */
    bool recompute_stays;   /* plans with the options' train.recompute */
    const struct search_fixed *fixed; /* borrowed; NULL: nothing */
    struct threads *pool;   /* that searches, borrowed; NULL: the caller */
    struct search search;
    struct search_request request;
    struct search_fixed only; /* what request.fixed points to, and */
    struct mesh_order order;  /* request.order */
    struct ramp ramp;       /* owned: of the request */
    struct hunting hunting; /* owned */
    struct known_schedules *schedules; /* owned; of copies, too */
    double seconds;
    double left;            /* instructions that may be timed in lists */
    double shorter_left;    /* ... of shorter steps */
    int microbatches;       /* of a shorter step that is planned; 0: of all */
    int kept[TOP_MOST];     /* of search.found: those that are shown */
    int kept_count;
    bool exact[TOP_MOST];   /* their memory was planned to the byte */
    bool grid[TOP_MOST];    /* they need another numerics grid */
    char refused[REFUSED_BYTES]; /* why setup refused the best one that it
                             * did */
    struct found_layouts *copies; /* owned: for each thread but the first */
    int opened;             /* of them */
};

status found_run(struct found_layouts *hunted);
/* Frees what found_run took, not the forecast, which its owner frees. */
void found_free(struct found_layouts *hunted);

/* Whether the candidate's layout fits as the trainer would plan it: sets its
 * memory, and its prediction where the lists are short. False, too, where setup
 * refuses it. */
bool found_fits(struct forecast *forecast, struct candidate *candidate,
                double most);

enum { HUNTED_SETTINGS = 19, HUNTED_BLOCKS = 5 * LAYOUT_STAGES,
       HUNTED_SETTING = HUNTED_BLOCKS + 96,
       HUNTED_LINES = HUNTED_BLOCKS + 512 };
/* "mesh.tensor=8", ...: as --set takes them, with the numerics grid that the
 * layout needs or without; returns how many. */
int found_settings(const struct layout *layout, const struct shape *shape,
                   bool grid, char out[][HUNTED_SETTING]);
/* The same as lines of a configuration; out [HUNTED_LINES]. */
void found_yaml(const struct layout *layout, const struct shape *shape,
                bool grid, char *out);

#endif
