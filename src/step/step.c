/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - one optimizer step: the schedule, the sums over the ranks, and the
 * update. */
#include "step/step.h"

#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "base/meter.h"
#include "optimizer/average.h"

/* ---- building ---- */

static struct update_arena arena_of(const struct stage *stage,
                                    enum memory_owner owner)
{
    return (struct update_arena){stage->memory[owner].data,
                                 stage_level(stage, owner)};
}

/* True if a value that is not finite is no error: a probe or the policy decides
 * about it. */
static bool tolerates(const struct train_step *step)
{
    return step->probes || step->guard.takes_nan;
}

/* One chunk, with the rates of the step. */
static struct update chunk_update(const struct train_step *step, int chunk)
{
    struct stage *stage = &step->pipeline->stages[chunk];
    struct update update = step->update;

    update.kernels = &stage->kernels;
    update.real = &stage->real;
    update.stream = &stage->stream;
    update.params = &stage->program.params;
    update.holding = &stage->holding;
    update.shards = &stage->shards;
    update.weights = arena_of(stage, MEMORY_WEIGHTS);
    update.copy = arena_of(stage, MEMORY_COMPUTE);
    update.split.ties = stage_masters(stage, false).ties;
    update.split.room =
        tensor_1d(stage->memory[MEMORY_MASTERS].data, DTYPE_F32,
                  (int64_t)(stage->masters_bytes / sizeof(float)));
    update.gone = stage->coded.gone;
    update.loss_scale = loss_scale_factor(&step->scaling);
    update.skips = step->scaling.dynamic || tolerates(step);
    update.gradients = arena_of(stage, MEMORY_GRADIENTS);
    update.layout = &stage->states;
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        update.states[i] = stage->memory[MEMORY_STATE_0 + i].data;
    update.blocks = stage->memory[MEMORY_NORM].data;
    update.whole = &step->whole[chunk];
    return update;
}

struct update train_step_update(const struct train_step *step, int chunk)
{
    struct stage *stage = &step->pipeline->stages[chunk];
    struct update update = chunk_update(step, chunk);

    update.from = stage->kept.from;
    update.sum = stage->kept.counts ? &stage->kept.sum : NULL;
    return update;
}

/* Room of messages between tensor ranks that run beside products. */
static size_t background_bytes(const struct pipeline *pipeline,
                               struct team *team)
{
    const struct group *tensor = team_group(team, AXIS_TENSOR);
    size_t most = 0;

    for (int i = 0; tensor != NULL && i < pipeline->count; i++) {
        const struct program *p = &pipeline->stages[i].program;
        const size_t bytes =
            p->layout.overlap.count > 1 ? program_message_bytes(p, tensor) : 0;

        if (bytes > most) most = bytes;
    }
    return arena_aligned(most);
}

/* The end of the messages' room is that of messages beside products. */
static void use_background(const struct train_step *step, struct run *run)
{
    const struct memory_row *row =
        &step->pipeline->stages[0].memory[MEMORY_MESSAGES];
    const size_t bytes = background_bytes(step->pipeline, step->team);

    if (row->data != NULL)
        run->background.room = (char *)row->data + row->bytes - bytes;
    run->background.bytes = bytes;
}

static status tail_act(void *argument, const struct instruction *i);

static status join_chunk(struct train_step *step, int chunk)
{
    struct stage *stage = &step->pipeline->stages[chunk];

    for (int axis = AXIS_CONTEXT; axis < AXIS_COUNT; axis++)
        stage->run.groups[axis] = team_axis_group(step->team, (enum axis)axis);
    use_background(step, &stage->run);
    stage->gradients.context = stage->run.groups[AXIS_CONTEXT];
    TRY(zero_build(&step->zero[chunk], stage, step->team));
    TRY(whole_work_build(&step->whole[chunk], &stage->states.matrices,
                         team_group(step->team, TEAM_STAGE),
                         stage->memory[MEMORY_WHOLE].data));
    step->whole[chunk].host = stage_whole_host(stage);
    return OK;
}

