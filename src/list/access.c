/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - the memory that an instruction reads and writes. */
#include "list/access.h"

#include "list/passes.h"

struct visitor {
    const struct pipeline *pipeline;
    const struct stage *stage;
    const struct instruction *at;
    bool forward;
    uint32_t spaces;         /* bits of those that are asked for */
    access_visit *visit;
    void *argument;
};

static bool asks(const struct visitor *v, enum space space)
{
    return v->spaces >> space & 1;
}

static status call(const struct visitor *v, struct access access)
{
    return asks(v, access.space) ? v->visit(v->argument, &access) : OK;
}

/* Tags of micro-batches, of units, of items count from 1. */
static int64_t tag(const struct visitor *v)
{
    return (int64_t)v->at->microbatch + 1;
}

/* ---- frames ---- */

static struct access of_frame(const struct visitor *v, enum space space)
{
    return (struct access){.space = space, .chunk = v->at->chunk,
                           .first = v->at->buffer, .end = v->at->buffer + 1,
                           .expects = TAG_ANY, .leaves = TAG_ANY};
}

static status reads(const struct visitor *v, enum space space)
{
    struct access access;

    if (!asks(v, space)) return OK;
    access = of_frame(v, space);
    access.expects = tag(v);
    return call(v, access);
}

static status writes(const struct visitor *v, enum space space,
                     int64_t expects, int64_t leaves)
{
    struct access access;

    if (!asks(v, space)) return OK;
    access = of_frame(v, space);
    access.writes = true;
    access.expects = expects;
    access.leaves = leaves;
    return call(v, access);
}

/* The other side of a copy: a frame of the stage before. */
static struct access of_other(const struct visitor *v, enum space space)
{
    const struct pipeline *p = v->pipeline;
    const int m = v->forward ? 0
                             : v->at->microbatch % p->schedule.microbatches;

    return (struct access){.space = space,
                           .chunk = pipeline_chunk(p, v->at->stage - 1, m),
                           .first = v->at->other, .end = v->at->other + 1,
                           .expects = TAG_ANY, .leaves = TAG_ANY};
}

/* ---- rooms ---- */

/* Stages whose weights are gathered once share the room of the first. */
static struct access room(const struct visitor *v, int unit, int item,
                          int phase)
{
    const struct shard_unit *u = &v->stage->shards.units[unit];
    const int64_t first =
        item >= 0    ? v->stage->gathered.items[item].offset
        : phase >= 0 ? v->stage->phases.at[phase] + u->room_at
                     : u->room_at;

    return (struct access){.space = SPACE_ROOM,
                           .chunk = phase >= 0 ? 0 : v->at->chunk,
                           .first = first, .end = first + u->room,
                           .expects = TAG_ANY, .leaves = TAG_ANY};
}

/* Units of all stages of the rank have different tags. */
static int64_t unit_tag(const struct visitor *v, int unit)
{
    return (int64_t)unit * v->pipeline->count + v->at->chunk + 1;
}

static struct access bucket(const struct visitor *v, int item)
{
    const struct residence *r = &v->stage->reduced.items[item];

    return (struct access){
        .space = SPACE_BUCKET, .chunk = v->at->chunk, .first = r->offset,
        .end = r->offset + v->stage->shards.units[r->unit].gradients,
        .expects = item + 1, .leaves = TAG_ANY};
}

static bool in_buckets(const struct visitor *v)
{
    return stage_divides(v->stage, MEMORY_GRADIENTS);
}

/* A unit that is not divided while others are has no room beside its sum. */
static bool has_room(const struct visitor *v, int item)
{
    return in_buckets(v) &&
           !shard_gradient_stays(&v->stage->shards,
                                 v->stage->reduced.items[item].unit);
}

/* Levels of sums of rounds that wait for each other, before round `round`. */
static int level(const struct visitor *v, int round)
{
    int level = 0;

    if (v->stage->program.sums.integer) return round > 0;

    for (; round > 0; round &= round - 1) level++;
    return level;
}

/* Whether the shard of a unit is summed in its room, over copies, before its
 * parts are kept. */
static bool sums_room(const struct visitor *v, int item)
{
    return in_buckets(v) &&
           shard_sums_room(&v->stage->shards,
                           v->stage->reduced.items[item].unit);
}

