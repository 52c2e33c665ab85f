/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - one optimizer step: the executor of the schedule, the loss as a
 * tree over the leaves of the grid, and the update. */
#include "train/step.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct update_arena arena_of(const struct stage *stage,
                                    enum memory_owner owner)
{
    return (struct update_arena){stage->memory[owner].data,
                                 stage_divides(stage, owner)};
}

status train_step_build(struct train_step *step, struct stage *stage,
                        const char *schedule)
{
    const struct program *p = &stage->program;

    *step = (struct train_step){.stage = stage, .team = &step->alone};
    TRY(schedule_build(&step->schedule, schedule, 1,
                       (int)(p->batch / p->sequences)));
    TRY(schedule_verify(&step->schedule));
    CHECK(schedule_held(&step->schedule) == 1); /* one frame is planned */
    step->update = (struct update){
        .kernels = &stage->kernels, .stream = &stage->stream,
        .params = &p->params, .holding = &stage->holding,
        .shards = &stage->shards,
        .weights = arena_of(stage, MEMORY_WEIGHTS),
        .gradients = arena_of(stage, MEMORY_GRADIENTS),
        .first = arena_of(stage, MEMORY_FIRST_MOMENT),
        .second = arena_of(stage, MEMORY_SECOND_MOMENT),
        .blocks = stage->memory[MEMORY_NORM].data};
    zero_build(&step->zero, stage, step->team);
    return OK;
}

void train_step_join(struct train_step *step, struct team *team)
{
    step->team = team;
    step->stage->run.tensor = team_group(team, TEAM_TENSOR);
    step->stage->run.context = team_group(team, TEAM_CONTEXT);
    step->stage->gradients.context = step->stage->run.context;
    zero_build(&step->zero, step->stage, team);
}

/* Of the calls inside a micro-batch, and of joining the sums of vectors. */
static size_t tensor_scratch(const struct stage *stage, struct team *team)
{
    const struct group *tensor = team_group(team, TEAM_TENSOR);

    if (tensor == NULL) return 0;
    const size_t a = program_message_bytes(&stage->program, tensor);
    const size_t b = gradients_message_bytes(&stage->gradients, tensor);

    return a > b ? a : b;
}

size_t train_step_scratch(struct stage *stage, struct team *team,
                          int64_t values)
{
    const int64_t norm =
        (int64_t)stage->program.params.orders * stage->holding.leaves;
    const size_t needs[] = {team_scratch_bytes(team, values),
                            team_owned_scratch(team, norm),
                            zero_scratch_bytes(stage, team),
                            tensor_scratch(stage, team),
                            gradient_join_bytes(
                                &stage->gradients,
                                team_group(team, TEAM_CONTEXT))};
    size_t most = 0;

    for (int i = 0; i < 5; i++)
        if (needs[i] > most) most = needs[i];
    return most + ARENA_ALIGN;
}

void train_step_free(struct train_step *step)
{
    schedule_free(&step->schedule);
    *step = (struct train_step){0};
}

/* ---- the executor ---- */

/* Sequence s of the micro-batch: this rank's two spans of it. */
static status fill_sequence(struct stage *stage,
                            const struct sample_source *source, int64_t index,
                            int64_t s, struct stage_batch *arrays)
{
    const struct program *p = &stage->program;
    const int64_t at = s * p->length, span = p->length / 2;
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
        for (int second = 0; second < 2; second++)
            memcpy(to[i] + at + second * span,
                   from[i] + program_span(p, second),
                   (size_t)span * sizeof(int32_t));
    return OK;
}

static status fill_batch(struct train_step *step,
                         const struct sample_source *source, int64_t first,
                         int64_t micro_batch)
{
    struct stage *stage = step->stage;
    const struct program *p = &stage->program;
    struct stage_batch arrays = stage_batch(stage, 0);
    const double began = now_s();

    for (int64_t s = 0; s < p->sequences; s++)
        TRY(fill_sequence(stage, source,
                          first + micro_batch * p->sequences + s, s, &arrays));
    for (int64_t t = 0; t < p->tokens; t++)
        step->loss.targets += arrays.targets[t] >= 0;
    stage->run.batch = (struct batch){
        .index = micro_batch, .inputs = arrays.inputs,
        .targets = arrays.targets, .positions = arrays.positions,
        .documents = arrays.documents,
        .whole_documents = arrays.whole_documents, .tokens = p->tokens};
    step->data_s += now_s() - began;
    return OK;
}

static status fail_layer(struct run *run)
{
    const struct program *p = run->program;
    int which;

    TRY(run_find_nan(run, &which));
    if (which < 0)
        FAIL(ERR_NUMERIC, "the loss of micro-batch %lld is not finite",
             (long long)run->batch.index);
    if (p->steps[which].block < 0)
        FAIL(ERR_NUMERIC, "the output of layer %s (step %d of the program) is "
                          "not finite", p->steps[which].layer->name, which);
    FAIL(ERR_NUMERIC, "the output of layer %s of block %d (step %d of the "
                      "program) is not finite",
         p->steps[which].layer->name, p->steps[which].block, which);
}

static status check_losses(struct train_step *step)
{
    struct run *run = &step->stage->run;

    for (int64_t t = 0; t < step->stage->program.tokens; t++)
        if (!isfinite(run->losses[t])) return fail_layer(run);
    return OK;
}

