/* SPDX-License-Identifier: Apache-2.0 */
/* test_zero.c - parameters of one stage that have copies on different ranks:
 * each is summed, divided, updated, listed and counted over its own group, and
 * the bits are those of one rank.
 *
 * The model has products whose rows the expert axis cuts, and a layer that
 * sends each sequence to one of them: to one that its rank holds, so that
 * nothing is exchanged and only the groups are at work. */
#include <math.h>
#include "nn/layer.h"
#include "proof/audit.h"
#include "step/inventory.h"
#include "step/step.h"
#include "tests/test.h"

enum { LENGTH = 8, BATCH = 16, VOCAB = 51, WIDTH = 40, LAYERS = 2, EXPERTS = 4,
       STEPS = 3, ELEMENTS_MAX = 1 << 15, PARAMS_MAX = 16, KINDS = 3 };

/* ---- the layer ---- */

/* Sequences lie on ranks in runs of `run`, in turns over `ranks` places of the
 * expert axis. */
static struct { int64_t run, ranks; } lies;

static int expert_of(int64_t sequence)
{
    const int64_t each = EXPERTS / lies.ranks;

    sequence %= BATCH;
    return (int)(sequence / lies.run % lies.ranks * each + sequence % each);
}

/* Rows of the expert of a sequence of the micro-batch among those held. */
static int64_t first_row(const struct run *run, int64_t sequence)
{
    const struct program *p = run->program;
    const int ranks = p->layout.mesh.size[AXIS_EXPERT];
    const int64_t held = EXPERTS / ranks;
    const int64_t at = expert_of(run->batch.sequence + sequence) -
                       held * p->layout.place.at[AXIS_EXPERT];

    CHECK(at >= 0 && at < held);
    return at * WIDTH;
}

static status expert_forward(const struct step *step, struct run *run)
{
    for (int64_t s = 0; s < run->program->size.sequences; s++) {
        const struct tensor w = tensor_rows(run_weight(run, step, 0),
                                            first_row(run, s), WIDTH);
        const struct sum_order order = run_order_whole(run, WIDTH);
        const struct matmul call = {
            .c = tensor_rows(run_slot(run, step->output), s * LENGTH, LENGTH),
            .a = tensor_rows(run_slot(run, step->input), s * LENGTH, LENGTH),
            .b = tensor_transpose(w), .order = &order};

        TRY(run->kernels->matmul(run->stream, &call));
    }
    return OK;
}

static status expert_backward(const struct step *step, struct run *run)
{
    for (int64_t s = 0; s < run->program->size.sequences; s++) {
        const struct tensor dx =
            tensor_rows(run_gradient(run, step->input), s * LENGTH, LENGTH);
        const struct sum_order order = run_order_whole(run, WIDTH);
        const struct matmul call = {
            .c = dx, .left = run->event->adds ? &dx : NULL,
            .a = tensor_rows(run_gradient(run, step->output), s * LENGTH,
                             LENGTH),
            .b = tensor_rows(run_weight(run, step, 0), first_row(run, s),
                             WIDTH), .order = &order};

        TRY(run->kernels->matmul(run->stream, &call));
    }
    return OK;
}

/* The gradients of a piece as those of all experts held: zeros but for one of
 * each sequence. */
static status expert_product(struct run *run, const struct step *step,
                             const struct addend *addend)
{
    const struct program *p = run->program;
    const int64_t rows = p->params.items[step->param[0]].rows;
    const int64_t tokens = addend_tokens(addend);
    const struct tensor dy = run_gradient(run, step->output);
    float *wide = run->scratch;

    memset(wide, 0, (size_t)(tokens * rows) * sizeof *wide);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t from = addend_first_token(p, addend) + t;
        const float *row = (const float *)dy.data + from * WIDTH;

        memcpy(wide + t * rows + first_row(run, from / LENGTH), row,
               WIDTH * sizeof *wide);
    }
    return weight_product(run, step, tensor_2d(wide, DTYPE_F32, tokens, rows),
                          addend_rows(run, run_slot(run, step->input), addend),
                          addend);
}

