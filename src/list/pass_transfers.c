/* SPDX-License-Identifier: Apache-2.0 */
/* pass_transfers.c - data goes from stage to stage: messages where the other
 * stage is on another rank, copies where it is here.
 *
 * A receive stands where the schedule has it, if the frame is free by then, or
 * else right before the F or B that needs it. */
#include "list/passes.h"

#include "base/arena.h"

struct transfers {
    struct step_list *out;
    const struct pipeline *pipeline;
    const struct allotment *allotments; /* NULL: F alone */
    int turns;    /* of F alone; 0: training */
    bool *ran;    /* owned, [chunks * micro-batches]: F has */
    bool *posted; /* owned, likewise: the gradient's receive is */
};

static int of_chunk(const struct transfers *t, const struct instruction *i)
{
    const struct pipeline *p = t->pipeline;

    return i->microbatch % p->schedule.microbatches -
           p->chunks[i->chunk].first;
}

static size_t cell(const struct transfers *t, const struct instruction *i)
{
    return (size_t)i->chunk * (size_t)t->pipeline->schedule.microbatches +
           (size_t)of_chunk(t, i);
}

/* F alone goes in the direction of micro-batch 0, whatever its number is. */
static int direction(const struct transfers *t, const struct instruction *i)
{
    return t->allotments == NULL
               ? 0 : i->microbatch % t->pipeline->schedule.microbatches;
}

/* The rank of the pipe that has the stage `step` further; -1: there is none. */
static int neighbour(const struct transfers *t, const struct instruction *i,
                     int step)
{
    const struct schedule *s = &t->pipeline->schedule;
    const int stage = i->stage + step;

    if (stage < 0 || stage >= s->stages) return -1;
    return schedule_rank(s, stage, direction(t, i));
}

static bool is_here(const struct transfers *t, const struct instruction *i,
                    int step)
{
    return neighbour(t, i, step) == t->pipeline->rank;
}

static bool is_elsewhere(const struct transfers *t,
                         const struct instruction *i, int step)
{
    return neighbour(t, i, step) >= 0 && !is_here(t, i, step);
}

static struct instruction like(enum instruction_kind kind,
                               const struct instruction *i)
{
    struct instruction made = instruction_of(kind);

    made.stage = i->stage;
    made.chunk = i->chunk;
    made.microbatch = i->microbatch;
    made.round = i->round;
    made.buffer = i->buffer;
    return made;
}

static status put_message(struct transfers *t, enum instruction_kind kind,
                          const struct instruction *i)
{
    struct instruction made = like(kind, i);
    const bool up = kind == DO_SEND || kind == DO_RECEIVE_BACK;
    const struct action sent = {
        .kind = kind == DO_SEND ? ACTION_SEND_FORWARD : ACTION_SEND_BACKWARD,
        .stage = i->stage, .microbatch = direction(t, i)};

    made.peer = neighbour(t, i, up ? 1 : -1);
    made.calls = 1;
    if (kind == DO_SEND || kind == DO_SEND_BACK)
        made.bytes = pipeline_border_bytes(t->pipeline, sent);
    if (kind == DO_SEND_BACK)
        made.other = t->allotments[i->chunk].returned[of_chunk(t, i)];
    return list_put(t->out, made);
}

/* From, or to, the stage before, which is here. */
static status put_copy(struct transfers *t, enum instruction_kind kind,
                       const struct instruction *i)
{
    const struct pipeline *p = t->pipeline;
    struct instruction made = like(kind, i);
    const int chunk = pipeline_chunk(p, i->stage - 1, direction(t, i));
    const int frames = p->stages[chunk].request.size.frames;

    made.other = t->allotments == NULL
                     ? i->microbatch % (frames < t->turns ? frames : t->turns)
                     : t->allotments[chunk].frame[direction(t, i) -
                                                  p->chunks[chunk].first];
    return list_put(t->out, made);
}

static status put_forward(struct transfers *t, const struct instruction *i)
{
    const bool early = t->allotments != NULL &&
                       t->allotments[i->chunk].early[of_chunk(t, i)];

    if (is_elsewhere(t, i, -1) && !early)
        TRY(put_message(t, DO_RECEIVE, i));
    if (is_here(t, i, -1)) TRY(put_copy(t, DO_COPY, i));
    if (t->allotments != NULL) t->ran[cell(t, i)] = true;
    TRY(list_put(t->out, *i));
    if (t->allotments != NULL || !is_elsewhere(t, i, 1)) return OK;
    return put_message(t, DO_SEND, i);
}

