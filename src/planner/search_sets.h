/* SPDX-License-Identifier: Apache-2.0 */
/* search_sets.h - divisions inside a node that search tries beside the presets
 * (docs/zero.md, axes of each). */
#ifndef LOCKSTEP_PLANNER_SEARCH_SETS_H
#define LOCKSTEP_PLANNER_SEARCH_SETS_H

#include "planner/layout.h"

/* The ranks of a node divide the states (zero 1), gradients too (2), weights
 * too (3); all nodes together divide what `states` and `gradients` say. Those
 * of whole weights come first; each of those of divided weights takes less
 * memory than the one before, and no less time. */
struct search_set {
    const char *name;
    int zero;
    bool states, gradients;
};
enum { SEARCH_SETS = 6 };
extern const struct search_set search_sets[SEARCH_SETS];

/* The row of a layout with whole_shards. */
int search_set_of(const struct layout *layout);

/* The most ranks of an axis that search tries; sequences of a micro-batch. */
enum { TENSOR_MOST = 16, CONTEXT_MOST = 16, PIPE_MOST = 64, MICRO_MOST = 64,
       EXPERT_MOST = 64,
       CONTEXT_TOKENS = 1024 /* of a context rank, at least */ };

#endif