static status expert_weight(const struct step *step, struct run *run)
{
    return weight_addends(step, run, expert_product);
}

static struct step_cost expert_cost(const struct step *step,
                                    const struct program *p)
{
    (void)step;
    const double macs = (double)(p->size.tokens * WIDTH * WIDTH);

    return (struct step_cost){.flops = 2 * macs};
}

static size_t expert_scratch(const struct step *step, const struct program *p)
{
    return (size_t)(p->size.tokens * p->params.items[step->param[0]].rows) *
           sizeof(float);
}

static const struct layer layer_experts = {
    .name = "experts", .kind = LAYER_LINEAR, .forward = expert_forward,
    .backward_input = expert_backward, .backward_weight = expert_weight,
    .cost = expert_cost, .scratch = expert_scratch, .keeps_input_for_w = true,
    .keeps_output_gradient_for_w = true};

static slot add_experts(struct program *p, slot x,
                        const struct param_spec *spec)
{
    const int step = program_add_step(p, &layer_experts, x);
    const slot output = program_add_slot(p, "experts", WIDTH, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    program_add_param(p, step, 0, spec);
    return output;
}

/* ---- the model ---- */

static status build(struct program *p, const struct model *model)
{
    const struct param_spec table = {.name = "embedding", .rows = VOCAB,
                                     .cols = WIDTH, .decay = true};
    const struct param_spec norm = {.name = "norm", .rows = 1, .cols = WIDTH,
                                    .vector = true, .init = INIT_ONE};
    const struct param_spec dense = {.name = "dense", .rows = WIDTH,
                                     .cols = WIDTH, .decay = true};
    const struct param_spec experts = {
        .name = "experts", .rows = EXPERTS * WIDTH, .cols = WIDTH,
        .leaves = EXPERTS, .split_rows = AXIS_EXPERT, .decay = true};
    const struct param_spec head = {.name = "head", .rows = VOCAB,
                                    .cols = WIDTH};
    slot x = nn_embedding(p, &table);

    for (int i = 0; i < model->layers; i++) {
        program_enter_block(p, i);
        slot y = nn_rmsnorm(p, x, &norm, 1e-5);

        y = nn_linear(p, y, &dense, NULL);
        x = nn_add(p, x, add_experts(p, y, &experts));
    }
    program_enter_block(p, -1);
    nn_head(p, nn_rmsnorm(p, x, &norm, 1e-5), &head);
    return p->error;
}

static const struct model_kind kind = {.name = "test", .build = build,
                                       .layer_prefix = "layers.%d."};
static const struct model model = {
    .kind = &kind, .vocab = VOCAB, .layers = LAYERS, .heads = 1, .kv_heads = 1,
    .head_width = WIDTH, .width = WIDTH, .feed_forward = WIDTH,
    .context = LENGTH, .norm_epsilon = 1e-5, .init_std = 0.2};

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    (void)argument;
    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + index * 13) % VOCAB);
        targets[i] = (int32_t)((i * 11 + 7 + index * 5) % VOCAB);
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}

/* ---- one run ---- */

/* Weights and moments of the whole model, by kind and order of parameter. */
struct numbers {
    float values[KINDS][ELEMENTS_MAX];
    int64_t at[PARAMS_MAX + 1];
    double loss[STEPS], norm[STEPS];
    int64_t bytes[8]; /* of each rank's plan */
};

struct layout {
    int data, shard, expert;
    const char *zero;
    int64_t micro_batch;
    bool rounds, keeps;  /* gradients are divided; weights are kept */
};

struct trained {
    const struct layout *layout;
    int steps;
    int64_t first_step;
    struct numbers *from; /* NULL: from the start */
    struct numbers *to;
};

/* Copies what this rank owns to the whole, or what it holds from it. Each
 * element of the whole is owned once. */
