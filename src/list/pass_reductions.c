/* SPDX-License-Identifier: Apache-2.0 */
/* pass_reductions.c - from the gradients of micro-batches to their sums over
 * all ranks.
 *
 * Where gradients are divided, a unit has a room from the first write of B to
 * the end of its reduction, two units later. Where nothing else must come first
 * a unit's reduction starts as soon as the last micro-batch of the round has
 * filled it, and B goes on beside it; else at the end of the round. */
#include "list/passes.h"

#include "base/arena.h"
#include "plan/exchange.h"

struct reductions {
    struct step_list *out;
    const struct pipeline *pipeline;
    int *passes;     /* owned, [chunks]: B of the round so far */
    bool **started;  /* owned, [chunks][items]: of the round */
    bool **given;    /* owned, [chunks][items] */
    bool **busy;     /* owned, [chunks][events]: an item begins or ends */
};

static const struct stage *stage_at(const struct reductions *r, int chunk)
{
    return &r->pipeline->stages[chunk];
}

static bool divides(const struct reductions *r, int chunk)
{
    return stage_divides(stage_at(r, chunk), MEMORY_GRADIENTS);
}

/* An instruction of an item; -1: of the whole stage. */
static struct instruction made(const struct reductions *r,
                               enum instruction_kind kind, int chunk,
                               int round, int item)
{
    struct instruction i = instruction_of(kind);

    i.chunk = chunk;
    i.stage = (int16_t)r->pipeline->chunks[chunk].number;
    i.round = round;
    i.item = item;
    if (item >= 0) i.unit = stage_at(r, chunk)->reduced.items[item].unit;
    return i;
}

/* ---- one item ---- */

static status put_join(struct reductions *r, int chunk, int round, int item)
{
    const struct stage *stage = stage_at(r, chunk);
    const struct gradients *g = &stage->gradients;
    const struct use_range range =
        item >= 0 ? stage->reduced.items[item].joined : gradients_all(g);
    const int64_t elements = gradients_joined(g, range);
    struct instruction i = made(r, DO_JOIN, chunk, round, item);
    const struct list_group group = list_group(r->pipeline, &i);

    if (elements == 0) return OK;
    i.calls = 1;
    i.bytes = list_sum_bytes(elements, program_real(&stage->program), group);
    return list_put(r->out, i);
}

/* Subtrees of the grid that this rank has: it sends a root of each. */
static int64_t count_roots(const struct stage *stage)
{
    const int count = stage->gradients.roots.count;

    return count > 1 ? count : 1;
}

/* Bytes of a sum over copies for the roots but the first. Where others have
 * divided the unit before, it is one sum. */
static int64_t more_roots(const struct reductions *r, int chunk, int item,
                          int64_t own, struct list_group group)
{
    const struct stage *stage = stage_at(r, chunk);
    const struct instruction scatter = made(r, DO_REDUCE, chunk, 0, item);
    const int64_t block = own / group.size + (group.rank < own % group.size);

    if (list_group(r->pipeline, &scatter).size > 1) return 0;
    return (count_roots(stage) - 1) * (own - block) *
           dtype_bytes(program_sum(&stage->program));
}

/* Bytes of a sum over the parts of a shard of which each goes to its rank. */
static int64_t parted_bytes(const struct reductions *r, int chunk, int item,
                            int64_t own)
{
    const struct stage *stage = stage_at(r, chunk);
    const struct instruction scatter = made(r, DO_REDUCE, chunk, 0, item);
    const bool first = list_group(r->pipeline, &scatter).size == 1;
    const int64_t mine = shard_gradients(
        &stage->shards, stage->reduced.items[item].unit);

    return (first ? count_roots(stage) : 1) * (own - mine) *
           dtype_bytes(program_sum(&stage->program));
}

/* Over the ranks with copies of the shard, if this rank has any of it. */
static status put_sum(struct reductions *r, int chunk, int round, int item)
{
    const struct stage *stage = stage_at(r, chunk);
    const int unit = stage->reduced.items[item].unit;
    const int64_t own = shard_all_gradients(&stage->shards, unit);
    struct instruction i = made(r, DO_SUM, chunk, round, item);
    const struct list_group group = list_group(r->pipeline, &i);

    if (group.size == 1 || own == 0) return OK;
    i.calls = 1;
    i.bytes = shard_class(&stage->shards, unit)->parts > 1
                  ? parted_bytes(r, chunk, item, own)
                  : list_sum_bytes(own, program_sum(&stage->program), group) +
                        more_roots(r, chunk, item, own, group);
    return list_put(r->out, i);
}

