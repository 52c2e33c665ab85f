/* SPDX-License-Identifier: Apache-2.0 */
/* forest.c - the absolute tree over the spans of a sequence, grown from nodes
 * that come in any order. */
#include "nn/forest.h"

int forest_take(struct forest *forest)
{
    int slot = 0;

    while (forest->used[slot]) slot++;
    CHECK(slot < FOREST_SPANS_MAX);
    forest->used[slot] = true;
    if (slot + 1 > forest->most) forest->most = slot + 1;
    return slot;
}

/* Nodes i and i + 1 become one. */
static status join(struct forest *forest, int i, forest_merge *merge,
                   void *argument)
{
    const int left = forest->node[i].slot, right = forest->node[i + 1].slot;

    if (left < 0) {
        forest->node[i].slot = right;
    } else if (right >= 0) {
        TRY(merge(argument, left, right));
        forest->used[right] = false;
    }
    forest->node[i].size += forest->node[i + 1].size;
    forest->count--;
    for (int j = i + 1; j < forest->count; j++)
        forest->node[j] = forest->node[j + 1];
    return OK;
}

/* Whether node i + 1 is the right sibling of node i. */
static bool siblings(const struct forest *forest, int i)
{
    if (i < 0 || i + 1 >= forest->count) return false;
    const int first = forest->node[i].first, size = forest->node[i].size;

    return forest->node[i + 1].first == first + size &&
           forest->node[i + 1].size == size && first % (2 * size) == 0;
}

status forest_put(struct forest *forest, int first, int slot,
                  forest_merge *merge, void *argument)
{
    int at = forest->count++;

    CHECK(at < FOREST_SPANS_MAX);
    for (; at > 0 && forest->node[at - 1].first > first; at--)
        forest->node[at] = forest->node[at - 1];
    forest->node[at].first = first;
    forest->node[at].size = 1;
    forest->node[at].slot = slot;
    for (;;) {
        if (siblings(forest, at)) {
            TRY(join(forest, at, merge, argument));
        } else if (siblings(forest, at - 1)) {
            TRY(join(forest, --at, merge, argument));
        } else {
            return OK;
        }
    }
}

status forest_root(struct forest *forest, int *slot, forest_merge *merge,
                   void *argument)
{
    while (forest->count > 1)
        TRY(join(forest, forest->count - 2, merge, argument));
    *slot = forest->node[0].slot;
    return OK;
}
