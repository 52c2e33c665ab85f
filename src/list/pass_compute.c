/* SPDX-License-Identifier: Apache-2.0 */
/* pass_compute.c - F, B and W of the schedule, whole, with their frames; and
 * the sequences that F reads. */
#include "list/passes.h"

#include "base/arena.h"

/* All events of F, B or W of a micro-batch of a chunk. */
static struct instruction compute(const struct pipeline *p,
                                  enum action_kind kind, int chunk)
{
    static const enum instruction_kind kinds[ACTION_COMPUTE_COUNT] = {
        [ACTION_FORWARD] = DO_FORWARD,
        [ACTION_BACKWARD_INPUT] = DO_BACKWARD,
        [ACTION_BACKWARD_WEIGHT] = DO_WEIGHT};
    const struct frame_plan *frame = &p->stages[chunk].frame;
    const int ends[] = {0, frame->forward_end, frame->backward_end,
                        frame->event_count};
    struct instruction i = instruction_of(kinds[kind]);

    i.chunk = chunk;
    i.stage = (int16_t)p->chunks[chunk].number;
    i.first_event = ends[kind];
    i.last_event = ends[kind + 1];
    return i;
}

static status begin_round(struct step_list *out, const struct pipeline *p,
                          int chunk, int round)
{
    struct instruction begins = instruction_of(DO_ROUND);

    begins.chunk = chunk;
    begins.stage = (int16_t)p->chunks[chunk].number;
    begins.round = round;
    return list_put(out, begins);
}

/* The schedule once. Its micro-batches are of one round, or, where rounds are
 * piped, each is one, which begins with its B. */
static status add_repeat(struct step_list *out, const struct pipeline *p,
                         const struct allotment *allotments, int repeat)
{
    const struct action_list *list = &p->schedule.lists[p->rank];
    const bool piped = p->stages[0].request.reduction.piped;

    for (int i = 0; i < p->count && !piped; i++)
        TRY(begin_round(out, p, i, repeat));
    for (int i = 0; i < list->count; i++) {
        const struct action a = list->items[i];
        const int chunk = pipeline_chunk(p, a.stage, a.microbatch);

        if (a.kind >= ACTION_COMPUTE_COUNT) continue;
        CHECK(chunk >= 0);
        struct instruction next = compute(p, (enum action_kind)a.kind, chunk);

        next.joined = a.joined;
        next.microbatch = repeat * p->schedule.microbatches + a.microbatch;
        next.round = piped ? a.microbatch : repeat;
        if (piped && next.kind == DO_BACKWARD)
            TRY(begin_round(out, p, chunk, next.round));
        next.buffer = allotments[chunk]
                          .frame[a.microbatch - p->chunks[chunk].first];
        TRY(list_put(out, next));
    }
    return OK;
}

/* F through the stages of this rank, each with the frame whose turn it is. */
static status add_turn(struct step_list *out, const struct pipeline *p,
                       int turn, int turns)
{
    for (int stage = 0; stage < p->schedule.stages; stage++) {
        const int chunk = pipeline_chunk(p, stage, 0);

        if (chunk < 0) continue;
        const int frames = p->stages[chunk].request.size.frames;
        struct instruction next = compute(p, ACTION_FORWARD, chunk);

        next.microbatch = turn;
        next.buffer = turn % (frames < turns ? frames : turns);
        TRY(list_put(out, next));
    }
    return OK;
}

status pass_compute(struct step_list *out, const struct step_list *before,
                    const struct list_request *request)
{
    const struct pipeline *p = request->pipeline;
    struct allotment *allotments;
    status result = OK;

    (void)before;
    for (int i = 0; i < request->turns; i++)
        TRY(add_turn(out, p, i, request->turns));
    if (request->turns > 0) return OK;
    TRY(allotments_build(&allotments, p));
    for (int i = 0; i < stage_repeats(&p->stages[0]) && result == OK; i++)
        result = add_repeat(out, p, allotments, i);
    allotments_free(allotments, p->count);
    return result;
}

/* Once nobody reads a micro-batch's room any more, the next step's follows. F
 * alone has one room, which the micro-batch of the next turn takes. */
static status put_next(struct step_list *out, const struct instruction *at,
                       int *left)
{
    struct instruction next = instruction_of(DO_BATCH);

    if (left == NULL || --left[at->microbatch] > 0) return OK;
    next.microbatch = at->microbatch;
    next.round = at->round;
    return list_put(out, next);
}

static status put_samples(struct step_list *out,
                          const struct step_list *before, int *left)
{
    for (int i = 0; i < before->count; i++) {
        const struct instruction at = before->items[i];
        struct instruction sample = instruction_of(DO_SAMPLE);

        if (at.kind == DO_FORWARD) {
            sample.chunk = at.chunk;
            sample.stage = at.stage;
            sample.microbatch = at.microbatch;
            sample.round = at.round;
            sample.buffer = at.buffer;
            TRY(list_put(out, sample));
            TRY(put_next(out, &at, left));
        }
        TRY(list_put(out, at));
    }
    return OK;
}

status pass_samples(struct step_list *out, const struct step_list *before,
                    const struct list_request *request)
{
    const struct pipeline *p = request->pipeline;
    void *memory = NULL;
    int *left; /* F of each micro-batch that are to come */
    status result;

    if (!pipeline_reads_ahead(p)) return put_samples(out, before, NULL);
    TRY(memory_take((size_t)(before->forward ? request->turns
                                             : pipeline_microbatches(p)),
                    sizeof *left, &memory));
    left = memory;
    for (int i = 0; i < before->count; i++)
        if (before->items[i].kind == DO_FORWARD)
            left[before->items[i].microbatch]++;
    result = put_samples(out, before, left);
    memory_free(memory);
    return result;
}