static void move(const struct inventory *h, struct numbers *n, bool load)
{
    for (int i = 0; i < h->count; i++) {
        const struct inventory_span *span = &h->spans[i];
        struct layout_run runs[LAYOUT_RUNS_MAX];
        const int count = inventory_runs(span, !load, runs);

        if ((int)span->kind >= KINDS) continue;
        for (int r = 0; r < count; r++)
            for (int64_t k = 0; k < runs[r].repeats; k++) {
                float *whole = n->values[span->kind] +
                               n->at[span->param->order] +
                               runs[r].whole_first + k * runs[r].whole_stride;
                float *own = (float *)span->data + runs[r].local_first +
                             k * runs[r].length;
                const size_t bytes = (size_t)runs[r].length * sizeof *own;

                for (int64_t j = 0; j < runs[r].length && !load; j++)
                    CHECK(isnan(whole[j])); /* nobody else's */
                memcpy(load ? own : whole, load ? whole : own, bytes);
            }
    }
}

static status exchange_numbers(struct pipeline *p, struct team *team,
                               struct numbers *n, bool load)
{
    const struct inventory_of of = {.stages = p->stages, .count = p->count,
                                    .team = team};
    struct inventory inventory;

    TRY(inventory_build(&inventory, &of));
    move(&inventory, n, load);
    inventory_free(&inventory);
    return team_agree(team, OK);
}

static status plan(const struct layout *l, struct pipeline *p,
                   const struct mesh *mesh, const struct place *place)
{
    static const char *const none[] = {"none"};
    const int ranks = mesh_batch_ranks(mesh);
    struct pipeline_request request = {
        .stage = {.model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
                  .layout.grid = {BATCH / ranks, 1, 1, 0}, .layout.mesh = *mesh,
                  .layout.place = *place, .size.batch = BATCH / ranks,
                  .size.micro_batch = l->micro_batch, .size.length = LENGTH,
                  .backward = BACKWARD_FUSED, .training.optimizer = true,
                  .machine.threads = 1,
                  .divided.gather = {.prefetch = 1, .reshard = !l->keeps},
                  .recomputation.policy = none,
                  .recomputation.count = 1}};

    TRY(division_parse(&request.stage.divided.division, l->zero));
    if (l->rounds) {
        request.stage.reduction.rounds =
            (int)(request.stage.size.batch / l->micro_batch);
        request.stage.size.batch = l->micro_batch;
        request.stage.layout.grid.data /= request.stage.reduction.rounds;
    }
    return pipeline_plan(p, &request);
}

static status train(const struct trained *t, struct pipeline *p,
                    struct team *team, struct train_step *step)
{
    const struct sample_source source = {.fill = fill, .argument = NULL};
    struct exchanges sends;

    TRY(pipeline_open(p));
    if (p->stages[0].arena.peak != p->stages[0].bytes)
        FAIL(ERR_VERIFY, "other memory than was planned");
    team_use_scratch(team, p->stages[0].memory[MEMORY_MESSAGES].data,
                     p->stages[0].memory[MEMORY_MESSAGES].bytes);
    TRY(train_step_build(step, p, team));
    TRY(train_step_start(step));
    TRY(exchange_numbers(p, team, t->from, true));
    TRY(train_step_refresh(step));
    step->update.beta1 = 0.9;
    step->update.beta2 = 0.95;
    step->update.epsilon = 1e-8;
    step->update.weight_decay = 0.1;
    step->update.clip = 0.3;
    exchanges_of(&sends, p);
    TRY(team_agree(team, OK));
    audit_begin(team);
    for (int i = 0; i < t->steps; i++) {
        struct step_result result;

        TRY(train_step_run(step, &source, 1e-2, t->first_step + i, &result));
        if (team_rank(team) > 0) continue;
        t->to->loss[t->first_step + i - 1] = result.loss;
        t->to->norm[t->first_step + i - 1] = result.norm;
    }
    TRY(audit_traffic(team, &sends, &(struct exchange_steps){
                                 .made = t->steps, .updated = t->steps}));
    t->to->bytes[team_rank(team)] = (int64_t)p->bytes;
    TRY(team_agree(team, OK));
    return exchange_numbers(p, team, t->to, false);
}