/* Nothing here waits for another rank. */
static status build_parts(struct train_step *step)
{
    struct pipeline *pipeline = step->pipeline;
    void *memory = NULL;

    TRY(memory_take((size_t)pipeline->count, sizeof *step->zero, &memory));
    step->zero = memory;
    TRY(memory_take((size_t)pipeline->count, sizeof *step->whole, &memory));
    step->whole = memory;
    TRY(memory_take(2 * (size_t)team_batch_size(step->team),
                    sizeof *step->bad, &memory));
    step->bad = memory;
    for (int i = 0; i < pipeline->count; i++) TRY(join_chunk(step, i));
    step->update = chunk_update(step, 0);
    tied_build(&step->tied, pipeline, step->team);
    TRY(qk_clip_build(&step->clip, pipeline));
    TRY(delayed_build(&step->delayed, pipeline));
    return routing_build(&step->routing, pipeline);
}

status train_step_build(struct train_step *step, struct pipeline *pipeline,
                        struct team *team)
{
    *step = (struct train_step){.pipeline = pipeline};
    step->team = team != NULL ? team : &step->alone;
    TRY(team_agree(step->team, build_parts(step)));
    return executor_build(&step->executor, pipeline, step->team, step->zero,
                          (struct executor_tail){tail_act, step});
}

void train_step_free(struct train_step *step)
{
    for (int i = 0; step->zero != NULL && i < step->pipeline->count; i++)
        zero_free(&step->zero[i]);
    for (int i = 0; step->whole != NULL && i < step->pipeline->count; i++)
        whole_work_free(&step->whole[i]);
    executor_free(&step->executor);
    qk_clip_free(&step->clip);
    delayed_free(&step->delayed);
    routing_free(&step->routing);
    memory_free(step->zero);
    memory_free(step->whole);
    memory_free(step->bad);
    *step = (struct train_step){0};
}

/* ---- scratch ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct comm_call sum_call(struct tensor values)
{
    return (struct comm_call){.kind = COMM_ALL_REDUCE,
                              .algorithm = ALGORITHM_ORDERED,
                              .reduction = REDUCE_SUM, .out = values,
                              .in = values};
}

/* For the calls inside a micro-batch, for joining the sums of vectors, and, of
 * the chunk's own, for what goes on in the background. */
static size_t reserve_chunk(struct stage *stage, struct team *team)
{
    const struct group *tensor = team_group(team, AXIS_TENSOR);
    const struct gradients *g = &stage->gradients;
    size_t bytes, background;

    zero_scratch(stage, team, &bytes, &background);
    stage_reserve(stage, MEMORY_BACKGROUND, background);
    bytes = larger(bytes, gradient_join_bytes(
                              g, team_group(team, AXIS_CONTEXT)));
    if (tensor == NULL) return bytes;
    bytes = larger(bytes, program_message_bytes(&stage->program, tensor));
    return larger(bytes, zero_join_bytes(stage, tensor));
}

void train_step_reserve(struct pipeline *pipeline, struct team *team,
                        int64_t values)
{
    const int64_t norm = pipeline_norm_values(pipeline);
    const int64_t loss =
        pipeline_loss_values(pipeline) + pipeline_later_values(pipeline);
    const int64_t peaks = pipeline_peak_values(pipeline);
    const int64_t routes = pipeline_route_values(pipeline);
    const int64_t late = pipeline_late_values(pipeline);
    const int64_t tallies = pipeline_tally_values(pipeline);
    const int64_t bad = 2 * team_batch_size(team);
    size_t bytes;

    if (norm > values) values = norm;
    if (loss > values) values = loss;
    if (peaks > values) values = peaks;
    if (routes > values) values = routes;
    if (late > values) values = late;
    if (tallies > values) values = tallies;
    if (bad > values) values = bad;
    bytes = team_scratch_bytes(team, values);
    for (int i = 0; i < pipeline->count; i++) {
        struct stage *stage = &pipeline->stages[i];
        const struct group *copies = team_copies(team, i);
        const struct comm_call sum = sum_call(tensor_1d(
            NULL, program_sum(&stage->program),
            stage->program.params.gradients));

        bytes = larger(bytes, reserve_chunk(stage, team));
        if (copies != NULL)
            bytes = larger(bytes, comm_scratch_bytes(copies, &sum));
    }
    pipeline_reserve_messages(pipeline, bytes + ARENA_ALIGN +
                                            background_bytes(pipeline, team));
}

