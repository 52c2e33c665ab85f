/* SPDX-License-Identifier: Apache-2.0 */
/* forest.h - the absolute tree over the spans of a sequence, grown from nodes
 * that come in any order.
 *
 * A node is a run of spans whose sum lies in a slot of the owner. Two nodes
 * meet when they are siblings in the tree, whenever that is; so the sum does
 * not show the order, and few slots are in use at once. A span that has nothing
 * to add is a node without a slot: its sibling becomes their parent as it is.
 */
#ifndef LOCKSTEP_NN_FOREST_H
#define LOCKSTEP_NN_FOREST_H

#include <stdbool.h>

#include "base/status.h"

enum { FOREST_SPANS_MAX = 128 };

struct forest {
    int count; /* nodes, left to right */
    struct { int first, size, slot; } node[FOREST_SPANS_MAX]; /* slot -1: no */
    bool used[FOREST_SPANS_MAX];
    int most;  /* slots that were in use at once */
};

/* Slot `left` becomes left + right. */
typedef status forest_merge(void *argument, int left, int right);

/* A free slot, now taken. */
int forest_take(struct forest *forest);
/* Span `first` is in `slot` (-1: has nothing); siblings meet. */
status forest_put(struct forest *forest, int first, int slot,
                  forest_merge *merge, void *argument);
/* All spans were put: merges what is left, as the tree does at its ragged end.
 * *slot: of the root. */
status forest_root(struct forest *forest, int *slot, forest_merge *merge,
                   void *argument);

#endif
