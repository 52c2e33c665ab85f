/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c - the fields that an instruction of each kind must have, and whether
 * what they name is there. */
#include "list/fields.h"

#include "list/passes.h"

enum {
    NAMES_CHUNK = 1,
    NAMES_MICROBATCH = 2,
    NAMES_FRAME = 4,
    NAMES_UNIT = 8,
    NAMES_WEIGHTS = 16,   /* a room of gathered weights, or none */
    NAMES_GRADIENTS = 32, /* a room, or a sum, of gradients */
    NAMES_RETURN = 64,    /* a buffer of gradients on their way back */
    NAMES_OTHER = 128,    /* a frame of the stage before */
    NAMES_ROUND = 256,    /* the one that has begun */
    BEGINS_ROUND = 512,   /* the next one */
    MAY_COPY = 1024       /* its resource may be that of ranks with copies */
};
enum {
    OF_FRAME = NAMES_CHUNK | NAMES_MICROBATCH | NAMES_FRAME,
    OF_ROUND = NAMES_CHUNK | NAMES_ROUND,
    OF_UNIT = NAMES_CHUNK | NAMES_UNIT,
    OF_WEIGHTS = OF_UNIT | NAMES_MICROBATCH | NAMES_WEIGHTS,
    OF_GRADIENTS = OF_UNIT | NAMES_ROUND | NAMES_GRADIENTS
};

/* Kinds without a row are of the whole step. */
static const uint16_t named[DO_COUNT] = {
    [DO_ROUND] = NAMES_CHUNK | BEGINS_ROUND,
    [DO_SAMPLE] = OF_FRAME,
    [DO_BATCH] = NAMES_MICROBATCH,
    [DO_COPY] = OF_FRAME | NAMES_OTHER,
    [DO_FORWARD] = OF_FRAME,
    [DO_BACKWARD] = OF_FRAME | NAMES_ROUND,
    [DO_KEEP] = OF_FRAME | NAMES_RETURN,
    [DO_COPY_BACK] = OF_FRAME | NAMES_OTHER,
    [DO_WEIGHT] = OF_FRAME | NAMES_ROUND,
    [DO_SEND] = OF_FRAME,
    [DO_RECEIVE] = OF_FRAME,
    [DO_SEND_BACK] = OF_FRAME | NAMES_RETURN,
    [DO_RECEIVE_BACK] = OF_FRAME,
    [DO_GATHER] = OF_WEIGHTS,
    [DO_PLACE] = OF_WEIGHTS,
    [DO_RELEASE] = OF_WEIGHTS,
    [DO_TAKE] = OF_GRADIENTS,
    [DO_JOIN] = OF_ROUND,
    [DO_REDUCE] = OF_GRADIENTS,
    [DO_GIVE] = OF_GRADIENTS,
    [DO_SUM] = OF_GRADIENTS,
    [DO_CLOSE] = OF_ROUND,
    [DO_HALVES] = OF_ROUND,
    [DO_MERGE] = OF_ROUND,
    [DO_SECOND] = NAMES_CHUNK,
    [DO_TIE] = NAMES_CHUNK,
    [DO_BLOCKS] = NAMES_CHUNK,
    [DO_SHARE] = OF_UNIT | MAY_COPY,
    [DO_UPDATE] = OF_UNIT,
    [DO_MATRICES] = NAMES_CHUNK,
    [DO_CLIP] = NAMES_CHUNK,
    [DO_BALANCE] = NAMES_CHUNK,
    [DO_AVERAGE] = OF_UNIT,
    [DO_REGATHER] = OF_UNIT | MAY_COPY,
    [DO_ENCODE] = OF_UNIT | MAY_COPY,
};

struct asked {
    const struct step_list *list;
    const struct pipeline *pipeline;
    const struct instruction *at;
    const struct stage *stage; /* NULL: it names none */
};

static bool is_in(int64_t value, int64_t count)
{
    return value >= 0 && value < count;
}