/* Items [first, end) of the sums; of divided ones, at the round's level. */
static struct access sums(const struct visitor *v, int first, int end)
{
    const int64_t at = in_buckets(v) ? (int64_t)level(v, v->at->round) *
                                           v->stage->reduced.count : 0;

    return (struct access){.space = SPACE_GRADIENTS, .chunk = v->at->chunk,
                           .first = at + first, .end = at + end,
                           .writes = true, .expects = TAG_ANY,
                           .leaves = TAG_ANY};
}

/* Whether an item is sent over the group of a resource. */
static bool is_sent(const struct visitor *v, int item, enum resource resource)
{
    struct instruction i = *v->at;

    i.resource = (uint8_t)resource;
    i.unit = v->stage->reduced.items[item].unit;
    return list_group(v->pipeline, &i).size > 1;
}

/* The tag of a room in which a unit's shard was summed. */
static int64_t scattered_tag(const struct visitor *v, int item)
{
    return item + 1 +
           (is_sent(v, item, RESOURCE_SHARD) ? v->stage->reduced.count : 0);
}

/* The tag of an item's sum over all ranks. */
static int64_t complete(const struct visitor *v, int item)
{
    const int unit = v->stage->reduced.items[item].unit;

    if (is_sent(v, item, RESOURCE_COPIES) &&
        shard_all_gradients(&v->stage->shards, unit) > 0)
        return TAG_SUMMED;
    if (sums_room(v, item)) return TAG_NONE; /* a shard of nothing */
    return is_sent(v, item, RESOURCE_SHARD) ? TAG_REDUCED : TAG_OPEN;
}

/* All sums of the stage, complete. */
static status all_sums(const struct visitor *v)
{
    for (int i = 0;
         i < v->stage->reduced.count && asks(v, SPACE_GRADIENTS); i++) {
        struct access access = sums(v, i, i + 1);

        access.expects = complete(v, i);
        TRY(call(v, access));
    }
    return OK;
}

/* After the last round, divided sums lie at level 0. */
static status final_sums(const struct visitor *v)
{
    struct instruction at = *v->at;
    struct visitor last = *v;

    at.round = 0;
    last.at = &at;
    return all_sums(&last);
}

/* ---- F, B and W ---- */

/* Where kernels read a unit; the tag says in which room. */
static struct access placed(const struct visitor *v, int unit, int item,
                            int phase)
{
    return (struct access){.space = SPACE_PLACED, .chunk = v->at->chunk,
                           .first = unit, .end = unit + 1,
                           .expects = item >= 0 ? item + 4 : phase + 2,
                           .leaves = TAG_ANY};
}

/* Weights that events [first, last) of the part read. */
static status reads_weights(const struct visitor *v)
{
    const struct residency *r = &v->stage->gathered;
    const struct instruction *at = v->at;

    if (!stage_gathers(v->stage)) {
        return call(v, (struct access){
            .space = SPACE_WEIGHTS, .chunk = at->chunk,
            .end = v->stage->shards.count, .expects = TAG_ANY});
    }
    if (!asks(v, SPACE_ROOM) && !asks(v, SPACE_PLACED)) return OK;
    for (int i = 0; i < r->count; i++) {
        const struct residence *item = &r->items[i];
        struct access access;

        if (item->last < at->first_event || item->first >= at->last_event ||
            stage_idles(v->stage, item, v->forward))
            continue;
        const int phase = stage_phase(v->stage, at);
        const int at_item =
            v->stage->request.divided.gather.reshard && phase < 0 ? i : -1;

        if (shard_stays(&v->stage->shards, item->unit)) {
            TRY(call(v, placed(v, item->unit, at_item, phase)));
            continue;
        }
        access = room(v, item->unit, at_item, phase);
        access.expects = unit_tag(v, item->unit);
        TRY(call(v, access));
        TRY(call(v, placed(v, item->unit, at_item, phase)));
    }
    return OK;
}