static status execute(struct train_step *step,
                      const struct sample_source *source)
{
    struct run *run = &step->stage->run;
    const struct action_list *list = &step->schedule.lists[0];
    const int64_t first =
        team_batch_rank(step->team) * step->stage->program.batch;

    for (int i = 0; i < list->count; i++) {
        const struct action action = list->items[i];

        switch ((enum action_kind)action.kind) {
        case ACTION_FORWARD:
            TRY(fill_batch(step, source, first, action.microbatch));
            TRY(run_forward(run));
            break;
        case ACTION_BACKWARD_INPUT:
            TRY(run_backward_input(run)); /* the losses are known after it */
            TRY(check_losses(step));
            loss_add(&step->loss, &step->stage->program, action.microbatch,
                     run->losses);
            break;
        case ACTION_BACKWARD_WEIGHT:
            TRY(run_backward_weight(run));
            break;
        default: /* one rank has no transfers */
            break;
        }
    }
    return OK;
}

static status step_gradients(struct train_step *step,
                             const struct sample_source *source,
                             struct step_result *out)
{
    struct gradients *gradients = &step->stage->gradients;
    const struct program *p = &step->stage->program;
    double leaves[LEAVES_MAX], root;

    step->loss.targets = 0;
    step->data_s = 0;
    gradients_reset(gradients);
    TRY(execute(step, source));
    TRY(gradients_join(gradients, team_group(step->team, TEAM_TENSOR)));
    gradients_close(gradients);
    TRY(zero_gradients(&step->zero));
    loss_leaves(&step->loss, p, leaves);
    TRY(team_context_leaves(step->team, leaves, p->grid.data,
                            &step->loss.targets));
    root = grid_tree(leaves, p->grid.data);
    TRY(team_loss(step->team, &root, &step->loss.targets));
    if (step->loss.targets == 0)
        FAIL(ERR_NUMERIC, "no token of the batch has a target; documents of "
                          "one token, or all masked");
    TRY(update_average(&step->update, step->loss.targets));
    *out = (struct step_result){.loss = root / (double)step->loss.targets,
                                .targets = step->loss.targets};
    return OK;
}

/* The norm of all gradients, the same on every rank. */
static status step_norm(struct train_step *step, struct update_result *out)
{
    const struct stage *stage = step->stage;
    const struct param_table *params = &stage->program.params;
    const int64_t count = (int64_t)params->orders * stage->holding.leaves;
    double *sums = stage_norm_sums(stage);

    for (int64_t i = 0; i < count; i++) sums[i] = 0;
    TRY(update_blocks(&step->update));
    TRY(zero_blocks(&step->zero, step->update.blocks));
    update_squares(&step->update, sums);
    TRY(team_owned(step->team, sums, count));
    return update_norm(&step->update, sums, params->orders, out);
}

status train_step_run(struct train_step *step,
                      const struct sample_source *source, double lr,
                      int64_t t, struct step_result *out)
{
    struct update_result norm;

    TRY(step_gradients(step, source, out));
    TRY(step_norm(step, &norm));
    out->norm = norm.norm;
    out->factor = norm.factor;
    TRY(update_apply(&step->update, norm.factor, lr, t));
    return zero_weights(&step->zero);
}

/* ---- evaluation ---- */

struct limited {
    const struct sample_source *source;
    int64_t count, length;
};

/* Stands for sequences beyond the last too: no targets. */
static status fill_or_mask(void *argument, int64_t index, int32_t *inputs,
                           int32_t *targets, int32_t *positions,
                           int32_t *documents)
{
    const struct limited *limited = argument;

    if (index < limited->count)
        return limited->source->fill(limited->source->argument, index, inputs,
                                     targets, positions, documents);
    for (int64_t t = 0; t < limited->length; t++) {
        inputs[t] = 0;
        targets[t] = -1;
        positions[t] = (int32_t)t;
        documents[t] = 0;
    }
    return OK;
}

/* The share [first, last) of this rank, into out->sums. */
static status evaluate_share(struct train_step *step,
                             const struct sample_source *source,
                             int64_t first, int64_t last,
                             struct evaluation *out)
{
    struct stage *stage = step->stage;
    const struct program *p = &stage->program;
    struct limited limited = {source, last, program_sequence(p)};
    const struct sample_source wrapped = {fill_or_mask, &limited};

    for (int64_t i = 0; first + i * p->sequences < last; i++) {
        step->loss.targets = 0;
        TRY(fill_batch(step, &wrapped, first, i));
        TRY(run_forward(&stage->run));
        for (int64_t s = 0; s < p->sequences; s++) {
            const int64_t at = first + i * p->sequences + s;
            double sum = loss_sequence(p, stage->run.losses + s * p->length);

            if (at < last) out->sums[at] = sum;
        }
        out->targets += step->loss.targets;
    }
    return OK;
}

status train_evaluate(struct train_step *step,
                      const struct sample_source *source, int64_t count,
                      struct evaluation *out)
{
    struct gradients *gradients = step->stage->run.gradients;
    const int64_t rank = team_batch_rank(step->team);
    const int64_t size = team_batch_size(step->team);
    double targets;
    status result;

    for (int64_t i = 0; i < count; i++) out->sums[i] = 0;
    out->sum = 0;
    out->targets = 0;
    step->stage->run.gradients = NULL; /* F makes the losses itself */
    result = evaluate_share(step, source, rank * count / size,
                            (rank + 1) * count / size, out);
    step->stage->run.gradients = gradients;
    TRY(result);
    TRY(team_context_leaves(step->team, out->sums, count, &out->targets));
    targets = (double)out->targets;
    TRY(team_join(step->team, out->sums, count));
    TRY(team_join(step->team, &targets, 1));
    out->targets = (int64_t)targets;
    for (int64_t i = 0; i < count; i++) out->sum += out->sums[i];
    return OK;
}