/* ---- what is not finite ---- */

/* Each pipeline has its own micro-batch to look at, if any, and does so where
 * the weights are. */
static status find_bad(struct train_step *step,
                       const struct sample_source *source)
{
    const int size = team_batch_size(step->team);
    const int rank = team_batch_rank(step->team);
    const int direction = step->executor.loss.bad >
                          step->pipeline->schedule.turned;
    double *bad = step->bad;
    status result = OK;

    message_check_end(&step->executor.stated, step->team);
    for (int i = 0; i < 2 * size; i++) bad[i] = 0;
    bad[2 * rank + direction] = step->executor.loss.bad;
    TRY(team_join(step->team, bad, 2 * size));
    const double mine = bad[2 * rank] > 0 ? bad[2 * rank] : bad[2 * rank + 1];

    TRY(executor_settle(&step->executor));
    if (mine > 0 && step->pipeline->stages[0].run.params.placed == NULL)
        result = executor_find_bad(&step->executor, source, (int)mine - 1);
    TRY(team_agree(step->team, result));
    FAIL(ERR_NUMERIC, "a loss is not finite");
}

/* ---- gradients ---- */

/* Adds an expert's further sources, for which the same holds. */
static status sum_sources(struct gradients *g, struct group *copies,
                          int use)
{
    const int sources = g->program->uses[use].sources;

    if (sources == 1) return OK;
    for (int i = 1; i < sources && !g->program->sums.integer; i++) {
        const struct comm_call call =
            sum_call(gradient_source_root(g, use, i));

        TRY(comm_run(copies, &call));
    }
    return gradient_fold_sources(g, use);
}

/* A stage on two ranks: the roots of both halves of the leaves, on both. */
static status sum_copies(struct train_step *step, int chunk)
{
    struct gradients *g = &step->pipeline->stages[chunk].gradients;
    const struct program *p = g->program;
    struct group *copies = team_copies(step->team, chunk);
    struct comm_call call =
        sum_call(tensor_1d(g->root, program_sum(p), p->params.gradients));

    if (copies == NULL) return OK;
    TRY(comm_run(copies, &call));
    for (int i = 0; i < p->use_count; i++) {
        if (!gradient_made(p, i)) continue;
        TRY(sum_sources(g, copies, i));
        if (p->uses[i].number == 0) continue;
        call = sum_call(gradient_root(g, i));
        TRY(comm_run(copies, &call));
    }
    return OK;
}

void train_step_begin(struct train_step *step, int64_t number)
{
    struct pipeline *p = step->pipeline;

    for (int i = 0; i < p->count; i++) {
        const int64_t steps = p->stages[i].program.precision.steps;

        p->stages[i].run.now.high = steps > 0 && number >= steps;
        p->stages[i].run.now.number = number;
    }
    later_choose(&step->executor.later, &p->stages[0].program.regular, number);
}

/* Drills: rank 0's share of the loss goes wrong, and so everybody's. */
static void inject_loss(const struct train_step *step, struct loss_sum *loss)
{
    if (step->probes || team_rank(step->team) != 0) return;
    if (fault_due("train.nan")) {
        loss->table[0] = (double)NAN;
        loss->table[loss_count(loss) - 1] += 1;
    }
    if (fault_due("train.spike")) loss->table[0] += 1e9;
}

