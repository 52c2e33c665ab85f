/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - performs the schedule of a step. */
#include "step/execute.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/meter.h"
#include "comm/progress.h"

/* A frame and what is under way from and to it. */
struct flight {
    int microbatch;      /* that it holds; -1: free */
    bool ran;            /* F has */
    bool entry_posted, gradient_posted;
    struct comm_handle entry;    /* activation, from the stage before */
    struct comm_handle exit;     /* activation, to the stage after */
    struct comm_handle gradient; /* from the stage after */
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- which frame, which buffer: once ---- */

/* The lists of this rank are walked; a frame is taken by F and is free after
 * W. A receive is posted early where its frame is free by then. */
struct allotment {
    int *free_since;  /* [frames] position in the list; -1: in use */
    int *asked;       /* [micro-batches] position of the receive; -1: none */
    int returned;     /* gradients made so far */
};

static int take_frame(const struct stage *stage, struct allotment *a)
{
    for (int i = 0; i < stage->request.frames; i++)
        if (a->free_since[i] >= 0) return i;
    CHECK(false); /* frames are counted from the same lists */
    return -1;
}

static void allot_action(struct executor *e, int index, int position,
                         struct allotment *a)
{
    const struct pipeline *p = e->pipeline;
    const struct action action = p->schedule.lists[p->rank].items[position];
    const struct chunk *chunk = &p->chunks[index];
    struct lane *lane = &e->lanes[index];
    const int m = action.microbatch - chunk->first;

    switch ((enum action_kind)action.kind) {
    case ACTION_RECEIVE_FORWARD:
        a->asked[m] = position;
        break;
    case ACTION_FORWARD:
        lane->frame[m] = take_frame(&p->stages[index], a);
        lane->early[m] = a->asked[m] >= a->free_since[lane->frame[m]];
        a->free_since[lane->frame[m]] = -1;
        break;
    case ACTION_BACKWARD_INPUT:
        if (chunk->returns > 0)
            lane->return_of[m] = a->returned++ % chunk->returns;
        break;
    case ACTION_BACKWARD_WEIGHT:
        a->free_since[lane->frame[m]] = position;
        break;
    default:
        break;
    }
}

static status allot(struct executor *e, int index)
{
    const struct pipeline *p = e->pipeline;
    const struct action_list *list = &p->schedule.lists[p->rank];
    struct allotment a = {0};
    void *free_since = NULL, *asked = NULL;
    status result;

    TRY_GOTO(done, result,
             memory_take((size_t)p->stages[index].request.frames, sizeof(int),
                         &free_since));
    TRY_GOTO(done, result, memory_take((size_t)p->chunks[index].count,
                                       sizeof(int), &asked));
    a.free_since = free_since;
    a.asked = asked;
    for (int i = 0; i < p->chunks[index].count; i++) a.asked[i] = -1;
    for (int i = 0; i < list->count; i++)
        if (pipeline_chunk(p, list->items[i].stage,
                           list->items[i].microbatch) == index)
            allot_action(e, index, i, &a);
done:
    memory_free(free_since);
    memory_free(asked);
    return result;
}

static status build_lane(struct executor *e, int index)
{
    const struct chunk *chunk = &e->pipeline->chunks[index];
    const size_t count = (size_t)chunk->count;
    const size_t frames = (size_t)e->pipeline->stages[index].request.frames;
    struct lane *lane = &e->lanes[index];
    void *memory = NULL;

    TRY(memory_take(frames, sizeof *lane->flights, &memory));
    lane->flights = memory;
    for (size_t i = 0; i < frames; i++) lane->flights[i].microbatch = -1;
    TRY(memory_take((size_t)chunk->returns + 1, sizeof *lane->returns,
                    &memory));
    lane->returns = memory;
    TRY(memory_take(count, sizeof *lane->frame, &memory));
    lane->frame = memory;
    TRY(memory_take(count, sizeof *lane->return_of, &memory));
    lane->return_of = memory;
    TRY(memory_take(count, sizeof *lane->early, &memory));
    lane->early = memory;
    return allot(e, index);
}

status executor_build(struct executor *executor, struct pipeline *pipeline,
                      struct team *team)
{
    const struct grid *grid = &pipeline->stages[0].program.grid;
    const int leaves = pipeline_data_leaves(pipeline);
    void *memory = NULL;

