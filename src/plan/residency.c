/* SPDX-License-Identifier: Apache-2.0 */
/* residency.c - when gathered weights and unreduced gradients are in memory,
 * and where. */
#include "plan/residency.h"

#include "nn/buffer_offsets.h"

/* Whether the event computes a loss: in training its F does nothing. */
static bool is_loss(const struct program *program, const struct event *event)
{
    const struct step *step = &program->steps[event->step];

    return step->output < 0 && step->param[0] >= 0;
}

bool residency_is_idle(const struct residence *item,
                       const struct program *program,
                       const struct frame_plan *frame)
{
    return item->first < frame->forward_end &&
           is_loss(program, &frame->events[item->first]) &&
           is_loss(program, &frame->events[item->last]);
}

static status add_item(struct residency *r, struct residence item)
{
    void *items = r->items;

    TRY(memory_next(&items, &r->capacity, r->count, 64, sizeof *r->items));
    r->items = items;
    r->items[r->count++] = item;
    return OK;
}

void residency_free(struct residency *residency)
{
    memory_free(residency->items);
    *residency = (struct residency){0};
}

/* ---- rooms ---- */

static int64_t size_of(const struct shards *shards,
                       const struct residence *item, bool gradients)
{
    const struct shard_unit *unit = &shards->units[item->unit];

    if (gradients)
        return shard_gradient_stays(shards, item->unit) ? 0 : unit->gradients;
    return shard_stays(shards, item->unit) ? 0 : unit->room;
}

/* The largest first, each as low as it can be. */
static status place_all(struct residency *r, const struct shards *shards,
                        int events)
{
    struct placed_buffer *rooms = NULL;
    void *memory = NULL;
    status result;

    TRY(memory_take((size_t)r->count + 1, sizeof *rooms, &memory));
    rooms = memory;
    for (int i = 0; i < r->count; i++)
        rooms[i] = (struct placed_buffer){
            size_of(shards, &r->items[i], r->gradients), r->items[i].begin,
            r->items[i].end - 1, 0};
    result = buffers_place(rooms, r->count, events, &r->elements);
    for (int i = 0; i < r->count; i++) r->items[i].offset = rooms[i].offset;
    memory_free(memory);
    return result;
}

/* ---- weights ---- */

/* Products and norms read their weights in F and B; the loss in W too, where
 * it makes its logits again. */
static bool reads_weights(const struct program *program,
                          const struct event *event)
{
    if (event->pass == PASS_BACKWARD_WEIGHT)
        return is_loss(program, event) ||
               program_reads_in_w(program, &program->steps[event->step]);
    return event->pass != PASS_BACKWARD_INPUT ||
           program->steps[event->step].layer->backward_input != NULL;
}

/* Items of events [from, to): one for each unit as long as it is in use. */
static status add_pass(struct residency *r, const struct program *program,
                       const struct frame_plan *frame,
                       const struct shards *shards, int from, int to)
{
    const int before = r->count;

    for (int e = from; e < to; e++) {
        const struct event *event = &frame->events[e];
        const struct step *step = &program->steps[event->step];

        for (int j = 0; j < step_uses(step); j++) {
            const int param = step_use(step, j).param;

            if (param < 0 || !reads_weights(program, event)) continue;
            const int unit = shard_unit_of(shards, param);

            if (r->count == before || r->items[r->count - 1].unit != unit)
                TRY(add_item(r, (struct residence){.unit = unit,
                                                   .use = -1, .first = e}));
            r->items[r->count - 1].last = e;
            r->items[r->count - 1].end = e + 1;
        }
    }
    return OK;
}

/* Elements under way when item `i` begins with the first use of the item
 * `depth` before it, which is waited for only then. */
static int64_t under_way(const struct residency *r,
                         const struct shards *shards, int i, int depth)
{
    int64_t elements = 0;

    for (int j = i - depth; j <= i; j++)
        elements += size_of(shards, &r->items[j], false);
    return elements;
}

/* A unit that is used again soon is not gathered before its room of the use
 * before is free, and items begin in their order. */
static void wait_for_same(struct residency *r, int before, int i)
{
    struct residence *item = &r->items[i];

    if (i > before && item->begin < r->items[i - 1].begin)
        item->begin = r->items[i - 1].begin;
    for (int j = before; j < i; j++)
        if (r->items[j].unit == item->unit && item->begin < r->items[j].end)
            item->begin = r->items[j].end;
}

/* The first of the pass begin with it. */
static void begin_early(struct residency *r, const struct shards *shards,
                        int before, int from, struct ahead ahead)
{
    for (int i = before; i < r->count; i++) {
        const int most = i - before;
        int depth = most < ahead.units ? most : ahead.units;

        while (depth > 0 && ahead.limit > 0 &&
               under_way(r, shards, i, depth) > ahead.limit)
            depth--;
        r->items[i].begin = depth == most && most < ahead.units
                                ? from : r->items[i - depth].first;
        wait_for_same(r, before, i);
    }
}

/* Events of a segment run once for each sub-batch (frame.h): a room that any of
 * them needs is taken before the first and free after the last of them. */