/* Gradients that they write. */
static status writes_gradients(const struct visitor *v)
{
    const struct residency *r = &v->stage->reduced;
    const struct instruction *at = v->at;

    if (!asks(v, SPACE_BUCKET) && !asks(v, SPACE_GRADIENTS)) return OK;
    for (int i = 0; i < r->count; i++) {
        struct access access;

        if (r->items[i].last < at->first_event ||
            r->items[i].first >= at->last_event)
            continue;
        access = has_room(v, i) ? bucket(v, i) : sums(v, i, i + 1);
        access.writes = true;
        if (!has_room(v, i)) access.expects = TAG_OPEN;
        TRY(call(v, access));
    }
    return OK;
}

static status forward(const struct visitor *v)
{
    const bool begins = v->at->first_event == 0;
    const bool ends = v->at->last_event == v->stage->frame.forward_end;
    const int64_t fresh = v->forward ? TAG_ANY : TAG_NONE;

    TRY(reads(v, SPACE_BATCH));
    if (v->at->stage > 0) TRY(reads(v, SPACE_ENTRY));
    TRY(reads_weights(v));
    TRY(writes(v, SPACE_FRAME, begins ? fresh : tag(v), tag(v)));
    return writes(v, SPACE_EXIT, begins ? fresh : TAG_NONE,
                  ends ? tag(v) : TAG_NONE);
}

static status backward(const struct visitor *v)
{
    const struct frame_plan *frame = &v->stage->frame;
    const bool begins = v->at->first_event == frame->forward_end;
    const bool ends = v->at->last_event == frame->backward_end;
    const int last = v->pipeline->schedule.stages - 1;

    TRY(reads(v, SPACE_BATCH));
    if (v->at->stage < last && begins)
        TRY(writes(v, SPACE_EXIT_GRADIENT, tag(v), TAG_NONE));
    TRY(reads_weights(v));
    TRY(writes_gradients(v));
    TRY(writes(v, SPACE_FRAME, tag(v), tag(v)));
    TRY(writes(v, SPACE_EXIT, begins ? tag(v) : TAG_NONE, TAG_NONE));
    return ends ? writes(v, SPACE_ENTRY_GRADIENT, TAG_ANY, tag(v)) : OK;
}

static status weight(const struct visitor *v)
{
    TRY(reads_weights(v));
    TRY(writes_gradients(v));
    TRY(writes(v, SPACE_FRAME, tag(v), tag(v)));
    if (v->at->last_event < v->stage->frame.event_count) return OK;
    TRY(writes(v, SPACE_BATCH, tag(v), TAG_NONE));
    TRY(writes(v, SPACE_ENTRY, TAG_ANY, TAG_NONE));
    return writes(v, SPACE_FRAME, tag(v), TAG_NONE);
}

/* ---- transfers ---- */

static status copies(const struct visitor *v)
{
    struct access other = of_other(v, v->at->kind == DO_COPY
                                          ? SPACE_EXIT : SPACE_EXIT_GRADIENT);

    if (v->at->kind == DO_COPY) {
        other.expects = tag(v);
        TRY(call(v, other));
        return writes(v, SPACE_ENTRY, v->forward ? TAG_ANY : TAG_NONE,
                      tag(v));
    }
    TRY(reads(v, SPACE_ENTRY_GRADIENT));
    other.writes = true;
    other.leaves = tag(v);
    return call(v, other);
}

static status returns(const struct visitor *v)
{
    struct access buffer = {
        .space = SPACE_RETURN, .chunk = v->at->chunk, .first = v->at->other,
        .end = v->at->other + 1, .expects = tag(v), .leaves = TAG_ANY};

    if (v->at->kind == DO_SEND_BACK) return call(v, buffer);
    TRY(reads(v, SPACE_ENTRY_GRADIENT));
    buffer.writes = true;
    buffer.expects = TAG_ANY;
    buffer.leaves = tag(v);
    return call(v, buffer);
}

static status transfers(const struct visitor *v)
{
    const int64_t fresh = v->forward ? TAG_ANY : TAG_NONE;

    switch ((enum instruction_kind)v->at->kind) {
    case DO_COPY: case DO_COPY_BACK: return copies(v);
    case DO_KEEP: case DO_SEND_BACK: return returns(v);
    case DO_SEND: return reads(v, SPACE_EXIT);
    case DO_RECEIVE: return writes(v, SPACE_ENTRY, fresh, tag(v));
    default: break;
    }
    TRY(reads(v, SPACE_FRAME));
    return writes(v, SPACE_EXIT_GRADIENT, TAG_NONE, tag(v));
}

