/* SPDX-License-Identifier: Apache-2.0 */
/* hierarchy.c - first inside nodes, where messages are cheap, then between
 * them, where each rank carries only its share of the node.
 *
 * Rank r is number r % g of node r / g. The ranks of a node form a circle, and
 * so do those of one number in all nodes. */
#include "comm/algorithms.h"

static int node_size(const struct group *group)
{
    int node = 1;

    if (group->node > 0 && group->size % group->node == 0) return group->node;
    for (int i = 1; i * i <= group->size; i++)
        if (group->size % i == 0) node = i;
    return group->size / node;
}

static void circles(const struct group *group, struct circle *inside,
                    struct circle *across)
{
    const int g = node_size(group), me = group->rank;

    *inside = (struct circle){me / g * g, 1, g, me % g};
    *across = (struct circle){me % g, g, group->size / g, me / g};
}

static struct cut cut_of(struct block block, int64_t element_bytes)
{
    return (struct cut){.data = block.data,
                        .elements = block.bytes / element_bytes,
                        .element_bytes = element_bytes};
}

status hierarchy_all_reduce(struct operation *op, const struct cut *cut)
{
    struct circle inside, across;
    struct cut share;

    circles(op->group, &inside, &across);
    share = cut_of(cut_blocks(cut, inside.count, inside.me, inside.me + 1),
                   cut->element_bytes);
    TRY(ring_reduce(op, &inside, cut));
    TRY(ring_reduce(op, &across, &share));
    TRY(ring_gather(op, &across, &share));
    TRY(ring_gather(op, &inside, cut));
    return OK;
}

/* The blocks of node b's ranks, of a cut in one block for each rank. */
static struct cut node_cut(const struct cut *cut, int node, int ranks)
{
    struct cut part = *cut;

    part.first = node * ranks;
    part.step = 1;
    return part;
}

/* The blocks of the ranks of one number: one for each node. */
static struct cut number_cut(const struct cut *cut, int number, int ranks)
{
    struct cut part = *cut;

    part.first = number;
    part.step = ranks;
    return part;
}

status hierarchy_reduce(struct operation *op, const struct cut *cut)
{
    struct circle inside, across;
    struct cut part;

    circles(op->group, &inside, &across);
    for (int node = 0; node < across.count; node++) {
        part = node_cut(cut, node, inside.count);
        TRY(ring_reduce(op, &inside, &part));
    }
    part = number_cut(cut, inside.me, inside.count);
    TRY(ring_reduce(op, &across, &part));
    return OK;
}

status hierarchy_gather(struct operation *op, const struct cut *cut)
{
    struct circle inside, across;
    struct cut part;

    circles(op->group, &inside, &across);
    part = number_cut(cut, inside.me, inside.count);
    TRY(ring_gather(op, &across, &part));
    for (int node = 0; node < across.count; node++) {
        part = node_cut(cut, node, inside.count);
        TRY(ring_gather(op, &inside, &part));
    }
    return OK;
}

status hierarchy_broadcast(struct operation *op, int root, struct block whole)
{
    struct circle inside, across;
    int number;

    circles(op->group, &inside, &across);
    number = root % inside.count;
    if (inside.me == number)
        TRY(tree_broadcast(op, &across, root / inside.count, whole));
    TRY(tree_broadcast(op, &inside, number, whole));
    return OK;
}
