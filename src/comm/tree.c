/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - a binomial tree: few messages, whole buffers.
 *
 * In round `step` = 1, 2, 4, ... rank r, a multiple of 2 step, takes what
 * r + step has; a broadcast goes the other way. */
#include "comm/algorithms.h"

static status give(struct operation *op, int to, struct block block)
{
    const struct transfer t = {.to = to, .out = block.data,
                               .out_bytes = block.bytes, .from = -1};

    return transfer_run(op, &t);
}

static status take(struct operation *op, int from, struct block block,
                   bool combines)
{
    const struct transfer t = {.to = -1, .from = from, .in = block.data,
                               .in_bytes = block.bytes, .combine = combines};

    return transfer_run(op, &t);
}

status tree_reduce(struct operation *op, const struct circle *circle,
                   struct block whole)
{
    const int me = circle->me;

    for (int step = 1; step < circle->count; step *= 2) {
        if (me % (2 * step) != 0)
            return give(op, circle_rank(circle, me - step), whole);
        if (me + step < circle->count)
            TRY(take(op, circle_rank(circle, me + step), whole, true));
    }
    return OK;
}

status tree_broadcast(struct operation *op, const struct circle *circle,
                      int root, struct block whole)
{
    const int n = circle->count;
    const int me = (circle->me + n - root) % n; /* the root is 0 */
    int step = 1;

    while (step < n && me % (2 * step) == 0) step *= 2;
    if (me != 0)
        TRY(take(op, circle_rank(circle, (me - step + root) % n), whole,
                 false));
    for (step /= 2; step >= 1; step /= 2)
        if (me + step < n)
            TRY(give(op, circle_rank(circle, (me + step + root) % n), whole));
    return OK;
}

status tree_scatter(struct operation *op, const struct circle *circle,
                    int root, const struct cut *cut)
{
    const int n = circle->count;

    if (circle->me != root)
        return take(op, circle_rank(circle, root),
                    cut_blocks(cut, n, circle->me, circle->me + 1), false);
    for (int i = 0; i < n; i++)
        if (i != root)
            TRY(give(op, circle_rank(circle, i),
                     cut_blocks(cut, n, i, i + 1)));
    return OK;
}

status tree_collect(struct operation *op, const struct circle *circle,
                    const struct cut *cut)
{
    const int n = circle->count;

    if (circle->me != 0)
        return give(op, circle_rank(circle, 0),
                    cut_blocks(cut, n, circle->me, circle->me + 1));
    for (int i = 1; i < n; i++)
        TRY(take(op, circle_rank(circle, i), cut_blocks(cut, n, i, i + 1),
                 false));
    return OK;
}