/* The loss of the whole batch, the same on every rank. */
static status join_loss(struct train_step *step)
{
    struct loss_sum *loss = &step->executor.loss;
    struct step_result *out = step->now.out;

    step->data_s = step->executor.data_s;
    inject_loss(step, loss);
    TRY(team_join(step->team, loss->table, loss_count(loss)));
    const bool bad = loss_is_bad(loss);

    if (bad && !tolerates(step)) return find_bad(step, step->now.source);
    out->targets = loss_targets(loss);
    if (out->targets == 0 && !tolerates(step))
        FAIL(ERR_NUMERIC, "no token of the batch has a target; documents of "
                          "one token, or all masked; train.on_nan=skip leaves "
                          "such batches out");
    out->loss = bad ? (double)NAN : loss_total(loss) / (double)out->targets;
    out->z_loss = (double)NAN;
    meter_scope(METER_OPTIMIZER); /* until the step ends */
    return OK;
}

static status join_z_loss(struct train_step *step)
{
    struct loss_sum *z_loss = &step->executor.z_loss;
    struct step_result *out = step->now.out;

    TRY(team_join(step->team, z_loss->table, loss_count(z_loss)));
    out->z_loss = loss_total(z_loss) / (double)out->targets;
    return OK;
}

static status join_later(struct train_step *step)
{
    bool bad = false;

    TRY(later_join(&step->executor.later, step->team, step->now.out->later,
                   &step->executor.loss, &bad));
    return bad && !tolerates(step) ? find_bad(step, step->now.source) : OK;
}

/* ---- the update ---- */

static void sum_squares(const struct update *update, double *sums)
{
    struct meter_track *track = meter_begin();

    update_squares(update, sums);
    meter_end(track, &(struct meter_what){.kind = METER_OPTIMIZER,
                                          .name = "tree of the norm"});
}

/* The mean gradient, and the squares of its blocks. */
static status square_blocks(struct train_step *step, int chunk)
{
    const struct update update = chunk_update(step, chunk);
    const int64_t targets = step->now.out->targets;

    return update_blocks(&update, targets > 0 ? targets : 1);
}

static status share_blocks(struct train_step *step,
                           const struct instruction *i)
{
    const struct update update = chunk_update(step, i->chunk);

    return zero_share(&step->zero[i->chunk], i, update.blocks);
}

/* The norm of all gradients, the same on every rank. */
static status join_norm(struct train_step *step)
{
    const struct pipeline *p = step->pipeline;
    const int64_t count = pipeline_norm_values(p);
    double *sums = stage_norm_sums(&p->stages[0]);
    status result = ERR_PEER;

    for (int64_t i = 0; i < count; i++) sums[i] = 0;
    for (int i = 0; i < p->count; i++) {
        const struct update update = chunk_update(step, i);

        if (p->chunks[i].copy == 0) sum_squares(&update, sums);
    }
    if (!step->probes && team_rank(step->team) == 0 && fault_due("train.norm"))
        sums[0] += 1e18;
    if (!step->probes && step->turn.ready != NULL)
        step->turn.ready(step->turn.argument);
    TRY(team_join(step->team, sums, count));
    for (int i = 0; i < p->count && result == ERR_PEER; i++) {
        const struct update update = chunk_update(step, i);

        result = update_norm(&update, sums, update.params->orders,
                             &step->now.norm);
    }
    if (result == OK) return OK;
    TRY(team_agree(step->team, result == ERR_PEER ? OK : result));
    return result;
}

