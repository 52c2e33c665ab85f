/* SPDX-License-Identifier: Apache-2.0 */
/* residency.c - when gathered weights and unreduced gradients are in memory,
 * and where. */
#include "plan/residency.h"

#include <stdlib.h>

bool residency_is_loss(const struct program *program,
                       const struct event *event)
{
    const struct step *step = &program->steps[event->step];

    return step->output < 0 && step->param[0] >= 0;
}

static status add_item(struct residency *r, struct residence item)
{
    if (r->count == r->capacity) {
        const int capacity = r->capacity ? 2 * r->capacity : 64;
        void *items = r->items;

        TRY(memory_grow(&items, (size_t)capacity, sizeof *r->items));
        r->items = items;
        r->capacity = capacity;
    }
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

    return gradients ? unit->gradients : unit->elements;
}

static bool overlap(const struct residence *a, const struct residence *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* The lowest offset that no placed item alive at the same time covers. */
static void place_item(struct residency *r, const struct shards *shards,
                       const bool *placed, int which)
{
    struct residence *item = &r->items[which];
    const int64_t size = size_of(shards, item, r->gradients);
    bool moved = true;

    item->offset = 0;
    while (moved) {
        moved = false;
        for (int i = 0; i < r->count; i++) {
            const struct residence *other = &r->items[i];
            const int64_t end =
                other->offset + size_of(shards, other, r->gradients);

            if (!placed[i] || !overlap(item, other) ||
                item->offset >= end || other->offset >= item->offset + size)
                continue;
            item->offset = end;
            moved = true;
        }
    }
    if (item->offset + size > r->elements) r->elements = item->offset + size;
}

/* The largest first. */
static status place_all(struct residency *r, const struct shards *shards)
{
    void *memory = NULL;
    bool *placed;

    TRY(memory_take((size_t)r->count + 1, sizeof *placed, &memory));
    placed = memory;
    for (int i = 0; i < r->count; i++) placed[i] = false;
    for (int n = 0; n < r->count; n++) {
        int best = -1;

        for (int i = 0; i < r->count; i++)
            if (!placed[i] &&
                (best < 0 || size_of(shards, &r->items[i], r->gradients) >
                     size_of(shards, &r->items[best], r->gradients)))
                best = i;
        place_item(r, shards, placed, best);
        placed[best] = true;
    }
    memory_free(memory);
    return OK;
}

/* ---- weights ---- */

/* Products and norms read their weights in F and B; the loss in W too, where
 * it makes its logits again. */
static bool reads_weights(const struct program *program,
                          const struct event *event)
{
    if (event->pass == PASS_BACKWARD_WEIGHT)
        return residency_is_loss(program, event);
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

        for (int j = 0; j < STEP_PARAMS_MAX; j++) {
            if (step->param[j] < 0 || !reads_weights(program, event)) continue;
            const int unit = shard_unit_of(shards, step->param[j]);

            if (r->count == before || r->items[r->count - 1].unit != unit)
                TRY(add_item(r, (struct residence){.unit = unit,
                                                   .stream = -1, .first = e}));
            r->items[r->count - 1].last = e;
            r->items[r->count - 1].end = e + 1;
        }
    }
    return OK;
}

static void begin_early(struct residency *r, int before, int from,
                        int prefetch)
{
    for (int i = before; i < r->count; i++)
        r->items[i].begin =
            i - prefetch < before ? from : r->items[i - prefetch].first;
}

/* Events of a segment run once for each piece (frame.h): a room that any of
 * them needs is taken before the first and free after the last of them. */
static void widen_residences(struct residency *r,
                             const struct program *program,
                             const struct frame_plan *frame)
{
    for (int first = 0; first < frame->forward_end;) {
        const int end = frame_segment(program, frame, first);

        for (int i = 0; i < r->count; i++) {
            struct residence *item = &r->items[i];

            if (item->begin > first && item->begin < end) item->begin = first;
            if (item->end > first && item->end < end) item->end = end;
        }
        first = end > first ? end : first + 1;
    }
}

status residency_weights(struct residency *residency,
                         const struct program *program,
                         const struct frame_plan *frame,
                         const struct shards *shards, int prefetch)
{
    const int ends[] = {0, frame->forward_end, frame->backward_end,
                        frame->event_count};

    residency_free(residency);
    for (int pass = 0; pass < 3; pass++) {
        const int before = residency->count;

        TRY(add_pass(residency, program, frame, shards, ends[pass],
                     ends[pass + 1]));
        begin_early(residency, before, ends[pass], prefetch);
    }
    widen_residences(residency, program, frame);
    return place_all(residency, shards);
}

/* ---- gradients ---- */

static status touch(struct residency *r, const struct program *program,
                    const struct shards *shards, int stream, int event)
{
    const struct stream_info *info = &program->streams[stream];
    const int unit = shard_unit_of(shards, info->param);
    const int second = info->use > 0 ? stream : -1;

    if (info->rows > 0) return OK; /* no part of a unit */
    if (!gradient_made(program, stream)) return OK;
    for (int i = 0; i < r->count; i++) {
        if (r->items[i].unit != unit || r->items[i].stream != second) continue;
        r->items[i].last = event;
        return OK;
    }
    return add_item(r, (struct residence){.unit = unit, .stream = second,
                                          .begin = event, .first = event,
                                          .last = event});
}

static bool is_of(const struct residence *item, const struct program *program,
                  const struct shards *shards, int stream)
{
    const struct stream_info *info = &program->streams[stream];

    if (item->stream >= 0) return stream == item->stream;
    return info->use == 0 &&
           shard_unit_of(shards, info->param) == item->unit;
}

struct stream_range residency_joined(const struct residence *item,
                                     const struct program *program,
                                     const struct shards *shards)
{
    struct stream_range range = {0, 0};

    for (int i = 0; i < program->stream_count; i++) {
        if (!program->streams[i].local ||
            !is_of(item, program, shards, i))
            continue;
        if (range.end == 0) range.first = i;
        range.end = i + 1;
    }
    /* Layers come in the order of the units, so nobody else's lie between. */
    for (int i = range.first; i < range.end; i++)
        CHECK(!program->streams[i].local || is_of(item, program, shards, i));
    return range;
}

/* The reduction of an item is waited for when the second one after it, or the
 * first that starts after it is complete, takes its room. */
static void end_reductions(struct residency *r, int end)
{
    for (int i = 0; i < r->count; i++) {
        int next = i + 2;

        while (next < r->count && r->items[next].first <= r->items[i].last)
            next++;
        r->items[i].end = next < r->count ? r->items[next].first : end;
    }
}

status residency_gradients(struct residency *residency,
                           const struct program *program,
                           const struct frame_plan *frame,
                           const struct shards *shards)
{
    residency_free(residency);
    residency->gradients = true;
    for (int e = frame->forward_end; e < frame->event_count; e++) {
        const struct event *event = &frame->events[e];
        const struct step *step = &program->steps[event->step];

        if (event->pass != PASS_BACKWARD_INPUT &&
            event->pass != PASS_BACKWARD_WEIGHT)
            continue;
        for (int j = 0; j < STEP_PARAMS_MAX; j++)
            if (step->stream[j] >= 0)
                TRY(touch(residency, program, shards, step->stream[j], e));
    }
    end_reductions(residency, frame->event_count);
    return place_all(residency, shards);
}
