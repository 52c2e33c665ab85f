/* SPDX-License-Identifier: Apache-2.0 */
/* ettr.h - the share of time that runs of many ranks train, for ways to recover
 * from failures, and beside figures that others published. */
#ifndef LOCKSTEP_PLANNER_ETTR_H
#define LOCKSTEP_PLANNER_ETTR_H

#include "planner/perturb.h"

enum { ETTR_PER_NODE = 8 }; /* ranks, in all tables here */

/* A way to recover: what a failure costs, and where the figures are from. */
struct ettr_way {
    const char *name, *source;
    struct failures failures; /* interval 0: the best one */
};
extern const struct ettr_way ettr_ways[];
extern const int ettr_way_count;

/* A figure that a system reports. */
struct ettr_published {
    const char *system, *source, *inputs;
    int ranks;
    struct failures failures;
    double ettr;      /* as published */
    bool at_least;    /* the source says "more than" */
    bool fitted;      /* its failure rate is chosen so that it is met */
};
extern const struct ettr_published ettr_published[];
extern const int ettr_published_count;

/* 1,024 to 131,072 ranks. */
extern const int ettr_sizes[];
extern const int ettr_size_count;

void ettr_predict(struct reliability *out, const struct failures *failures,
                  int ranks, int per_node);

#endif