/* Whether the weights change: what follows obeys. */
static status decide(struct train_step *step)
{
    const struct step_guard *guard = &step->guard;
    struct step_result *out = step->now.out;

    message_check_end(&step->executor.stated, step->team); /* watchers' calls
                                                            * follow */
    out->norm = step->now.norm.norm;
    out->factor = step->now.norm.factor;
    out->loss_scale = step->scaling.value > 0 ? step->scaling.value : 1;
    out->skipped = !step->now.norm.finite;
    step->now.updates = !out->skipped && !step->probes;
    if (step->probes) return OK;
    out->refused = guard->accepts != NULL &&
                   !guard->accepts(guard->argument, out);
    if (out->refused) step->now.updates = false;
    if (!out->refused && step->watch != NULL)
        TRY(step->watch->gradients(step->watch->argument));
    if (!step->now.updates) return OK;
    step->update.share = rate_share(&step->rates, step->now.lr);
    delayed_keep(&step->delayed); /* new weights are coded with it */
    return step->turn.act != NULL ? step->turn.act(step->turn.argument) : OK;
}

/* The update of one unit, where the instruction names it. */
static struct update unit_update(const struct train_step *step,
                                 const struct instruction *i)
{
    const struct stage *stage = &step->pipeline->stages[i->chunk];
    struct update update = train_step_update(step, i->chunk);

    if (i->unit < 0) return update;
    update.first = stage->shards.units[i->unit].first_param;
    update.end = update.first + stage->shards.units[i->unit].params;
    return update;
}

static status update_chunk(struct train_step *step,
                           const struct instruction *i)
{
    struct update update = unit_update(step, i);
    const struct update_call call = {step->now.norm.factor, step->now.lr,
                                     step->now.t};

    if (!step->now.updates) return OK;
    switch ((enum instruction_kind)i->kind) {
    case DO_UPDATE: /* whole tensors are the next instruction's */
        update.whole = NULL;
        return update_apply(&update, call.factor, call.lr, call.t);
    case DO_MATRICES: return whole_apply(&update, &call);
    case DO_CLIP: return qk_clip_apply(&step->clip, i->chunk, &update);
    case DO_BALANCE:
        return routing_balance(&step->routing, i->chunk, &update);
    default: return average_apply(&update);
    }
}

/* Whether to stop; the update is over. */
static status ask(struct train_step *step)
{
    struct step_result *out = step->now.out;

    if (step->probes || out->refused) return OK; /* the scale stays too */
    out->asked = step->asks != NULL ? step->asks(step->asks_argument)
                                     : 0;
    TRY(team_most(step->team, &out->asked));
    message_check_end(&step->executor.stated, step->team); /* watchers' calls
                                                            * follow */
    if (step->watch != NULL) TRY(step->watch->updated(step->watch->argument));
    if (!out->skipped) routing_keep(&step->routing);
    return loss_scale_after(&step->scaling, !out->skipped);
}

/* Instructions from the loss on, and those of stages on two ranks. */
static status tail_act(void *argument, const struct instruction *i)
{
    struct train_step *step = argument;

    switch ((enum instruction_kind)i->kind) {
    case DO_HALVES: return sum_copies(step, i->chunk);
    case DO_LOSS: return join_loss(step);
    case DO_Z_LOSS: return join_z_loss(step);
    case DO_LATER_LOSSES: return join_later(step);
    case DO_TIE: return tied_add(&step->tied, i->chunk);
    case DO_PEAKS:
        return qk_clip_share(&step->clip, step->team,
                             &step->now.out->max_score);
    case DO_LATE: return delayed_share(&step->delayed, step->team);
    case DO_ROUTES:
        return routing_share(&step->routing, step->team,
                             &step->now.out->routing);
    case DO_BLOCKS: return square_blocks(step, i->chunk);
    case DO_SHARE: return share_blocks(step, i);
    case DO_NORM: return join_norm(step);
    case DO_DECIDE: return decide(step);
    case DO_UPDATE: case DO_MATRICES: case DO_CLIP: case DO_BALANCE:
    case DO_AVERAGE:
        return update_chunk(step, i);
    case DO_ASK: return ask(step);
    default: break;
    }
    CHECK(false);
    return OK;
}