/* ---- units ---- */

static status weights(const struct visitor *v)
{
    const struct instruction *at = v->at;
    struct access access = room(v, at->unit, at->item, at->other);

    if (at->kind == DO_GATHER)
        TRY(call(v, (struct access){
            .space = SPACE_WEIGHTS, .chunk = at->chunk, .first = at->unit,
            .end = at->unit + 1, .expects = TAG_ANY}));
    if (at->kind != DO_GATHER) {
        struct access place = placed(v, at->unit, at->item, at->other);

        place.writes = true;
        place.leaves = at->kind == DO_PLACE ? place.expects : TAG_NONE;
        if (at->kind == DO_PLACE) place.expects = TAG_NONE;
        TRY(call(v, place));
    }
    if (shard_stays(&v->stage->shards, at->unit)) return OK;
    access.writes = at->kind != DO_PLACE;
    access.expects = at->kind == DO_GATHER ? TAG_NONE
                                           : unit_tag(v, at->unit);
    access.leaves = at->kind == DO_GATHER ? unit_tag(v, at->unit) : TAG_NONE;
    return call(v, access);
}

/* A unit's room. */
static status rooms(const struct visitor *v)
{
    const int item = v->at->item;
    const bool room = has_room(v, item);
    struct access access = room ? bucket(v, item) : sums(v, item, item + 1);

    access.writes = true;
    if (!room) access.expects = TAG_OPEN;
    if (v->at->kind == DO_TAKE) {
        access.expects = TAG_NONE;
        access.leaves = room ? item + 1 : TAG_OPEN;
    } else if (v->at->kind == DO_GIVE) {
        if (room && sums_room(v, item)) access.expects = scattered_tag(v, item);
        access.leaves = TAG_NONE;
    }
    return call(v, access);
}

/* A shard that is summed in the room of its unit; of its sum, this rank's part
 * leaves. */
static status reduces_room(const struct visitor *v)
{
    const int item = v->at->item;
    struct access access = bucket(v, item);

    access.writes = true;
    if (v->at->kind == DO_REDUCE) {
        access.leaves = scattered_tag(v, item);
        return call(v, access);
    }
    access.expects = scattered_tag(v, item);
    TRY(call(v, access));
    access = sums(v, item, item + 1);
    access.expects = TAG_NONE;
    access.leaves = TAG_SUMMED;
    return call(v, access);
}

static status reduces(const struct visitor *v)
{
    const int item = v->at->item;
    struct access access = sums(v, item, item + 1);

    if (sums_room(v, item)) return reduces_room(v);
    if (v->at->kind == DO_SUM) {
        access.expects = is_sent(v, item, RESOURCE_SHARD) ? TAG_REDUCED
                                                      : TAG_OPEN;
        access.leaves = TAG_SUMMED;
        return call(v, access);
    }
    if (has_room(v, item)) TRY(call(v, bucket(v, item)));
    access.expects = has_room(v, item) ? TAG_NONE : TAG_OPEN;
    access.leaves = TAG_REDUCED;
    return call(v, access);
}

static status begins_round(const struct visitor *v)
{
    for (int i = 0; i < v->stage->reduced.count && !in_buckets(v); i++) {
        struct access access = sums(v, i, i + 1);

        access.leaves = TAG_OPEN;
        TRY(call(v, access));
    }
    return OK;
}

/* Divided sums that still wait from round to round keep their tags. */
static status merges(const struct visitor *v)
{
    const int64_t count = v->stage->reduced.count;
    struct access rest = sums(v, 0, 0);

    TRY(all_sums(v));
    rest.first = 0;
    TRY(call(v, rest));
    rest.first = level(v, v->at->round + 1) * count;
    rest.end = (level(v, v->at->round) + 1) * count;
    rest.leaves = TAG_NONE;
    return rest.first < rest.end ? call(v, rest) : OK;
}

