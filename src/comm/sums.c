/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - adding roots as the grid's tree says (numerics.md, section 1).
 *
 * Roots come from left to right; two neighbours that are siblings are added at
 * once, so only a stack of partial sums is kept, of a segment that stays in
 * cache. */
#include <string.h>
#include "comm/algorithms.h"

enum { SEGMENT_BYTES = 8192, DEPTH_MAX = 16 };

int comm_roots(int leaves, int size, int rank,
               struct comm_root roots[COMM_ROOTS_MAX])
{
    const int64_t all = leaves;
    const int last = (int)(all * (rank + 1) / size);
    int first = (int)(all * rank / size), count = 0;

    while (first < last) {
        int span = 1;

        /* A node beyond the last leaf is complete when it reaches it. */
        while (span < leaves && first % (2 * span) == 0 &&
               (first + 2 * span <= last ||
                (last == leaves && first + 2 * span > leaves)))
            span *= 2;
        CHECK(count < COMM_ROOTS_MAX);
        roots[count++] = (struct comm_root){
            first, first + span > leaves ? leaves - first : span, span};
        first += roots[count - 1].leaves;
    }
    return count;
}

int comm_own_roots(const struct group *group, int leaves)
{
    struct comm_root roots[COMM_ROOTS_MAX];

    return comm_roots(comm_leaves(group, leaves), group->size, group->rank,
                      roots);
}

struct node {
    const char *data;
    int first, span;
};

/* Partial sums of one segment, left to right. */
struct sums {
    struct node node[DEPTH_MAX + 1];
    int count, leaves;
    char buffer[DEPTH_MAX][SEGMENT_BYTES];
};

/* The node takes the place of the empty ones to its right. */
static void node_grow(struct node *node, int leaves)
{
    while (node->first > 0 && node->first + node->span >= leaves &&
           node->first % (2 * node->span) == 0)
        node->span *= 2;
}

int tree_merges(int leaves, int size, int64_t *merges, int most)
{
    struct node node[DEPTH_MAX + 1];
    int depth = 0, all = 0;

    for (int i = 0; i < size; i++) {
        struct comm_root roots[COMM_ROOTS_MAX];
        const int count = comm_roots(leaves, size, i, roots);

        for (int r = 0; r < count; r++) {
            if (all == most || depth == DEPTH_MAX) return 0;
            node[depth] = (struct node){NULL, roots[r].first, roots[r].span};
            node_grow(&node[depth++], leaves);
            for (merges[all] = 0;
                 depth >= 2 && node[depth - 2].span == node[depth - 1].span;
                 merges[all]++) {
                depth--;
                node[depth - 1].span *= 2;
                node_grow(&node[depth - 1], leaves);
            }
            all++;
        }
    }
    return all;
}

/* Adds a root. When it is the last one the sum goes to `out`, which may be
 * where a root lies: by then all have been read. */
static void sums_add(struct sums *s, const struct comm_call *call,
                     const struct comm_root *root, const char *data,
                     struct block out)
{
    const bool last = root->first + root->leaves == s->leaves;

    CHECK(s->count < DEPTH_MAX);
    s->node[s->count].data = data;
    s->node[s->count].first = root->first;
    s->node[s->count].span = root->span;
    node_grow(&s->node[s->count++], s->leaves);
    while (s->count >= 2 &&
           s->node[s->count - 2].span == s->node[s->count - 1].span) {
        const int left = s->count - 2;
        char *into = last && left == 0 ? out.data : s->buffer[left];

        combine(call, into, s->node[left].data, s->node[left + 1].data,
                out.bytes);
        s->node[left].data = into;
        s->node[left].span *= 2;
        s->count--;
        node_grow(&s->node[left], s->leaves);
    }
    if (last && s->node[0].data != out.data)
        memcpy(out.data, s->node[0].data, (size_t)out.bytes);
}

/* Where bytes from `first` on of a row of a rank's root are. */
static const char *root_data(const struct parcel *parcel, int root,
                             int64_t row, int64_t first)
{
    const struct comm_block *b = &parcel->block;

    return (const char *)b->data + root * b->plane_stride + row * b->stride +
           first;
}

void tree_sum(const struct operation *op, int leaves, int64_t row,
              int64_t first, struct block out)
{
    const struct parcel *parcels = op->group->parcels[op->channel];
    struct sums sums;

    sums.leaves = leaves;
    for (int64_t at = 0; at < out.bytes; at += SEGMENT_BYTES) {
        const int64_t left = out.bytes - at;
        const struct block segment = {
            out.data + at, left < SEGMENT_BYTES ? left : SEGMENT_BYTES};

        sums.count = 0;
        for (int i = 0; i < op->group->size; i++) {
            struct comm_root roots[COMM_ROOTS_MAX];
            const int count = comm_roots(leaves, op->group->size, i, roots);

            for (int r = 0; r < count; r++)
                sums_add(&sums, op->call, &roots[r],
                         root_data(&parcels[i], r, row, first + at),
                         segment);
        }
    }
}
