/* SPDX-License-Identifier: Apache-2.0 */
/* pass_gathers.c - divided weights: a unit is gathered some units ahead of its
 * first use, placed before it, and released after the last.
 *
 *   each  for every pass of every micro-batch (plan/residency.h says where)
 *   keep  once a step, into the flat arena; it is not released */
#include "list/passes.h"

#include "base/arena.h"

struct gathers {
    struct step_list *out;
    const struct pipeline *pipeline;
    bool forward;
    bool **resident, **placed; /* owned, [chunks][units]: kept */
    bool **busy;               /* owned, [chunks][events]: a unit comes, is
                                * used first, or goes */
    struct segment **segments; /* owned, [chunks][events of F] */
};

static struct instruction of_unit(enum instruction_kind kind,
                                  const struct instruction *at, int unit,
                                  int item)
{
    struct instruction made = instruction_of(kind);

    made.stage = at->stage;
    made.chunk = at->chunk;
    made.microbatch = at->microbatch;
    made.round = at->round;
    made.unit = unit;
    made.item = item;
    return made;
}

static int64_t gather_bytes(const struct pipeline *p,
                            const struct instruction *gather)
{
    const struct stage *stage = &p->stages[gather->chunk];

    return shard_weights(&stage->shards, gather->unit) *
           dtype_bytes(stage->program.dtype) *
           (list_group(p, gather).size - 1);
}

static status put_gather(struct gathers *g, const struct instruction *at,
                         int unit, int item)
{
    struct instruction made = of_unit(DO_GATHER, at, unit, item);

    if (list_group(g->pipeline, &made).size == 1) return OK; /* it is whole */
    made.calls = 1;
    made.bytes = gather_bytes(g->pipeline, &made);
    return list_put(g->out, made);
}

/* ---- around events ---- */

/* Gathers that begin, and units that are used first, at this event. */
static status before_event(struct gathers *g, struct cutter *cutter, int from,
                           int event)
{
    const struct instruction *at = &cutter->whole;
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const struct residency *r = &stage->gathered;
    const bool kept = !stage->request.reshard;
    bool *resident = g->resident[at->chunk], *placed = g->placed[at->chunk];

    for (int i = 0; i < r->count; i++) {
        const struct residence *item = &r->items[i];

        if (item->begin != event || stage_idles(stage, item, g->forward) ||
            (kept && resident[item->unit]))
            continue;
        resident[item->unit] = true;
        TRY(cut_before(cutter, from));
        TRY(put_gather(g, at, item->unit, kept ? -1 : i));
    }
    for (int i = 0; i < r->count; i++) {
        const struct residence *item = &r->items[i];

        if (item->first != event || stage_idles(stage, item, g->forward) ||
            (kept && placed[item->unit]))
            continue;
        placed[item->unit] = true;
        TRY(cut_before(cutter, from));
        TRY(list_put(g->out, of_unit(DO_PLACE, at, item->unit,
                                     kept ? -1 : i)));
    }
    return OK;
}

static status after_event(struct gathers *g, struct cutter *cutter, int end,
                          int event)
{
    const struct instruction *at = &cutter->whole;
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const struct residency *r = &stage->gathered;

    for (int i = 0; i < r->count; i++) {
        const struct residence *item = &r->items[i];

        if (!stage->request.reshard || item->last != event ||
            stage_idles(stage, item, g->forward))
            continue;
        TRY(cut_before(cutter, end));
        TRY(list_put(g->out, of_unit(DO_RELEASE, at, item->unit, i)));
    }
    return OK;
}

/* Events that F does piece by piece go together. */
static status cut_compute(struct gathers *g, const struct instruction *whole)
{
    const struct frame_plan *frame = &g->pipeline->stages[whole->chunk].frame;
    const struct segment *segments = g->segments[whole->chunk];
    const bool *busy = g->busy[whole->chunk];
    struct cutter cutter = {g->out, *whole, false};

    for (int i = whole->first_event, end; i < whole->last_event; i = end) {
        end = i < frame->forward_end && segments[i].end > i + 1
                  ? segments[i].end : i + 1;
        for (int e = i; e < end; e++)
            if (busy[e]) TRY(before_event(g, &cutter, i, e));
        for (int e = i; e < end; e++)
            if (busy[e]) TRY(after_event(g, &cutter, end, e));
    }
    return cut_rest(&cutter);
}

/* ---- the list ---- */

static status take_flags(int count, bool **out)
{
    void *memory = NULL;

    TRY(memory_take((size_t)count + 1, sizeof **out, &memory));
    *out = memory;
    return OK;
}

static status build_chunk(struct gathers *g, int chunk)
{
    const struct stage *stage = &g->pipeline->stages[chunk];
    const struct residency *r = &stage->gathered;

    TRY(take_flags(stage->shards.count, &g->resident[chunk]));
    TRY(take_flags(stage->shards.count, &g->placed[chunk]));
    TRY(take_flags(stage->frame.event_count, &g->busy[chunk]));
    for (int i = 0; i < r->count; i++)
        g->busy[chunk][r->items[i].begin] =
            g->busy[chunk][r->items[i].first] =
                g->busy[chunk][r->items[i].last] = true;
    return frame_segments(&stage->program, &stage->frame,
                          &g->segments[chunk]);
}

static status build(struct gathers *g)
{
    const int count = g->pipeline->count;
    void *memory = NULL;

    TRY(memory_take((size_t)count, 3 * sizeof *g->busy, &memory));
    g->resident = memory;
    g->placed = g->resident + count;
    g->busy = g->placed + count;
    TRY(memory_take((size_t)count, sizeof *g->segments, &memory));
    g->segments = memory;
    for (int i = 0; i < count; i++) TRY(build_chunk(g, i));
    return OK;
}

static void free_all(struct gathers *g)
{
    for (int i = 0; g->resident != NULL && i < 3 * g->pipeline->count; i++)
        memory_free(g->resident[i]);
    for (int i = 0; g->segments != NULL && i < g->pipeline->count; i++)
        memory_free(g->segments[i]);
    memory_free(g->resident);
    memory_free(g->segments);
}

static status put_all(struct gathers *g, const struct step_list *before)
{
    for (int i = 0; i < before->count; i++) {
        const struct instruction *at = &before->items[i];

        if (instruction_computes(at) &&
            stage_gathers(&g->pipeline->stages[at->chunk]))
            TRY(cut_compute(g, at));
        else
            TRY(list_put(g->out, *at));
    }
    return OK;
}

status pass_gathers(struct step_list *out, const struct step_list *before,
                    const struct list_request *request)
{
    struct gathers g = {.out = out, .pipeline = request->pipeline,
                        .forward = request->turns > 0};
    status result = build(&g);

    if (result == OK) result = put_all(&g, before);
    free_all(&g);
    return result;
}