    *executor = (struct executor){.pipeline = pipeline, .team = team};
    TRY(memory_take((size_t)pipeline->count, sizeof *executor->lanes,
                    &memory));
    executor->lanes = memory;
    for (int i = 0; i < pipeline->count; i++) TRY(build_lane(executor, i));
    TRY(loss_build(&executor->loss, leaves, grid));
    return loss_build(&executor->z_loss, leaves, grid);
}

void executor_free(struct executor *executor)
{
    for (int i = 0; executor->lanes != NULL && i < executor->pipeline->count;
         i++) {
        memory_free(executor->lanes[i].flights);
        memory_free(executor->lanes[i].returns);
        memory_free(executor->lanes[i].frame);
        memory_free(executor->lanes[i].return_of);
        memory_free(executor->lanes[i].early);
    }
    memory_free(executor->lanes);
    loss_free(&executor->loss);
    loss_free(&executor->z_loss);
    *executor = (struct executor){0};
}

int executor_last(const struct executor *executor)
{
    return pipeline_chunk(executor->pipeline,
                          executor->pipeline->schedule.stages - 1, 0);
}

/* Sequences before this rank's share of the batch. */
static int64_t share_first(const struct executor *executor)
{
    const struct pipeline *p = executor->pipeline;

    /* In round i, rank r of R has share i R + r. */
    const int64_t share =
        (int64_t)executor->round * team_batch_size(executor->team) +
        team_batch_rank(executor->team);

    return share * p->stages[0].program.sequences * p->schedule.microbatches;
}

/* ---- transfers ---- */

/* One action of one of this rank's chunks. */
struct work {
    struct action action;
    int index;             /* of the chunk */
    const struct chunk *chunk;
    struct stage *stage;
    struct lane *lane;
    int m;                 /* micro-batch of the chunk */
    int frame;
    struct flight *flight;
};

static struct work work_of(struct executor *e, struct action action)
{
    struct pipeline *p = e->pipeline;
    struct work w = {.action = action};

    w.index = pipeline_chunk(p, action.stage, action.microbatch);
    CHECK(w.index >= 0);
    w.chunk = &p->chunks[w.index];
    w.stage = &p->stages[w.index];
    w.lane = &e->lanes[w.index];
    w.m = action.microbatch - w.chunk->first;
    w.frame = w.lane->frame[w.m];
    w.flight = &w.lane->flights[w.frame];
    return w;
}

static int neighbour(const struct executor *e, struct action a, int step)
{
    return schedule_rank(&e->pipeline->schedule, a.stage + step,
                         a.microbatch);
}

static bool is_here(const struct executor *e, struct action a, int step)
{
    return neighbour(e, a, step) == e->pipeline->rank;
}

/* Posts a transfer of `data` across the border above `stage`, the lower of the
 * two stages. A tag says what it is, whoever else is under way. */
static status post(struct executor *e, enum comm_kind kind, struct action a,
                   struct tensor data, struct comm_handle *handle)
{
    const struct schedule *s = &e->pipeline->schedule;
    const bool up = a.kind == ACTION_SEND_BACKWARD ||
                    a.kind == ACTION_RECEIVE_FORWARD;
    const bool backward = a.kind == ACTION_SEND_BACKWARD ||
                          a.kind == ACTION_RECEIVE_BACKWARD;
    const int lower = a.stage - (up ? 1 : 0);
    const int64_t tag = ((int64_t)a.microbatch * s->stages + lower) * 2 +
                        backward;
    const int64_t count = tensor_count(&data);
    const struct tensor flat = tensor_1d(data.data, data.dtype, count);
    const struct comm_call call = {
        .kind = kind, .peer = neighbour(e, a, up ? -1 : 1),
        .tag = (int)(tag % INT32_MAX), .in = flat, .out = flat};

