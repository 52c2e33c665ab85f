/* SPDX-License-Identifier: Apache-2.0 */
/* micro_batches.c - instructions of micro-batches: sequences, F, B and W, and
 * transfers between stages. */
#include "step/micro_batches.h"

#include "base/meter.h"
#include "comm/progress.h"

static struct stage *stage_at(const struct executor *e,
                              const struct instruction *i)
{
    return &e->pipeline->stages[i->chunk];
}

/* The micro-batch in the schedule; F alone goes in the direction of 0. */
static int of_schedule(const struct executor *e, const struct instruction *i)
{
    return e->step_runs ? i->microbatch % e->pipeline->schedule.microbatches
                        : 0;
}

/* ---- sequences ---- */

/* The first sequence of a micro-batch in the global batch. */
static int64_t first_sequence(const struct executor *e,
                              const struct instruction *i)
{
    if (!e->step_runs) return e->first;
    return pipeline_first_sequence(e->pipeline, team_batch_rank(e->team),
                                   i->microbatch);
}

/* Where a micro-batch's sequences may have been read ahead. */
static int room_of(const struct executor *e, const struct instruction *i)
{
    return e->step_runs ? i->microbatch : read_ahead_room_forward(e->pipeline);
}

/* A sequence of a micro-batch, whole. */
struct wanted {
    int64_t index;
    int room;
};

static status fetch(const struct executor *e, const struct wanted *wanted,
                    const struct stage_batch *to)
{
    return read_ahead_take(e->ahead, &(struct read_ahead_sequence){
                                         e->source, wanted->index, wanted->room,
                                         to->inputs, to->targets, to->positions,
                                         to->documents});
}

/* Sequence s of the micro-batch: this rank's tokens of it. */
static status fill_sequence(const struct executor *e, struct stage *stage,
                            const struct wanted *wanted, int64_t s,
                            struct stage_batch *arrays)
{
    const struct program *p = &stage->program;
    const int64_t at = s * p->size.length;
    const int ranks = p->layout.mesh.size[AXIS_CONTEXT];
    const struct later_arrays later = {arrays->mtp_inputs,
                                       arrays->mtp_targets, p->size.tokens};

    if (ranks == 1) {
        TRY(fetch(e, wanted, &(struct stage_batch){
            .inputs = arrays->inputs + at, .targets = arrays->targets + at,
            .positions = arrays->positions + at,
            .documents = arrays->documents + at}));
        later_fill(p, &(struct later_sequence){
            arrays->inputs + at, arrays->targets + at, arrays->documents + at,
            p->size.length}, &later, at);
        return OK;
    }
    int32_t *documents = arrays->whole_documents + s * p->size.length * ranks;
    const int32_t *from[] = {arrays->whole_inputs, arrays->whole_targets,
                             arrays->whole_positions, documents};
    int32_t *to[] = {arrays->inputs, arrays->targets, arrays->positions,
                     arrays->documents};

    TRY(fetch(e, wanted, &(struct stage_batch){
        .inputs = arrays->whole_inputs, .targets = arrays->whole_targets,
        .positions = arrays->whole_positions, .documents = documents}));
    for (int i = 0; i < 4; i++)
        for (int64_t t = 0; t < p->size.length; t++)
            to[i][at + t] = from[i][program_position(p, t)];
    later_fill(p, &(struct later_sequence){
        arrays->whole_inputs, arrays->whole_targets, documents,
        p->size.length * ranks}, &later, at);
    return OK;
}

static status fill_sequences(const struct executor *e,
                             const struct instruction *i,
                             struct stage_batch *arrays)
{
    struct stage *stage = stage_at(e, i);
    const int64_t first = first_sequence(e, i);

    for (int64_t s = 0; s < stage->program.size.sequences; s++)
        TRY(fill_sequence(e, stage, &(struct wanted){first + s, room_of(e, i)},
                          s, arrays));
    return OK;
}

status micro_batch_read_ahead(struct executor *e, const struct instruction *i)
{
    const struct sample_source *source = e->step_runs ? &e->next : e->source;
    const struct instruction *items =
        e->step_runs ? e->step.items : e->forward.items;
    const struct read_ahead_request request = {
        source, e->step_runs ? first_sequence(e, i) : e->follows,
        room_of(e, i), (int)(i - items)};

    return source->content == 0 || request.first < 0
               ? OK : read_ahead_start(e->ahead, &request);
}

