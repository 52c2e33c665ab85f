/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_slab.c - turns a sum_order into steps for tiles. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/scratch.h"

void CPU(matmul_cursor_init)(struct matmul_cursor *cursor,
                             const struct matmul_format *format, int words,
                             const struct sum_order *order, bool continues)
{
    cursor->order = order;
    cursor->format = format;
    cursor->words = words;
    cursor->segment = cursor->done = 0;
    cursor->begin = cursor->leaf = 0;
    cursor->end = order->segment_count;
    cursor->slots = continues ? 1 : 0;
    cursor->node[0] = 0;
    cursor->unfinished = continues;
}

void CPU(matmul_cursor_leaves)(struct matmul_cursor *cursor, int first,
                               int count)
{
    const struct sum_order *order = cursor->order;
    int64_t at = 0;

    while (at < order->segment_count && order->segments[at].leaf < first) at++;
    cursor->begin = cursor->segment = at;
    while (at < order->segment_count &&
           order->segments[at].leaf < first + count)
        at++;
    cursor->end = at;
    cursor->leaf = first;
}

/* After the last granule of leaf `leaf`: how often the stack carries. Nodes
 * that end before the next leaf merge with the one to their left, which is
 * missing where no segment has leaves of it. */
static int leaf_merges(struct matmul_cursor *cursor, int leaf)
{
    const struct sum_segment *next = &cursor->order->segments[cursor->segment];
    int merges = 0;

    if (cursor->segment == cursor->end) {
        merges = cursor->slots - 1;
        cursor->slots = 1;
        return merges;
    }
    for (int level = 0;
         leaf >> level != (next->leaf - cursor->leaf) >> level; level++) {
        if (!(leaf >> level & 1) || cursor->slots < 2 ||
            cursor->node[cursor->slots - 2] >> level != (leaf >> level) - 1)
            continue;
        cursor->slots--;
        merges++;
    }
    return merges;
}

static void step_next(struct matmul_cursor *cursor, struct matmul_step *step)
{
    const struct sum_segment *segment =
        &cursor->order->segments[cursor->segment];

    step->first = segment->first + cursor->done;
    step->assign = !cursor->unfinished;
    if (step->assign)
        cursor->node[cursor->slots++] = segment->leaf - cursor->leaf;
    step->slot = cursor->slots - 1;
    step->merges = 0;
    cursor->unfinished = true;
    cursor->done += step->length;
    if (cursor->done < segment->length) return;
    cursor->segment++;
    cursor->done = 0;
    if (cursor->segment == cursor->end ||
        segment[1].leaf != segment->leaf) {
        cursor->unfinished = false;
        step->merges = leaf_merges(cursor, segment->leaf - cursor->leaf);
    }
}

bool CPU(matmul_slab_next)(struct matmul_cursor *cursor,
                           struct matmul_slab *out)
{
    const struct sum_order *order = cursor->order;
    const int grain = cursor->format->grain;

    out->count = out->words = 0;
    out->slots_before = cursor->slots;
    out->first = cursor->segment == cursor->begin && cursor->done == 0;
    while (out->count < SLAB_STEPS &&
           cursor->segment < cursor->end) {
        struct matmul_step *step = &out->steps[out->count];
        int64_t left = order->segments[cursor->segment].length - cursor->done;

        step->length = left < GRANULE ? (int)left : GRANULE;
        step->words = (step->length + grain - 1) / grain * grain /
                      cursor->format->per_word;
        if (out->words + step->words > cursor->words) break;
        step->offset = out->words;
        step_next(cursor, step);
        out->words += step->words;
        out->count++;
    }
    out->slots_after = cursor->slots;
    out->last = cursor->segment == cursor->end;
    return out->count > 0;
}