/* Drills: gradients of the losses that one rank has are infinite; nobody's loss
 * is. */
static void inject_gradients(const struct train_step *step)
{
    char name[32];

    snprintf(name, sizeof name, "gradient.infinite-%d",
             team_rank(step->team));
    if (step->probes || !fault_due(name)) return;
    for (int i = 0; i < step->pipeline->count; i++)
        step->pipeline->stages[i].run.now.loss_scale = (double)INFINITY;
}

static status run_all(struct train_step *step, const struct step_now *now)
{
    struct pipeline *p = step->pipeline;

    step->now = *now;
    *now->out = (struct step_result){.max_score = (double)NAN,
                                     .later = {(double)NAN, (double)NAN},
                                     .routing = routing_none()};
    qk_clip_begin(&step->clip);
    delayed_begin(&step->delayed);
    routing_begin(&step->routing);
    for (int i = 0; i < p->count; i++)
        p->stages[i].run.now.loss_scale = p->stages[i].gradients.factor =
            loss_scale_factor(&step->scaling);
    inject_gradients(step);
    step->executor.next = step->probes ? (struct sample_source){0} : step->next;
    return executor_run(&step->executor, now->source);
}

status train_step_probe(struct train_step *step,
                        const struct sample_source *source,
                        struct step_result *out)
{
    struct timeline *timeline = step->executor.timeline;
    const struct step_now now = {.source = source, .out = out};

    step->probes = true;
    step->executor.timeline = NULL; /* it has room for one step's actions */
    const status result = run_all(step, &now);

    step->executor.timeline = timeline;
    step->probes = false;
    return result;
}

status train_step_run(struct train_step *step,
                      const struct sample_source *source, double lr,
                      int64_t t, struct step_result *out)
{
    const struct step_now now = {.source = source, .lr = lr, .t = t,
                                 .out = out};

    return run_all(step, &now);
}

status train_step_start(struct train_step *step)
{
    TRY(stages_store(step->pipeline->stages, step->pipeline->count));
    for (int i = 0; i < step->pipeline->count; i++) {
        const struct update update = chunk_update(step, i);

        TRY(update_start(&update));
        TRY(average_start(&update));
    }
    return OK;
}

status train_step_swap(struct train_step *step)
{
    for (int i = 0; i < step->pipeline->count; i++) {
        const struct update update = chunk_update(step, i);

        TRY(average_swap(&update));
        TRY(zero_weights(&step->zero[i]));
    }
    return OK;
}

bool train_step_averages(const struct train_step *step)
{
    const struct stage_request *r = &step->pipeline->stages[0].request;
    const struct optimizer_kind *kind = r->training.choice.kind;

    return kind != NULL && kind->average != NULL;
}

/* New weights here, for the ranks that read them. */
static status exchange_average(struct train_step *step,
                               status (*set)(const struct update *))
{
    for (int i = 0; i < step->pipeline->count; i++) {
        const struct update update = chunk_update(step, i);

        TRY(set(&update));
        TRY(update_copy(&update));
        TRY(zero_weights(&step->zero[i]));
    }
    return OK;
}

status train_step_average(struct train_step *step)
{
    return train_step_averages(step) ? exchange_average(step, update_average)
                                     : OK;
}

status train_step_return(struct train_step *step)
{
    return train_step_averages(step) ? exchange_average(step, update_return)
                                     : OK;
}

status train_step_refresh(struct train_step *step)
{
    for (int i = 0; i < step->pipeline->count; i++) {
        const struct stage *stage = &step->pipeline->stages[i];
        const struct update update = chunk_update(step, i);

        if (stage_reads(stage) == MEMORY_WEIGHTS && stage->kept.other == 0)
            continue;
        TRY(update_copy(&update));
        TRY(zero_weights(&step->zero[i]));
    }
    return OK;
}