static status sample(struct executor *e, const struct instruction *i)
{
    struct stage *stage = stage_at(e, i);
    const struct program *p = &stage->program;
    const int64_t first = first_sequence(e, i), began = meter_now_ns();
    struct stage_batch arrays = stage_batch(stage, i->buffer);
    struct meter_track *track = meter_begin();
    const int index =
        e->step_runs
            ? pipeline_of_round(e->pipeline, i->chunk, i->microbatch) : 0;

    TRY(fill_sequences(e, i, &arrays));
    stage->batches[i->buffer] = (struct batch){
        .index = index, .inputs = arrays.inputs,
        .targets = arrays.targets, .positions = arrays.positions,
        .documents = arrays.documents,
        .mtp_inputs = arrays.mtp_inputs, .mtp_targets = arrays.mtp_targets,
        .whole_documents = arrays.whole_documents, .tokens = p->size.tokens,
        .sequence = e->source->first + first};
    meter_end(track, &(struct meter_what){
        .kind = METER_DATA, .name = "samples",
        .bytes = 4.0 * sizeof(int32_t) * (double)p->size.tokens});
    e->data_s += 1e-9 * (double)(meter_now_ns() - began);
    return OK;
}

/* The targets of a micro-batch's sequences. */
static status count_sequences(struct executor *e, const struct instruction *i)
{
    struct stage *stage = stage_at(e, i);
    const struct program *p = &stage->program;
    const struct stage_batch arrays = stage_batch(stage, 0);
    const bool whole = p->layout.mesh.size[AXIS_CONTEXT] == 1;
    const struct later_sequence s = {
        whole ? arrays.inputs : arrays.whole_inputs,
        whole ? arrays.targets : arrays.whole_targets,
        whole ? arrays.documents : arrays.whole_documents,
        program_sequence(p)};
    int32_t *const positions =
        whole ? arrays.positions : arrays.whole_positions;
    const int64_t first = first_sequence(e, i);

    for (int64_t at = 0; at < p->size.sequences; at++) {
        TRY(fetch(e, &(struct wanted){first + at, room_of(e, i)},
                  &(struct stage_batch){
                      .inputs = s.inputs, .targets = s.targets,
                      .positions = positions, .documents = s.documents}));
        later_count(&e->later, &s);
    }
    return OK;
}

status micro_batch_count_targets(struct executor *e)
{
    const struct place *place = &e->team->place;
    const int last = e->pipeline->schedule.stages - 1;

    for (int i = 0; i < e->step.count && place->at[AXIS_TENSOR] == 0 &&
                    place->at[AXIS_CONTEXT] == 0; i++) {
        const struct instruction *at = &e->step.items[i];

        if (at->kind == DO_SAMPLE &&
            e->pipeline->chunks[at->chunk].number == last)
            TRY(count_sequences(e, at));
    }
    return later_weigh(&e->later, e->team, e->pipeline);
}

/* ---- F, B and W ---- */

static status add_losses(struct executor *e, const struct instruction *i)
{
    const struct run *run = &stage_at(e, i)->run;
    const int64_t first = first_sequence(e, i);

    TRY(device_finish(run->stream));
    if (e->step_runs && e->used != NULL &&
        e->team->place.at[AXIS_TENSOR] == 0 &&
        e->team->place.at[AXIS_CONTEXT] == 0)
        e->used(e->used_argument, first, run->program->size.sequences);
    loss_add(&e->loss, run, run->losses, first, i->microbatch);
    if (run->z_losses != NULL)
        loss_add(&e->z_loss, run, run->z_losses, first, i->microbatch);
    later_add(&e->later, run, first, i->microbatch);
    return OK;
}

/* One span for all parts of an F, B or W. */
static status add_span(struct executor *e, const struct instruction *i,
                       const struct frame_plan *frame)
{
    static const enum action_kind kinds[DO_COUNT] = {
        [DO_FORWARD] = ACTION_FORWARD, [DO_BACKWARD] = ACTION_BACKWARD_INPUT,
        [DO_WEIGHT] = ACTION_BACKWARD_WEIGHT};
    const int ends[DO_COUNT] = {[DO_FORWARD] = frame->forward_end,
                                [DO_BACKWARD] = frame->backward_end,
                                [DO_WEIGHT] = frame->event_count};

    if (e->timeline == NULL || !e->step_runs ||
        i->last_event < ends[i->kind])
        return OK;
    return timeline_add(
        e->timeline,
        (struct timeline_span){
            .action = {.kind = (int8_t)kinds[i->kind], .stage = i->stage,
                       .microbatch = of_schedule(e, i)},
            .rank = e->pipeline->rank,
            .begin_ns = e->began[i->chunk] - e->began_ns,
            .end_ns = meter_now_ns() - e->began_ns,
            .instruction = (int)(i - e->step.items)});
}

