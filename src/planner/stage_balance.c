/* SPDX-License-Identifier: Apache-2.0 */
/* stage_balance.c - blocks of stages, so that no rank of a pipe has much more
 * work than the others. Work is counted in products of a mean block. */
#include "planner/stage_balance.h"

enum { HEAD_BLOCKS_MOST = 8 };

/* Work of the last stage beside its blocks: heads, modules for later tokens.
 * A head is not made again in a backward pass, blocks may be: one pass of
 * products more. */
static double end_work(const struct layout *l, const struct shape *s)
{
    const double heads = (double)s->width * (double)s->vocab *
                         (1 + s->mtp.depth);
    const double passes = shape_head_passes(s);
    const double rest = shape_flops_causal(s) / (2 * passes) - heads;
    const double block = rest / (s->layers + s->mtp.blocks);
    const double again =
        l->recompute == RECOMPUTE_BLOCK ? (passes + 1) / passes : 1;

    return s->mtp.blocks + heads / (block * again);
}

/* Work of the busiest rank; negative: a stage has too few blocks. The first
 * stage has the embedding, the last one the head: where the configuration names
 * blocks (mesh.layers), these may have none. */
static double busiest(const struct layout *l, const struct shape *s,
                      double end)
{
    const int last = l->pipe * l->chunks - 1;
    double most = 0;

    for (int position = 0; position < l->pipe; position++) {
        double work = 0;

        for (int chunk = 0; chunk < l->chunks; chunk++) {
            const int stage = layout_stage(l, chunk, position);
            const bool outer = stage == 0 || stage == last;
            const int blocks = layout_blocks(l, s, stage);

            if (blocks < (outer && l->head_blocks > 0 ? 0 : 1)) return -1;
            work += blocks + (stage == last ? end : 0);
        }
        if (work > most) most = work;
    }
    return most;
}

int stage_balance(const struct layout *layout, const struct shape *shape)
{
    const double saving = 0.99, end = end_work(layout, shape);
    struct layout l = *layout;
    double least = 1e300;
    int best = -1;

    if (l.pipe == 1) return 0;
    for (int k = 0; k <= HEAD_BLOCKS_MOST; k++) {
        double work;

        l.head_blocks = k;
        work = busiest(&l, shape, end);
        if (work < 0 || work >= (best < 0 ? 1 : saving) * least) continue;
        least = work;
        best = k;
    }
    return best;
}