static status updates(const struct visitor *v)
{
    const struct instruction *at = v->at;
    const bool one = at->unit >= 0;

    if (at->kind != DO_REGATHER && at->kind != DO_ENCODE) TRY(final_sums(v));
    return call(v, (struct access){
        .space = SPACE_WEIGHTS, .chunk = at->chunk,
        .first = one ? at->unit : 0,
        .end = one ? at->unit + 1 : v->stage->shards.count, .writes = true,
        .expects = TAG_ANY, .leaves = TAG_ANY});
}

/* ---- sequences ---- */

/* Rooms of micro-batches [first, end): this step's, until the next step's are
 * read. F alone has the one behind them, whose turns follow each other. */
static status reads_ahead(const struct visitor *v, int first, int end)
{
    return call(v, (struct access){.space = SPACE_AHEAD, .first = first,
                                   .end = end,
                                   .expects = v->forward ? TAG_ANY : TAG_NONE,
                                   .leaves = TAG_ANY});
}

static int room_of(const struct visitor *v)
{
    return v->forward ? pipeline_microbatches(v->pipeline)
                      : v->at->microbatch;
}

static status samples(const struct visitor *v)
{
    TRY(reads_ahead(v, room_of(v), room_of(v) + 1));
    return writes(v, SPACE_BATCH, v->forward ? TAG_ANY : TAG_NONE, tag(v));
}

static status batch(const struct visitor *v)
{
    return call(v, (struct access){.space = SPACE_AHEAD, .first = room_of(v),
                                   .end = room_of(v) + 1, .writes = true,
                                   .expects = v->forward ? TAG_ANY : TAG_NONE,
                                   .leaves = tag(v)});
}

status list_accesses(const struct pipeline *pipeline, bool is_forward,
                     const struct instruction *instruction,
                     access_visit *visit, void *argument)
{
    return list_accesses_to(UINT32_MAX, pipeline, is_forward, instruction,
                            visit, argument);
}

status list_accesses_to(uint32_t spaces, const struct pipeline *pipeline,
                        bool is_forward, const struct instruction *instruction,
                        access_visit *visit, void *argument)
{
    const struct visitor v = {
        pipeline,
        instruction->chunk >= 0 ? &pipeline->stages[instruction->chunk]
                                : NULL,
        instruction, is_forward, spaces, visit, argument};

    switch ((enum instruction_kind)instruction->kind) {
    case DO_ROUND: return begins_round(&v);
    case DO_TARGETS:
        return reads_ahead(&v, 0, pipeline_microbatches(pipeline));
    case DO_SAMPLE: return samples(&v);
    case DO_BATCH: return batch(&v);
    case DO_FORWARD: return forward(&v);
    case DO_BACKWARD: return backward(&v);
    case DO_WEIGHT: return weight(&v);
    case DO_COPY: case DO_COPY_BACK: case DO_KEEP: case DO_SEND:
    case DO_RECEIVE: case DO_SEND_BACK: case DO_RECEIVE_BACK:
        return transfers(&v);
    case DO_GATHER: case DO_PLACE: case DO_RELEASE: return weights(&v);
    case DO_TAKE: case DO_GIVE: return rooms(&v);
    case DO_JOIN:
        return instruction->item >= 0 && in_buckets(&v)
                   ? rooms(&v)
                   : call(&v, sums(&v, 0, v.stage->reduced.count));
    case DO_REDUCE: case DO_SUM: return reduces(&v);
    case DO_HALVES: return call(&v, sums(&v, 0, v.stage->reduced.count));
    case DO_MERGE: return merges(&v);
    case DO_SECOND: case DO_TIE: case DO_BLOCKS: return final_sums(&v);
    case DO_UPDATE: case DO_MATRICES: case DO_CLIP: case DO_BALANCE:
    case DO_AVERAGE: case DO_REGATHER: case DO_ENCODE:
        return updates(&v);
    case DO_CLOSE: case DO_SHARE: case DO_LOSS: case DO_Z_LOSS: case DO_PEAKS:
    case DO_LATE: case DO_ROUTES: case DO_NORM: case DO_DECIDE: case DO_ASK:
    case DO_LATER_LOSSES: case DO_END: case DO_COUNT:
        break;
    }
    return OK;
}