static status compute(struct executor *e, const struct instruction *i)
{
    static const char *const names[DO_COUNT] = {
        [DO_FORWARD] = "forward", [DO_BACKWARD] = "backward input",
        [DO_WEIGHT] = "backward weight"};
    struct stage *stage = stage_at(e, i);
    const struct frame_plan *frame = &stage->frame;
    struct meter_track *track = meter_outline();
    status result;

    if (i->first_event == 0 || i->first_event == frame->forward_end ||
        i->first_event == frame->backward_end)
        e->began[i->chunk] = meter_now_ns();
    stage_use_frame(stage, i->buffer);
    result = run_part(&stage->run, i->first_event, i->last_event);
    if (result == OK && i->kind == DO_BACKWARD &&
        i->last_event == frame->backward_end &&
        i->stage == e->pipeline->schedule.stages - 1 &&
        e->team->place.at[AXIS_TENSOR] == 0)
        result = add_losses(e, i);
    if (result == OK) result = add_span(e, i, frame);
    meter_end(track, &(struct meter_what){
        .kind = METER_OTHER, .name = names[i->kind],
        .number = i->microbatch});
    return result;
}

/* ---- transfers ---- */

static struct tensor in_frame(struct stage *stage, int frame,
                              struct tensor (*border)(const struct run *))
{
    stage_use_frame(stage, frame);
    return border(&stage->run);
}

static status copy(struct stage *stage, struct tensor to, struct tensor from)
{
    CHECK(tensor_count(&to) == tensor_count(&from));
    return device_copy(&stage->stream, to.data, from.data,
                       (size_t)tensor_bytes(&to));
}

/* The stage before, which is here. */
static struct stage *before(const struct executor *e,
                            const struct instruction *i)
{
    return &e->pipeline->stages[pipeline_chunk(e->pipeline, i->stage - 1,
                                               of_schedule(e, i))];
}

static status copy_entry(const struct executor *e, const struct instruction *i)
{
    const struct tensor to = in_frame(stage_at(e, i), i->buffer, run_entry);

    return copy(stage_at(e, i), to,
                in_frame(before(e, i), i->other, run_exit));
}

static status copy_back(const struct executor *e, const struct instruction *i)
{
    const struct tensor to =
        in_frame(before(e, i), i->other, run_exit_gradient);

    return copy(stage_at(e, i), to,
                in_frame(stage_at(e, i), i->buffer, run_entry_gradient));
}

/* The gradient on its way back: out of the frame, which may be needed again. */
static struct tensor returned(const struct executor *e,
                              const struct instruction *i)
{
    struct tensor gradient =
        in_frame(stage_at(e, i), i->buffer, run_entry_gradient);

    gradient.data = pipeline_return(e->pipeline, i->chunk, i->other);
    return gradient;
}

static status keep(const struct executor *e, const struct instruction *i)
{
    const struct tensor to = returned(e, i);

    return copy(stage_at(e, i), to,
                in_frame(stage_at(e, i), i->buffer, run_entry_gradient));
}

/* A tag says which border between two stages, of which micro-batch, in which
 * direction, whatever else is under way. */
static status post(struct executor *e, const struct instruction *i,
                   struct tensor data, struct comm_handle *handle)
{
    const bool backward = i->kind == DO_SEND_BACK ||
                          i->kind == DO_RECEIVE_BACK;
    const bool above = i->kind == DO_SEND || i->kind == DO_RECEIVE_BACK;
    const int lower = i->stage - (above ? 0 : 1);
    const int64_t tag = ((int64_t)of_schedule(e, i) *
                             e->pipeline->schedule.stages + lower) * 2 +
                        backward;
    const struct tensor flat =
        tensor_1d(data.data, data.dtype, tensor_count(&data));
    const struct comm_call call = {
        .kind = instruction_rows[i->kind].call, .peer = i->peer,
        .tag = (int)(tag % INT32_MAX), .in = flat, .out = flat};

    return comm_start(team_group(e->team, AXIS_PIPE), &call, handle);
}

status micro_batch_act(struct executor *e, const struct instruction *i,
                       struct comm_handle *handle)
{
    struct stage *stage = stage_at(e, i);

    switch ((enum instruction_kind)i->kind) {
    case DO_SAMPLE: return sample(e, i);
    case DO_FORWARD: case DO_BACKWARD: case DO_WEIGHT: return compute(e, i);
    case DO_COPY:
        return copy_entry(e, i);
    case DO_COPY_BACK:
        return copy_back(e, i);
    case DO_KEEP: return keep(e, i);
    case DO_SEND:
        return post(e, i, in_frame(stage, i->buffer, run_exit), handle);
    case DO_RECEIVE:
        return post(e, i, in_frame(stage, i->buffer, run_entry), handle);
    case DO_SEND_BACK: return post(e, i, returned(e, i), handle);
    case DO_RECEIVE_BACK:
        return post(e, i, in_frame(stage, i->buffer, run_exit_gradient),
                    handle);
    default: break;
    }
    CHECK(false);
    return OK;
}