static status start(struct reductions *r, int chunk, int round, int item)
{
    const struct stage *stage = stage_at(r, chunk);
    const struct residence *residence = &stage->reduced.items[item];
    struct instruction i = made(r, DO_REDUCE, chunk, round, item);

    r->started[chunk][item] = true;
    if (list_group(r->pipeline, &i).size == 1)
        return put_sum(r, chunk, round, item);
    i.calls = 1;
    i.bytes = exchange_scatter(stage, residence->unit);
    return list_put(r->out, i);
}

/* After the reduce-scatter. */
static status give(struct reductions *r, int chunk, int round, int item)
{
    const struct instruction i = made(r, DO_GIVE, chunk, round, item);
    const struct instruction reduce = made(r, DO_REDUCE, chunk, round, item);
    const bool scatters = list_group(r->pipeline, &reduce).size > 1;
    const bool last = divides(r, chunk) &&
                      shard_sums_room(&stage_at(r, chunk)->shards, i.unit);

    if (r->given[chunk][item]) return OK;
    r->given[chunk][item] = true;
    if (scatters && last) TRY(put_sum(r, chunk, round, item));
    if (divides(r, chunk) && (scatters || last)) TRY(list_put(r->out, i));
    return scatters && !last ? put_sum(r, chunk, round, item) : OK;
}

/* ---- B and W ---- */

/* Rooms that are free, and those that are taken, before an event. */
static status before_event(struct reductions *r, struct cutter *cutter,
                           int event)
{
    const int chunk = cutter->whole.chunk, round = cutter->whole.round;
    const struct residency *items = &stage_at(r, chunk)->reduced;

    if (!divides(r, chunk)) return OK;
    for (int i = 0; i < items->count; i++) {
        if (items->items[i].end != event) continue;
        TRY(cut_before(cutter, event));
        TRY(give(r, chunk, round, i));
    }
    for (int i = 0; i < items->count; i++) {
        if (items->items[i].first != event) continue;
        TRY(cut_before(cutter, event));
        TRY(list_put(r->out, made(r, DO_TAKE, chunk, round, i)));
    }
    return OK;
}

static status after_event(struct reductions *r, struct cutter *cutter,
                          int event)
{
    const int chunk = cutter->whole.chunk, round = cutter->whole.round;
    const struct residency *items = &stage_at(r, chunk)->reduced;

    for (int i = 0; i < items->count; i++) {
        if (items->items[i].last != event) continue;
        TRY(cut_before(cutter, event + 1));
        if (divides(r, chunk)) TRY(put_join(r, chunk, round, i));
        TRY(start(r, chunk, round, i));
    }
    return OK;
}

static status cut_compute(struct reductions *r,
                          const struct instruction *whole)
{
    const struct stage *stage = stage_at(r, whole->chunk);
    const struct program *p = &stage->program;
    const bool overlaps = stage_overlaps(r->pipeline, whole->chunk);
    struct cutter cutter = {r->out, *whole, false};

    if (whole->first_event == stage->frame.forward_end)
        r->passes[whole->chunk]++;
    if (r->passes[whole->chunk] < p->size.batch / p->size.sequences &&
        !divides(r, whole->chunk))
        return list_put(r->out, *whole);
    for (int e = whole->first_event; e < whole->last_event; e++) {
        if (!r->busy[whole->chunk][e]) continue;
        TRY(before_event(r, &cutter, e));
        if (overlaps) TRY(after_event(r, &cutter, e));
    }
    return cut_rest(&cutter);
}

/* ---- the end of a round ---- */

/* The roots of both halves of the leaves, on both ranks. */
static status put_halves(struct reductions *r, int chunk, int round)
{
    const struct program *p = &stage_at(r, chunk)->program;
    struct instruction i = made(r, DO_HALVES, chunk, round, -1);
    const struct list_group group = list_group(r->pipeline, &i);

    if (group.size == 1) return OK;
    i.calls = 1;
    i.bytes = list_sum_bytes(p->params.gradients, program_sum(p), group);
    for (int s = 0; s < p->use_count; s++) {
        const int more = gradient_more_roots(p, s);

        if (!gradient_made(p, s)) continue;
        i.calls += more;
        i.bytes += more * list_sum_bytes(
            p->params.items[p->uses[s].param].elements, program_sum(p),
            group);
    }
    return list_put(r->out, i);
}

/* Joins that did not come beside B. */
static status end_joins(struct reductions *r, int chunk, int round)
{
    const int count = stage_at(r, chunk)->reduced.count;

    if (!divides(r, chunk)) return put_join(r, chunk, round, -1);
    for (int i = 0; i < count; i++)
        if (!r->started[chunk][i]) TRY(put_join(r, chunk, round, i));
    return OK;
}

