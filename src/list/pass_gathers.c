/* SPDX-License-Identifier: Apache-2.0 */
/* pass_gathers.c - divided weights: a unit is gathered some units ahead of its
 * first use, placed before it, and released after the last.
 *
 *   each  for every pass of every micro-batch (plan/residency.h says where)
 *   keep  once a step, into the flat arena; it is not released
 *   once  for all micro-batches of a phase of the stage (plan/phases.h); lists
 *         of F alone do so for every pass */
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
    int *last;                 /* owned, [chunks][F, B, W]: micro-batch of the
                                * last one */
};

static struct instruction of_unit(enum instruction_kind kind,
                                  const struct instruction *at, int unit,
                                  int item, int phase)
{
    struct instruction made = instruction_of(kind);

    made.stage = at->stage;
    made.chunk = at->chunk;
    made.microbatch = at->microbatch;
    made.round = at->round;
    made.unit = unit;
    made.item = item;
    made.other = phase;
    return made;
}

static int64_t gather_bytes(const struct pipeline *p,
                            const struct instruction *gather)
{
    const struct stage *stage = &p->stages[gather->chunk];

    return stage_gather_bytes(stage, gather->unit) *
           (list_group(p, gather).size - 1);
}

static int *last_of(const struct gathers *g, const struct instruction *at)
{
    const int pass = at->kind == DO_FORWARD    ? 0
                     : at->kind == DO_BACKWARD ? 1
                                               : 2;

    return &g->last[3 * at->chunk + pass];
}

/* How a stage gathers, in this F, B or W. */
struct policy {
    int phase;            /* -1: not once */
    bool holds;           /* a unit that is there is not gathered again */
    bool releases;        /* after the last use in this pass */
};

static struct policy policy_of(const struct gathers *g,
                               const struct instruction *at)
{
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const int phase = stage_phase(stage, at);

    return (struct policy){
        .phase = phase,
        .holds = !stage->request.divided.gather.reshard || phase >= 0,
        .releases = stage->request.divided.gather.reshard &&
                    (phase < 0 || g->forward ||
                     at->microbatch == *last_of(g, at))};
}

static status put_gather(struct gathers *g, const struct instruction *at,
                         int unit, const struct policy *policy, int item)
{
    struct instruction made = of_unit(DO_GATHER, at, unit,
                                      policy->holds ? -1 : item,
                                      policy->phase);

    if (list_group(g->pipeline, &made).size == 1) return OK; /* it is whole */
    made.calls = 1;
    made.bytes = gather_bytes(g->pipeline, &made);
    return list_put(g->out, made);
}

/* ---- around events ---- */

/* An event of a part of F, B or W that begins with event `from`. */
struct moment {
    struct cutter *cutter;
    int from, event;
    struct policy policy;
};

/* The gather of an item, if it begins now. */
static status begin_item(struct gathers *g, const struct moment *m, int index)
{
    const struct instruction *at = &m->cutter->whole;
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const struct residence *item = &stage->gathered.items[index];
    bool *resident = g->resident[at->chunk];

    if (item->begin != m->event || stage_idles(stage, item, g->forward) ||
        (m->policy.holds && resident[item->unit]))
        return OK;
    resident[item->unit] = true;
    TRY(cut_before(m->cutter, m->from));
    return put_gather(g, at, item->unit, &m->policy, index);
}

/* The unit of an item is used from now on. */
static status place_item(struct gathers *g, const struct moment *m, int index)
{
    const struct instruction *at = &m->cutter->whole;
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const struct residence *item = &stage->gathered.items[index];
    bool *placed = g->placed[at->chunk];

    if (item->first != m->event || stage_idles(stage, item, g->forward) ||
        (m->policy.holds && placed[item->unit]))
        return OK;
    placed[item->unit] = true;
    TRY(cut_before(m->cutter, m->from));
    return list_put(g->out, of_unit(DO_PLACE, at, item->unit,
                                    m->policy.holds ? -1 : index,
                                    m->policy.phase));
}

/* Gathers that begin, and units that are used first, at this event. Where bytes
 * in flight are limited, a unit has come before the next is asked for. */
static status before_event(struct gathers *g, struct cutter *cutter, int from,
                           int event)
{
    const struct stage *stage = &g->pipeline->stages[cutter->whole.chunk];
    const bool limited = stage->request.divided.gather.in_flight > 0;
    const struct moment m = {cutter, from, event,
                             policy_of(g, &cutter->whole)};

    for (int i = 0; i < stage->gathered.count; i++) {
        TRY(begin_item(g, &m, i));
        if (limited) TRY(place_item(g, &m, i));
    }
    for (int i = 0; i < stage->gathered.count && !limited; i++)
        TRY(place_item(g, &m, i));
    return OK;
}

/* Whether another item of the phase uses the unit after this one. */
static bool is_used_later(const struct gathers *g, const struct stage *stage,
                          int item)
{
    const struct residency *r = &stage->gathered;
    const bool forward = r->items[item].first < stage->frame.forward_end;
    const int end = forward && (g->forward || !stage->phases.merged)
                        ? stage->frame.forward_end : stage->frame.event_count;

    for (int i = item + 1; i < r->count; i++)
        if (r->items[i].unit == r->items[item].unit &&
            r->items[i].first < end &&
            !stage_idles(stage, &r->items[i], g->forward))
            return true;
    return false;
}

static status after_event(struct gathers *g, struct cutter *cutter, int end,
                          int event)
{
    const struct instruction *at = &cutter->whole;
    const struct stage *stage = &g->pipeline->stages[at->chunk];
    const struct residency *r = &stage->gathered;
    const struct policy policy = policy_of(g, at);

    for (int i = 0; i < r->count && policy.releases; i++) {
        const struct residence *item = &r->items[i];

        if (item->last != event || stage_idles(stage, item, g->forward) ||
            (policy.phase >= 0 && is_used_later(g, stage, i)))
            continue;
        TRY(cut_before(cutter, end));
        g->resident[at->chunk][item->unit] = false;
        g->placed[at->chunk][item->unit] = false;
        TRY(list_put(g->out, of_unit(DO_RELEASE, at, item->unit,
                                     policy.holds ? -1 : i, policy.phase)));
    }
    return OK;
}

/* Events that F does sub-batch by sub-batch go together. */
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
    TRY(memory_take((size_t)count, 3 * sizeof *g->last, &memory));
    g->last = memory;
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
    memory_free(g->last);
}

static status put_all(struct gathers *g, const struct step_list *before)
{
    for (int i = 0; i < before->count; i++)
        if (instruction_computes(&before->items[i]))
            *last_of(g, &before->items[i]) = before->items[i].microbatch;
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

bool pass_gathers_idle(const struct list_request *request)
{
    const struct pipeline *p = request->pipeline;

    for (int i = 0; i < p->count; i++)
        if (stage_gathers(&p->stages[i])) return false;
    return true;
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