static status put_backward(struct transfers *t, const struct instruction *i)
{
    struct instruction kept;

    if (is_elsewhere(t, i, 1) && !t->posted[cell(t, i)])
        TRY(put_message(t, DO_RECEIVE_BACK, i));
    TRY(list_put(t->out, *i));
    if (is_here(t, i, -1)) return put_copy(t, DO_COPY_BACK, i);
    if (!is_elsewhere(t, i, -1)) return OK;
    kept = like(DO_KEEP, i);
    kept.other = t->allotments[i->chunk].returned[of_chunk(t, i)];
    return list_put(t->out, kept);
}

/* A transfer of the schedule's list, beside the instruction `at`. */
static status put_action(struct transfers *t, struct action action,
                         const struct instruction *at)
{
    const struct pipeline *p = t->pipeline;
    const int repeat = at->microbatch / p->schedule.microbatches;
    struct instruction i = instruction_of(DO_FORWARD);

    i.stage = action.stage;
    i.microbatch = repeat * p->schedule.microbatches + action.microbatch;
    i.round = p->stages[0].request.reduction.piped ? i.microbatch : repeat;
    i.chunk = pipeline_chunk(p, action.stage, action.microbatch);
    CHECK(i.chunk >= 0);
    i.buffer = t->allotments[i.chunk].frame[of_chunk(t, &i)];
    switch ((enum action_kind)action.kind) {
    case ACTION_SEND_FORWARD: return put_message(t, DO_SEND, &i);
    case ACTION_SEND_BACKWARD: return put_message(t, DO_SEND_BACK, &i);
    case ACTION_RECEIVE_FORWARD:
        return t->allotments[i.chunk].early[of_chunk(t, &i)]
                   ? put_message(t, DO_RECEIVE, &i) : OK;
    case ACTION_RECEIVE_BACKWARD:
        if (!t->ran[cell(t, &i)]) return OK; /* or right before B */
        t->posted[cell(t, &i)] = true;
        return put_message(t, DO_RECEIVE_BACK, &i);
    default: return OK;
    }
}

static status put_compute(struct transfers *t, const struct instruction *i)
{
    if (i->kind == DO_FORWARD) return put_forward(t, i);
    if (i->kind == DO_BACKWARD) return put_backward(t, i);
    return list_put(t->out, *i);
}

/* The list before, and the schedule's, side by side. */
static status put_all(struct transfers *t, const struct step_list *before)
{
    const struct pipeline *p = t->pipeline;
    const struct action_list *list = &p->schedule.lists[p->rank];
    int at = 0; /* in the schedule's list */

    for (int i = 0; i < before->count; i++) {
        const struct instruction *next = &before->items[i];

        if (next->kind == DO_ROUND) {
            if (!p->stages[0].request.reduction.piped) at = 0;
            TRY(list_put(t->out, *next));
            continue;
        }
        while (list->items[at].kind >= ACTION_COMPUTE_COUNT)
            TRY(put_action(t, list->items[at++], next));
        at++;
        TRY(put_compute(t, next));
        while (at < list->count &&
               list->items[at].kind >= ACTION_COMPUTE_COUNT)
            TRY(put_action(t, list->items[at++], next));
    }
    return OK;
}

status pass_transfers(struct step_list *out, const struct step_list *before,
                      const struct list_request *request)
{
    const struct pipeline *p = request->pipeline;
    const size_t cells = (size_t)p->count * (size_t)p->schedule.microbatches;
    struct transfers t = {.out = out, .pipeline = p,
                          .turns = request->turns};
    struct allotment *allotments = NULL;
    void *ran = NULL, *posted = NULL;
    status result = OK;

    if (request->turns > 0) {
        for (int i = 0; i < before->count; i++)
            TRY(put_compute(&t, &before->items[i]));
        return OK;
    }
    TRY_GOTO(done, result, memory_take(cells, sizeof *t.ran, &ran));
    TRY_GOTO(done, result, memory_take(cells, sizeof *t.posted, &posted));
    TRY_GOTO(done, result, allotments_build(&allotments, p));
    t.ran = ran;
    t.posted = posted;
    t.allotments = allotments;
    result = put_all(&t, before);
done:
    allotments_free(allotments, p->count);
    memory_free(ran);
    memory_free(posted);
    return result;
}