static status end_chunk(struct reductions *r, int chunk, int round)
{
    const int count = stage_at(r, chunk)->reduced.count;

    for (int i = 0; i < count; i++)
        if (!r->started[chunk][i]) TRY(start(r, chunk, round, i));
    for (int i = 0; i < count; i++) TRY(give(r, chunk, round, i));
    for (int i = 0; i < count; i++)
        r->started[chunk][i] = r->given[chunk][i] = false;
    r->passes[chunk] = 0;
    if (!divides(r, chunk)) return OK;
    return list_put(r->out, made(r, DO_MERGE, chunk, round, -1));
}

/* Stages on two ranks come in the order of their numbers, so that both ranks
 * come to them in one order. */
static status end_round(struct reductions *r, int round)
{
    const struct pipeline *p = r->pipeline;

    for (int i = 0; i < p->count; i++) {
        TRY(end_joins(r, i, round));
        TRY(list_put(r->out, made(r, DO_CLOSE, i, round, -1)));
    }
    for (int number = 0; number < p->schedule.stages; number++)
        for (int i = 0; i < p->count; i++)
            if (p->chunks[i].number == number) TRY(put_halves(r, i, round));
    for (int i = 0; i < p->count; i++) TRY(end_chunk(r, i, round));
    return OK;
}

/* Where rounds are piped, each chunk has its own: one ends when the next
 * begins, so that F of other micro-batches runs beside its last reductions. */
static status end_piped(struct reductions *r, int chunk, int round)
{
    if (round < 0) return OK;
    TRY(end_joins(r, chunk, round));
    TRY(list_put(r->out, made(r, DO_CLOSE, chunk, round, -1)));
    return end_chunk(r, chunk, round);
}

static status end_last(struct reductions *r, int round)
{
    const struct pipeline *p = r->pipeline;
    const int rounds = stage_rounds(&p->stages[0]);

    if (!p->stages[0].request.reduction.piped) return end_round(r, round);
    for (int i = 0; i < p->count; i++) TRY(end_piped(r, i, rounds - 1));
    return OK;
}

static status put_all(struct reductions *r, const struct step_list *before)
{
    const bool piped = r->pipeline->stages[0].request.reduction.piped;
    int round = 0;

    for (int i = 0; i < before->count; i++) {
        const struct instruction *at = &before->items[i];

        if (piped && at->kind == DO_ROUND)
            TRY(end_piped(r, at->chunk, at->round - 1));
        if (!piped && at->round > round) TRY(end_round(r, round++));
        if (at->kind == DO_BACKWARD || at->kind == DO_WEIGHT)
            TRY(cut_compute(r, at));
        else
            TRY(list_put(r->out, *at));
    }
    return end_last(r, round);
}

static void note_busy(struct reductions *r, int chunk)
{
    const struct stage *stage = stage_at(r, chunk);

    for (int i = 0; i < stage->reduced.count; i++) {
        const struct residence *item = &stage->reduced.items[i];

        r->busy[chunk][item->first] = r->busy[chunk][item->last] = true;
        if (item->end <= stage->frame.event_count)
            r->busy[chunk][item->end] = true;
    }
}

static status build(struct reductions *r)
{
    const int count = r->pipeline->count;
    void *memory = NULL;

    TRY(memory_take((size_t)count, sizeof *r->passes, &memory));
    r->passes = memory;
    TRY(memory_take((size_t)count, 3 * sizeof *r->started, &memory));
    r->started = memory;
    r->given = r->started + count;
    r->busy = r->given + count;
    for (int i = 0; i < 3 * count; i++) {
        const struct stage *stage = stage_at(r, i % count);
        const int flags = i < 2 * count ? stage->reduced.count
                                        : stage->frame.event_count;

        TRY(memory_take((size_t)flags + 1, sizeof(bool), &memory));
        r->started[i] = memory;
    }
    for (int i = 0; i < count; i++) note_busy(r, i);
    return OK;
}

status pass_reductions(struct step_list *out, const struct step_list *before,
                       const struct list_request *request)
{
    struct reductions r = {.out = out, .pipeline = request->pipeline};
    status result = OK;

    if (request->turns > 0) {
        for (int i = 0; i < before->count; i++)
            TRY(list_put(out, before->items[i]));
        return OK;
    }
    result = build(&r);
    if (result == OK) result = put_all(&r, before);
    for (int i = 0; r.started != NULL && i < 3 * r.pipeline->count; i++)
        memory_free(r.started[i]);
    memory_free(r.started);
    memory_free(r.passes);
    return result;
}