static status rank_body(void *argument, struct group *world)
{
    const struct trained *t = argument;
    struct pipeline pipeline = {0};
    struct train_step step = {0};
    struct team team = {0};
    struct mesh mesh = mesh_alone();
    status result;

    mesh.size[AXIS_DATA] = t->layout->data;
    mesh.size[AXIS_SHARD] = t->layout->shard;
    mesh.size[AXIS_EXPERT] = t->layout->expert;
    TRY_GOTO(done, result, team_build(&team, world, &mesh,
                                      &mesh_order_default, 20));
    TRY_GOTO(done, result, plan(t->layout, &pipeline, &mesh, &team.place));
    TRY_GOTO(done, result, team_add_chunks(&team, &pipeline));
    train_step_reserve(&pipeline, &team, 1);
    result = train(t, &pipeline, &team, &step);
done:
    train_step_free(&step);
    pipeline_free(&pipeline);
    team_free(&team);
    return result;
}

static int64_t lay_out(struct numbers *out)
{
    const struct grid grid = {1, 1, 1, 1};
    struct program whole;

    program_init(&whole, PROGRAM_TRAIN, DTYPE_F32, &grid);
    whole.size.length = whole.size.context = whole.size.tokens =
        whole.size.logits_chunk = LENGTH;
    whole.size.sequences = whole.size.batch = 1;
    whole.size.vocab = VOCAB;
    IS_OK(build(&whole, &model));
    out->at[0] = 0;
    for (int i = 0; i < whole.params.count; i++)
        out->at[i + 1] = out->at[i] + whole.params.items[i].elements;
    for (int i = whole.params.count; i < PARAMS_MAX; i++)
        out->at[i + 1] = out->at[i];
    CHECK(out->at[PARAMS_MAX] <= ELEMENTS_MAX);
    program_free(&whole);
    return out->at[PARAMS_MAX];
}

/* Weights that differ, moments that are zero. */
static int64_t start(struct numbers *n)
{
    const int64_t count = lay_out(n);

    memset(n->values, 0, sizeof n->values);
    for (int64_t i = 0; i < count; i++)
        n->values[0][i] = (float)sin(0.37 * (double)i) / 5;
    return count;
}

/* Steps first .. first + count - 1. */
static void run(const struct layout *l, int64_t first, int count,
                struct numbers *from, struct numbers *to)
{
    struct trained t = {l, count, first, from, to};
    const int ranks = l->data * l->shard * l->expert;

    lay_out(to);
    for (int k = 0; k < KINDS; k++)
        for (int64_t i = 0; i < ELEMENTS_MAX; i++)
            to->values[k][i] = (float)NAN;
    IS_OK(ranks == 1 ? rank_body(&t, NULL) : ranks_run(ranks, rank_body, &t));
}

static struct numbers begun, one, half, other;

static void same(const struct numbers *a, const struct numbers *b,
                 int64_t count, int from_step)
{
    for (int k = 0; k < KINDS; k++)
        EQUAL_BYTES(a->values[k], b->values[k], (size_t)count * sizeof(float));
    EQUAL_BYTES(a->loss + from_step, b->loss + from_step,
                (size_t)(STEPS - from_step) * sizeof *a->loss);
    EQUAL_BYTES(a->norm + from_step, b->norm + from_step,
                (size_t)(STEPS - from_step) * sizeof *a->norm);
}

static const struct layout alone = {1, 1, 1, "ddp", 4, false, false};

