/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tree.h - sums over granules, and over query heads, that meet in a
 * tree while they come. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_TREE_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_TREE_H

#include "kernels/cpu/attention/attention.h"

/* A tree over numbered nodes as a binary counter. Level l is a node of
 * `floats` at levels + l * stride. */
struct counter {
    float *levels;
    int64_t stride, floats;
};

/* The levels that wait after node `number` joins those in `waits`. */
static inline uint64_t counter_waits(uint64_t waits, int64_t number)
{
    uint64_t carry = (uint64_t)(number ^ (number + 1)) >> 1; /* low ones */

    return (waits & ~carry) | (carry + 1);
}

/* The levels that wait after nodes [from, number), without those before. */
static inline uint64_t counter_levels(int64_t from, int64_t number)
{
    uint64_t waits = 0;

    for (int level = 0; number >> level; level++)
        if (number >> level & 1 && number >> level << level > from)
            waits |= UINT64_C(1) << level;
    return waits;
}

/* Where node `number` should be written: where it will wait when it takes no
 * left neighbours along, else in `scratch`. */
static inline float *counter_place(const struct counter *c, int64_t number,
                            float *scratch)
{
    return number & 1 ? scratch : c->levels;
}

/* Adds node `number` when the levels in `waits` hold a node: the new node takes
 * all complete left neighbours along. Returns the levels that then wait. */
static inline uint64_t counter_push(const struct counter *c, uint64_t waits,
                             int64_t number, const float *node)
{
    const float *lefts[64];
    int count = 0, level = 0;
    float *to;

    for (; number >> level & 1; level++)
        if (waits >> level & 1) lefts[count++] = c->levels + level * c->stride;
    to = c->levels + level * c->stride;
    for (int64_t e = 0; e < c->floats && (count || to != node); e += WIDTH) {
        vector sum = vector_load(node + e);

        for (int i = 0; i < count; i++) sum = vector_load(lefts[i] + e) + sum;
        vector_store(to + e, sum);
    }
    return counter_waits(waits, number);
}

/* The tree's root, in place at the highest level that waits. */
static inline const float *counter_root(const struct counter *c, uint64_t waits)
{
    float *right = NULL;

    for (int level = 0; waits >> level; level++) {
        float *left = c->levels + level * c->stride;

        if (!(waits >> level & 1)) continue;
        for (int64_t e = 0; right && e < c->floats; e += WIDTH)
            vector_store(left + e, vector_load(left + e) +
                                       vector_load(right + e));
        right = left;
    }
    return right;
}

/* ---- leaves of query heads ---- */

static inline int head_leaf(const struct attention *p, int head)
{
    return head / (p->heads / p->leaves);
}

/* Whether no group of query heads is cut by leaves. */
static inline bool one_leaf(const struct attention *p)
{
    return p->kv_heads % p->leaves == 0;
}

/* Places for sums over query heads: none when there is nothing to add, the leaf
 * that goes on, or that and the levels of the tree over up to 8 leaves. */
static inline int leaf_slots(const struct attention *p)
{
    if (p->heads == p->kv_heads) return 0;
    return one_leaf(p) ? 1 : ATTENTION_LEAF_SLOTS;
}

#endif