    return comm_start(team_group(e->team, AXIS_PIPE), &call, handle);
}

static void copy(struct tensor to, struct tensor from)
{
    CHECK(tensor_count(&to) == tensor_count(&from));
    memcpy(to.data, from.data,
           (size_t)(tensor_count(&to) * dtype_bytes(to.dtype)));
}

static status post_entry(struct executor *e, struct work *w)
{
    struct action receive = w->action;

    CHECK(w->flight->microbatch < 0);
    w->flight->microbatch = w->action.microbatch;
    receive.kind = ACTION_RECEIVE_FORWARD;
    stage_use_frame(w->stage, w->frame);
    w->stage->run.batch.tokens = w->stage->program.tokens;
    w->flight->entry_posted = true;
    return post(e, COMM_RECV, receive, run_entry(&w->stage->run),
                &w->flight->entry);
}

static status post_gradient(struct executor *e, struct work *w)
{
    struct action receive = w->action;

    receive.kind = ACTION_RECEIVE_BACKWARD;
    stage_use_frame(w->stage, w->frame);
    w->flight->gradient_posted = true;
    return post(e, COMM_RECV, receive, run_exit_gradient(&w->stage->run),
                &w->flight->gradient);
}

/* The activation that the stage before made is in the entry. */
static status take_entry(struct executor *e, struct work *w)
{
    if (w->action.stage == 0 || is_here(e, w->action, -1)) {
        CHECK(w->flight->microbatch < 0);
        w->flight->microbatch = w->action.microbatch;
    } else {
        if (!w->flight->entry_posted) TRY(post_entry(e, w));
        CHECK(w->flight->microbatch == w->action.microbatch);
        w->flight->entry_posted = false;
        TRY(comm_wait(&w->flight->entry));
    }
    return OK;
}

static void copy_entry(struct executor *e, const struct work *w)
{
    struct action before = w->action;

    if (w->action.stage == 0 || !is_here(e, w->action, -1)) return;
    before.stage--;
    const struct work from = work_of(e, before);

    stage_use_frame(from.stage, from.frame);
    copy(run_entry(&w->stage->run), run_exit(&from.stage->run));
}

/* The gradient of the entry goes to the stage before: into its frame, or into
 * a buffer from which it is sent, as this frame may be needed again. */
static status give_gradient(struct executor *e, const struct work *w)
{
    struct action before = w->action;
    const struct tensor gradient =
        w->action.stage > 0 ? run_entry_gradient(&w->stage->run)
                            : (struct tensor){0};
    struct tensor to = gradient;

    if (w->action.stage == 0) return OK;
    if (is_here(e, w->action, -1)) {
        before.stage--;
        const struct work receiver = work_of(e, before);

        stage_use_frame(receiver.stage, receiver.frame);
        copy(run_exit_gradient(&receiver.stage->run), gradient);
        return OK;
    }
    const int buffer = w->lane->return_of[w->m];

    TRY(comm_wait(&w->lane->returns[buffer]));
    to.data = pipeline_return(e->pipeline, w->index, buffer);
    copy(to, gradient);
    return OK;
}

static status send_gradient(struct executor *e, const struct work *w)
{
    const int buffer = w->lane->return_of[w->m];
    struct tensor gradient;

    stage_use_frame(w->stage, w->frame);
    gradient = run_entry_gradient(&w->stage->run); /* its shape */
    gradient.data = pipeline_return(e->pipeline, w->index, buffer);
    return post(e, COMM_SEND, w->action, gradient, &w->lane->returns[buffer]);
}

/* ---- F, B and W ---- */

/* Sequence s of the micro-batch: this rank's tokens of it. */
static status fill_sequence(const struct executor *e, struct stage *stage,
                            int64_t index, int64_t s,
                            struct stage_batch *arrays)
{
    const struct sample_source *source = e->source;
    const struct program *p = &stage->program;
    const int64_t at = s * p->length;
    const int ranks = p->mesh.size[AXIS_CONTEXT];