TEST(each_class_of_parameters_has_its_own_group)
{
    static const struct layout rows[] = {
        {1, 1, 2, "ddp", 4, false, false}, {1, 1, 4, "zero1", 2, false, false},
        {2, 1, 2, "zero1", 4, false, false}, {2, 1, 2, "zero2", 2, true, false},
        {1, 1, 4, "fsdp", 2, true, false}, {2, 1, 2, "fsdp", 1, true, false},
        {2, 1, 2, "fsdp", 2, false, true}, {1, 1, 2, "fsdp", 2, true, true},
        {2, 2, 2, "fsdp", 1, true, false}, {2, 2, 2, "zero1", 2, false, false},
        {2, 2, 2, "hsdp", 1, true, false}, {2, 1, 4, "hsdp", 1, true, true},
        {2, 2, 1, "hsdp", 2, true, false}, {1, 2, 4, "hsdp", 1, true, false},
        {2, 2, 2, "ddp", 2, false, false},
    };
    const int64_t count = start(&begun);

    for (int i = 0; i < ROWS(rows); i++) {
        const struct layout *l = &rows[i];
        const int ranks = l->data * l->shard * l->expert;

        lies.run = l->rounds ? l->micro_batch : BATCH / ranks;
        lies.ranks = l->expert;
        run(&alone, 1, STEPS, &begun, &one);
        run(l, 1, STEPS, &begun, &other);
        same(&one, &other, count, 0);
    }
}

/* States of one layout go on in another with other groups. run, ranks: how
 * sequences lie, as both layouts allow. */
TEST(numbers_move_between_groups)
{
    static const struct {
        int64_t run, ranks;
        struct layout layouts[2];
    } rows[] = {
        {2, 2, {{2, 1, 2, "fsdp", 2, true, false},
                {4, 1, 2, "zero1", 2, false, true}}},
        {1, 2, {{2, 2, 2, "hsdp", 1, true, false},
                {4, 1, 2, "zero2", 1, true, false}}},
        {1, 4, {{2, 1, 2, "fsdp", 2, true, false},
                {2, 1, 4, "hsdp", 1, true, false}}},
        {2, 4, {{1, 1, 4, "fsdp", 2, true, false},
                {2, 1, 2, "zero1", 4, false, false}}},
        {8, 2, {{1, 1, 2, "zero1", 4, false, false},
                {1, 1, 1, "ddp", 4, false, false}}},
    };
    const int64_t count = start(&begun);

    for (int i = 0; i < ROWS(rows); i++) {
        lies.run = rows[i].run;
        lies.ranks = rows[i].ranks;
        run(&alone, 1, STEPS, &begun, &one);
        run(&rows[i].layouts[0], 1, 1, &begun, &half);
        run(&rows[i].layouts[1], 2, STEPS - 1, &half, &other);
        same(&one, &other, count, 1);
    }
}

/* Experts are divided over fewer ranks than the rest, which shows in memory:
 * every rank holds exactly its shares. */
TEST(memory_follows_the_groups)
{
    static const struct layout l = {2, 1, 2, "fsdp", 2, true, false};
    struct mesh mesh = mesh_alone();
    struct place place = {{0}};
    struct pipeline p;
    int64_t held = 0;

    mesh.size[AXIS_DATA] = mesh.size[AXIS_EXPERT] = 2;
    IS_OK(plan(&l, &p, &mesh, &place));
    const struct shards *s = &p.stages[0].shards;

    EQUAL_INT(s->class_count, 2);
    for (int i = 0; i < s->count; i++) {
        const struct shard_class *c = shard_class(s, i);

        EQUAL_INT(c->ranks, c->copied >> AXIS_EXPERT & 1 ? 4 : 2);
        held += param_room(shard_weights(s, i));
    }
    EQUAL_INT(p.stages[0].memory[MEMORY_WEIGHTS].bytes,
              arena_aligned((size_t)held * 4));
    pipeline_free(&p);
}

TEST_MAIN(each_class_of_parameters_has_its_own_group,
          numbers_move_between_groups, memory_follows_the_groups)