/* Micro-batches of a list of F alone are its turns. */
static bool has_microbatch(const struct asked *a)
{
    const struct pipeline *p = a->pipeline;
    const int all = p->schedule.microbatches * stage_repeats(&p->stages[0]);
    const int m = a->at->microbatch;
    const bool piped = p->stages[0].request.reduction.piped;

    if (a->list->forward) return m >= 0 && a->at->round == 0;
    return is_in(m, all) &&
           a->at->round == (piped ? m : m / p->schedule.microbatches);
}

static bool has_other(const struct asked *a)
{
    const struct pipeline *p = a->pipeline;
    const int m = a->list->forward
                      ? 0 : a->at->microbatch % p->schedule.microbatches;
    const int before =
        a->at->stage > 0 ? pipeline_chunk(p, a->at->stage - 1, m) : -1;

    return before >= 0 &&
           is_in(a->at->other, p->stages[before].request.size.frames);
}

/* The unit whose room or sum an item is; any item -1 is no room. */
static bool has_item(const struct residency *items,
                     const struct instruction *at, bool may_be_none)
{
    if (at->item < 0) return may_be_none && at->item == -1;
    return at->item < items->count &&
           items->items[at->item].unit == at->unit;
}

static bool has_weights(const struct asked *a)
{
    const int phase = a->at->other;

    return has_item(&a->stage->gathered, a->at, true) && phase >= -1 &&
           phase < 2 && (phase < 0 || stage_gathers_once(a->stage));
}

static bool has_resource(const struct instruction *at)
{
    const enum resource resource = (enum resource)at->resource;

    return resource == instruction_rows[at->kind].resource ||
           (resource == RESOURCE_COPIES && (named[at->kind] & MAY_COPY));
}

static bool may_call(const struct instruction *at)
{
    return at->calls >= 0 && at->bytes >= 0 &&
           (instruction_rows[at->kind].call != COMM_KIND_COUNT ||
            (at->calls == 0 && at->bytes == 0));
}

static const char *parts_wrong(const struct asked *a, uint16_t names)
{
    const struct instruction *at = a->at;
    const int chunk = at->chunk;

    if ((names & NAMES_FRAME) &&
        !is_in(at->buffer, a->stage->request.size.frames))
        return "it has no frame";
    if ((names & NAMES_UNIT) && !is_in(at->unit, a->stage->shards.count))
        return "it is of no unit";
    if ((names & NAMES_WEIGHTS) && !has_weights(a))
        return "it is of no room of weights";
    if ((names & NAMES_GRADIENTS) &&
        !has_item(&a->stage->reduced, at, false))
        return "it is of no room of gradients";
    if (at->kind == DO_JOIN && !has_item(&a->stage->reduced, at, true))
        return "it is of no room of gradients";
    if ((names & NAMES_RETURN) &&
        !is_in(at->other, a->pipeline->chunks[chunk].returns))
        return "it has no buffer of gradients";
    if ((names & NAMES_OTHER) && !has_other(a))
        return "it has no frame of the stage before";
    return NULL;
}

const char *list_fields_wrong(const struct step_list *list,
                              const struct pipeline *pipeline,
                              const struct instruction *at, const int *begun)
{
    const uint16_t names = named[at->kind];
    struct asked a = {.list = list, .pipeline = pipeline, .at = at};

    if (!has_resource(at)) return "it is on no resource of its kind";
    if (!may_call(at)) return "its messages are none of its kind";
    if ((names & NAMES_CHUNK) ? !is_in(at->chunk, pipeline->count)
                              : at->chunk != -1)
        return "it is of a stage that this rank has not";
    if (at->stage != ((names & NAMES_CHUNK)
                          ? pipeline->chunks[at->chunk].number : -1))
        return "it is of another stage than its chunk";
    if ((names & NAMES_MICROBATCH) && !has_microbatch(&a))
        return "it is of no micro-batch";
    if (!(names & NAMES_CHUNK)) return NULL;
    a.stage = &pipeline->stages[at->chunk];
    if ((names & NAMES_ROUND) && at->round != begun[at->chunk] - 1)
        return "it is of another round";
    if ((names & BEGINS_ROUND) && at->round != begun[at->chunk])
        return "it begins another round than the next";
    return parts_wrong(&a, names);
}