    if (ranks == 1)
        return source->fill(source->argument, index, arrays->inputs + at,
                            arrays->targets + at, arrays->positions + at,
                            arrays->documents + at);
    int32_t *documents = arrays->whole_documents + s * p->length * ranks;
    const int32_t *from[] = {arrays->whole_inputs, arrays->whole_targets,
                             arrays->whole_positions, documents};
    int32_t *to[] = {arrays->inputs, arrays->targets, arrays->positions,
                     arrays->documents};

    TRY(source->fill(source->argument, index, arrays->whole_inputs,
                     arrays->whole_targets, arrays->whole_positions,
                     documents));
    for (int i = 0; i < 4; i++)
        for (int64_t t = 0; t < p->length; t++)
            to[i][at + t] = from[i][program_position(p, t)];
    return OK;
}

/* Fills the arrays of a frame from sequence `first` on. */
static status fill_batch(struct executor *e, struct stage *stage, int frame,
                         int64_t first, int64_t index)
{
    const struct program *p = &stage->program;
    struct stage_batch arrays = stage_batch(stage, frame);
    const int64_t began = now_ns();
    struct meter_track *track = meter_begin();

    for (int64_t s = 0; s < p->sequences; s++)
        TRY(fill_sequence(e, stage, first + s, s, &arrays));
    stage->batches[frame] = (struct batch){
        .index = index, .inputs = arrays.inputs, .targets = arrays.targets,
        .positions = arrays.positions, .documents = arrays.documents,
        .whole_documents = arrays.whole_documents, .tokens = p->tokens,
        .sequence = e->source->first + first};
    stage_use_frame(stage, frame);
    meter_end(track, &(struct meter_what){
        .kind = METER_DATA, .name = "samples",
        .bytes = 4.0 * sizeof(int32_t) * (double)p->tokens});
    e->data_s += 1e-9 * (double)(now_ns() - began);
    return OK;
}

/* The first sequence of a micro-batch in the global batch. */
static int64_t first_sequence(const struct executor *e, int microbatch)
{
    return share_first(e) +
           microbatch * e->pipeline->stages[0].program.sequences;
}

static status add_span(struct executor *e, struct action action,
                       int64_t began)
{
    if (e->timeline == NULL) return OK;
    return timeline_add(e->timeline,
                        (struct timeline_span){action, e->pipeline->rank,
                                      began - e->began_ns,
                                      now_ns() - e->began_ns});
}

static status forward(struct executor *e, struct work *w)
{
    TRY(take_entry(e, w));
    TRY(fill_batch(e, w->stage, w->frame,
                   first_sequence(e, w->action.microbatch), w->m));
    const int64_t began = now_ns();

    copy_entry(e, w);
    TRY(run_forward(&w->stage->run));
    w->flight->ran = true;
    return add_span(e, w->action, began);
}

static void add_losses(struct executor *e, const struct work *w)
{
    const struct run *run = &w->stage->run;
    const int m = w->action.microbatch;
    const int index = e->round * e->pipeline->schedule.microbatches + m;

    loss_add(&e->loss, run, run->losses, first_sequence(e, m), index);
    if (run->z_losses != NULL)
        loss_add(&e->z_loss, run, run->z_losses, first_sequence(e, m), index);
}

static status backward_input(struct executor *e, struct work *w)
{
    const int last = e->pipeline->schedule.stages - 1;

    CHECK(w->flight->microbatch == w->action.microbatch && w->flight->ran);
    TRY(comm_wait(&w->flight->exit));
    if (w->action.stage < last && !is_here(e, w->action, 1)) {
        if (!w->flight->gradient_posted) TRY(post_gradient(e, w));
        w->flight->gradient_posted = false;
        TRY(comm_wait(&w->flight->gradient));
    }
    const int64_t began = now_ns();

    stage_use_frame(w->stage, w->frame);
    TRY(run_backward_input(&w->stage->run));
    if (w->action.stage == last && e->team->place.at[AXIS_TENSOR] == 0)
        add_losses(e, w);
    TRY(add_span(e, w->action, began));
    return give_gradient(e, w);
}

static status backward_weight(struct executor *e, struct work *w)
{
    const int64_t began = now_ns();

    CHECK(w->flight->microbatch == w->action.microbatch);
    stage_use_frame(w->stage, w->frame);
    TRY(run_backward_weight(&w->stage->run));
    w->flight->microbatch = -1;
    w->flight->ran = false;
    return add_span(e, w->action, began);
}

static status perform_action(struct executor *e, struct action action)
{
    struct work w = work_of(e, action);

    switch ((enum action_kind)action.kind) {
    case ACTION_FORWARD:
        return forward(e, &w);
    case ACTION_BACKWARD_INPUT:
        return backward_input(e, &w);
    case ACTION_BACKWARD_WEIGHT:
        return backward_weight(e, &w);
    case ACTION_SEND_FORWARD:
        stage_use_frame(w.stage, w.frame);
        return post(e, COMM_SEND, action, run_exit(&w.stage->run),
                    &w.flight->exit);
    case ACTION_RECEIVE_FORWARD: /* or by F, if its frame is in use yet */
        return w.lane->early[w.m] ? post_entry(e, &w) : OK;
    case ACTION_SEND_BACKWARD:
        return send_gradient(e, &w);
    case ACTION_RECEIVE_BACKWARD: /* or by B, if F is yet to come */
        return w.flight->microbatch == action.microbatch && w.flight->ran
                   ? post_gradient(e, &w) : OK;
    case ACTION_KIND_COUNT:
        break;
    }
    return OK;
}

static status perform(struct executor *e, struct action action)
{
    static const char *const names[ACTION_KIND_COUNT] = {
        [ACTION_FORWARD] = "forward",
        [ACTION_BACKWARD_INPUT] = "backward input",
        [ACTION_BACKWARD_WEIGHT] = "backward weight"};
    const char *name = names[action.kind];
    struct meter_track *track = name != NULL ? meter_outline() : NULL;
    const status result = perform_action(e, action);

    meter_end(track, &(struct meter_what){
        .kind = METER_OTHER, .name = name, .number = action.microbatch});
    return result;
}

/* Waits for everything under way, whatever comes of it. */
static status settle(struct executor *e)
{
    const struct pipeline *p = e->pipeline;
    status first = OK;

    for (int i = 0; i < p->count; i++) {
        struct lane *lane = &e->lanes[i];

        for (int f = 0; f < p->stages[i].request.frames; f++) {
            struct comm_handle *all[] = {&lane->flights[f].entry,
                                         &lane->flights[f].exit,
                                         &lane->flights[f].gradient};

            for (int h = 0; h < 3; h++) {
                const status result = comm_wait(all[h]);

                if (first == OK) first = result;
            }
        }
        for (int r = 0; r < p->chunks[i].returns; r++) {
            const status result = comm_wait(&lane->returns[r]);

            if (first == OK) first = result;
        }
    }
    return first;
}

/* The sentence of what failed outlives the end of what was under way. */
static status give_up(struct executor *e, status result)
{
    char sentence[COMM_REASON_BYTES];

    snprintf(sentence, sizeof sentence, "%s", status_message());
    if (e->team->world != NULL) group_abort(e->team->world, sentence);
    settle(e);
    status_clear();
    FAIL(result, "%s", sentence);
}

status executor_run(struct executor *executor,
                    const struct sample_source *source)
{
    const struct pipeline *p = executor->pipeline;
    const struct action_list *list = &p->schedule.lists[p->rank];

    executor->source = source;
    if (executor->round == 0) {
        executor->data_s = 0;
        loss_begin(&executor->loss);
        loss_begin(&executor->z_loss);
    }
    for (int i = 0; i < list->count; i++) {
        const status result = perform(executor, list->items[i]);

        if (result != OK) return give_up(executor, result);
    }
    const status result = settle(executor);

    return result == OK ? OK : give_up(executor, result);
}

/* ---- F alone ---- */

/* The stages of this rank in the direction of micro-batch 0, each with the
 * frame whose turn it is. */
static status forward_stage(struct executor *e, int stage, int64_t first,
                            int64_t number)
{
    const struct action action = {.kind = ACTION_FORWARD,
                                  .stage = (int16_t)stage};
    struct action transfer = action;
    struct work w = work_of(e, action);

    w.frame = (int)(number % w.stage->request.frames);
    w.flight = &w.lane->flights[w.frame];
    TRY(comm_wait(&w.flight->exit));
    TRY(fill_batch(e, w.stage, w.frame, first, 0));
    if (stage > 0 && is_here(e, action, -1)) {
        const int before = pipeline_chunk(e->pipeline, stage - 1, 0);

        copy(run_entry(&w.stage->run),
             run_exit(&e->pipeline->stages[before].run));
    } else if (stage > 0) {
        transfer.kind = ACTION_RECEIVE_FORWARD;
        TRY(post(e, COMM_RECV, transfer, run_entry(&w.stage->run),
                 &w.flight->entry));
        TRY(comm_wait(&w.flight->entry));
    }
    TRY(run_forward(&w.stage->run));
    if (stage == e->pipeline->schedule.stages - 1 || is_here(e, action, 1))
        return OK;
    transfer.kind = ACTION_SEND_FORWARD;
    return post(e, COMM_SEND, transfer, run_exit(&w.stage->run),
                &w.flight->exit);
}

status executor_forward(struct executor *executor,
                        const struct sample_source *source, int64_t first,
                        int64_t number)
{
    const struct pipeline *p = executor->pipeline;

    executor->source = source;
    for (int stage = 0; stage < p->schedule.stages; stage++) {
        const int chunk = pipeline_chunk(p, stage, 0);
        status result;

        if (chunk < 0) continue;
        struct run *run = &p->stages[chunk].run;
        struct gradients *gradients = run->gradients;

        run->gradients = NULL; /* F makes the losses itself */
        result = forward_stage(executor, stage, first, number);
        run->gradients = gradients;
        if (result != OK) return give_up(executor, result);
    }
    return OK;
}

status executor_settle(struct executor *executor)
{
    const status result = settle(executor);

    return result == OK ? OK : give_up(executor, result);
}

/* ---- what is not finite ---- */

static status fail_layer(const struct program *p, int which, int index)
{
    if (which < 0)
        FAIL(ERR_NUMERIC, "the loss of micro-batch %d is not finite", index);
    if (p->steps[which].block < 0)
        FAIL(ERR_NUMERIC, "the output of layer %s (step %d of the program) is "
                          "not finite", p->steps[which].layer->name,
             p->first_step + which);
    FAIL(ERR_NUMERIC, "the output of layer %s of block %d (step %d of the "
                      "program) is not finite",
         p->steps[which].layer->name, p->steps[which].block,
         p->first_step + which);
}

/* Finds a stage whose input is finite and whose output is not. */
static status find_in_stage(struct executor *e, struct work *w)
{
    struct run *run = &w->stage->run;
    const bool ends = w->action.stage == e->pipeline->schedule.stages - 1;
    int which;

    if (w->action.stage > 0) {
        const struct tensor entry = run_entry(run);

        for (int64_t i = 0; i < tensor_count(&entry); i++)
            if (!isfinite(tensor_get(&entry, i))) return OK;
    }
    TRY(run_find_nan(run, &which));
    if (which < 0 && !ends) return OK;
    return fail_layer(&w->stage->program, which, w->action.microbatch);
}

/* F once more, through all stages, then each looks at its own. */
status executor_find_bad(struct executor *executor,
                         const struct sample_source *source, int index)
{
    const struct pipeline *p = executor->pipeline;

    executor->source = source;
    for (int stage = 0; stage < p->schedule.stages; stage++) {
        status result;

        if (pipeline_chunk(p, stage, 0) < 0) continue;
        result = forward_stage(executor, stage,
                               first_sequence(executor, index), 0);
        if (result != OK) return give_up(executor, result);
    }
    TRY(executor_settle(executor));
    for (int stage = 0; stage < p->schedule.stages; stage++) {
        struct work w;

        if (pipeline_chunk(p, stage, 0) < 0) continue;
        w = work_of(executor, (struct action){.kind = ACTION_FORWARD,
                                              .stage = (int16_t)stage,
                                              .microbatch = 0});
        stage_use_frame(w.stage, 0);
        w.action.microbatch = index;
        TRY(find_in_stage(executor, &w));
    }
    return OK;
}