static status widen_residences(struct residency *r,
                               const struct program *program,
                               const struct frame_plan *frame)
{
    struct segment *segments = NULL;

    if (!program->layout.overlap.domino) return OK;
    TRY(frame_segments(program, frame, &segments));
    for (int i = 0; i < r->count; i++) {
        struct residence *item = &r->items[i];

        if (item->begin < frame->forward_end)
            item->begin = segments[item->begin].first;
        if (item->end < frame->forward_end &&
            item->end > segments[item->end].first)
            item->end = segments[item->end].end;
    }
    memory_free(segments);
    return OK;
}

status residency_weights(struct residency *residency,
                         const struct program *program,
                         const struct frame_plan *frame,
                         const struct shards *shards, struct ahead ahead)
{
    const int ends[] = {0, frame->forward_end, frame->backward_end,
                        frame->event_count};

    residency_free(residency);
    for (int pass = 0; pass < 3; pass++) {
        const int before = residency->count;

        TRY(add_pass(residency, program, frame, shards, ends[pass],
                     ends[pass + 1]));
        begin_early(residency, shards, before, ends[pass], ahead);
    }
    TRY(widen_residences(residency, program, frame));
    return place_all(residency, shards, frame->event_count);
}

/* ---- gradients ---- */

/* Numbers of items, -1: none yet. */
struct item_index {
    int *unit;   /* owned, [units]: the unit's own */
    int *second; /* owned, [uses]: of second uses */
};

static status index_take(struct item_index *index, int units, int uses)
{
    void *memory = NULL;

    TRY(memory_take((size_t)(units + uses) + 1, sizeof(int), &memory));
    index->unit = memory;
    index->second = index->unit + units;
    for (int i = 0; i < units + uses; i++) index->unit[i] = -1;
    return OK;
}

static int *item_of(const struct item_index *index,
                    const struct program *program,
                    const struct shards *shards, int use)
{
    const struct use_info *info = &program->uses[use];

    return info->number > 0 ? &index->second[use]
                         : &index->unit[shard_unit_of(shards, info->param)];
}

static status touch(struct residency *r, const struct program *program,
                    const struct shards *shards, int use, int event,
                    const struct item_index *index)
{
    const struct use_info *info = &program->uses[use];
    int *item = item_of(index, program, shards, use);

    if (info->rows > 0) return OK; /* no part of a unit */
    if (!gradient_made(program, use)) return OK;
    if (*item >= 0) {
        r->items[*item].last = event;
        return OK;
    }
    *item = r->count;
    return add_item(r, (struct residence){
        .unit = shard_unit_of(shards, info->param),
        .use = info->number > 0 ? use : -1,
        .begin = event, .first = event, .last = event});
}

static void find_joined(struct residency *r, const struct program *program,
                        const struct shards *shards,
                        const struct item_index *index)
{
    int before = -1; /* item of the use before */

    for (int i = 0; i < program->use_count; i++) {
        if (!program->uses[i].local) continue;
        const int item = *item_of(index, program, shards, i);

        if (item < 0) continue;
        struct use_range *range = &r->items[item].joined;

        /* Layers come in the order of the units, so nobody else's lie
         * between. */
        CHECK(range->end == 0 || item == before);
        if (range->end == 0) range->first = i;
        range->end = i + 1;
        before = item;
    }
}

/* The reduction of an item is waited for when the second one after it, or the
 * first that starts after it is complete, takes its room. */
static void end_reductions(struct residency *r, int end)
{
    for (int i = 0; i < r->count; i++) {
        int next = i + 2, end_next = r->count; /* it is in [next, end_next] */

        while (next < end_next) { /* first events ascend */
            const int middle = next + (end_next - next) / 2;

            if (r->items[middle].first <= r->items[i].last) next = middle + 1;
            else end_next = middle;
        }
        r->items[i].end = next < r->count ? r->items[next].first : end;
    }
}

/* Reductions begin at the end of the round only. */
static void keep_all(struct residency *r, int end)
{
    for (int i = 0; i < r->count; i++) r->items[i].end = end;
}

static status touch_all(struct residency *residency,
                        const struct program *program,
                        const struct frame_plan *frame,
                        const struct shards *shards,
                        const struct item_index *index)
{
    for (int e = frame->forward_end; e < frame->event_count; e++) {
        const struct event *event = &frame->events[e];
        const struct step *step = &program->steps[event->step];

        if (event->pass != PASS_BACKWARD_INPUT &&
            event->pass != PASS_BACKWARD_WEIGHT)
            continue;
        for (int j = 0; j < step_uses(step); j++)
            if (step_use(step, j).use >= 0)
                TRY(touch(residency, program, shards,
                          step_use(step, j).use, e, index));
    }
    return OK;
}

status residency_gradients(struct residency *residency,
                           const struct program *program,
                           const struct frame_plan *frame,
                           const struct shards *shards, bool beside)
{
    struct item_index index = {0};
    status result;

    residency_free(residency);
    residency->gradients = true;
    TRY(index_take(&index, shards->count, program->use_count));
    result = touch_all(residency, program, frame, shards, &index);
    if (result == OK) find_joined(residency, program, shards, &index);
    memory_free(index.unit);
    TRY(result);
    if (beside) end_reductions(residency, frame->event_count);
    else keep_all(residency, frame->event_count);
    return place_all(residency, shards, frame->event_count);
}
