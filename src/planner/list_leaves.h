/* SPDX-License-Identifier: Apache-2.0 */
/* list_leaves.h - leaves of gradients that wait for their siblings, and are
 * added once these are there (nn/gradient.h): the adds that no product makes
 * itself, in the executor's lists. */
#ifndef LOCKSTEP_PLANNER_LIST_LEAVES_H
#define LOCKSTEP_PLANNER_LIST_LEAVES_H

#include "list/list.h"
#include "planner/cost.h"

/* For each micro-batch, in the mean of a step: of uses of blocks and of the
 * head; where a product cannot start from the sibling, and where it can. */
struct leaf_adds {
    double each[2][2];
    struct cut of[2];        /* of the batch, which they are counted for */
};
/* `out` is zeroed, or has those of a stage before, which may be the same. */
void leaf_adds_of(const struct program *program, struct leaf_adds *out);
/* The adds that follow W of a step. */
void list_add_leaves(const struct cost *cost, const struct leaf_adds *adds,
                     const struct step *step, const struct program *p,
                     struct spent *out);

#endif
