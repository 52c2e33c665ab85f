/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor.c - tensor parallelism: whatever the number of ranks that share
 * every weight and every sequence, losses, gradients and weights are those of
 * one rank, in every bit. */
#include <math.h>
#include "base/random.h"
#include "comm/traffic.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { TOKENS_MAX = 640, SEED = 11 };

static const struct model llama = {
    .kind = &model_llama, .vocab = 61, .layers = 2, .heads = 8, .kv_heads = 4,
    .head_width = 6, .width = 20, .feed_forward = 24, .context = 512,
    .rope.base = 10000, .norm_epsilon = 1e-5, .init_std = 0.02,
    .activation = ACTIVATION_SILU};
/* Tied, with biases; two key-value heads, so four ranks hold each twice. */
static const struct model few_heads = {
    .kind = &model_llama, .vocab = 59, .layers = 2, .heads = 8, .kv_heads = 2,
    .head_width = 4, .width = 20, .feed_forward = 24, .context = 512,
    .tied = true, .biases.attention = true, .biases.mlp = true,
    .rope.base = 500000, .norm_epsilon = 1e-6, .init_std = 0.02,
    .activation = ACTIVATION_SILU};
static const struct model one_head = {
    .kind = &model_llama, .vocab = 67, .layers = 1, .heads = 8, .kv_heads = 1,
    .head_width = 8, .width = 12, .feed_forward = 16, .context = 512,
    .rope.base = 10000, .norm_epsilon = 1e-5, .init_std = 0.02,
    .biases.attention = true, .activation = ACTIVATION_SILU};
static const struct model gpt2 = {
    .kind = &model_gpt2, .vocab = 53, .layers = 2, .heads = 4, .kv_heads = 4,
    .head_width = 6, .width = 24, .feed_forward = 36, .context = 320,
    .tied = true, .biases.attention = true, .biases.mlp = true,
    .norm_epsilon = 1e-5, .init_std = 0.02,
    .activation = ACTIVATION_GELU_TANH};
static const struct model three = {
    .kind = &model_llama, .vocab = 64, .layers = 1, .heads = 6, .kv_heads = 3,
    .head_width = 4, .width = 16, .feed_forward = 18, .context = 512,
    .rope.base = 10000, .norm_epsilon = 1e-5, .init_std = 0.02,
    .activation = ACTIVATION_SILU};

/* Attention and feed-forward read one norm, and what is inside has two readers:
 * gradients that are added to. */
static slot rows_cut(struct program *p, slot x, const char *name, int64_t rows)
{
    const struct param_spec weight = {.name = name, .rows = rows,
                                      .cols = p->slots[x].width,
                                      .split_rows = AXIS_TENSOR};

    return nn_linear(p, x, &weight, NULL);
}

static slot cols_cut(struct program *p, slot x, const char *name,
                     const struct model *m, int64_t cols)
{
    const struct param_spec weight = {.name = name, .rows = m->width,
                                      .cols = cols,
                                      .split_cols = AXIS_TENSOR};

    return nn_linear(p, x, &weight, NULL);
}

static status build_parallel(struct program *p, const struct model *m)
{
    const struct param_spec
        table = {.name = "table", .rows = m->vocab, .cols = m->width,
                 .split_rows = AXIS_TENSOR},
        norm = {.name = "norm", .rows = 1, .cols = m->width, .vector = true,
                .init = INIT_ONE};
    const int64_t q = (int64_t)m->heads * m->head_width;
    const int64_t inner = m->feed_forward;
    slot x = nn_embedding(p, &table);

    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        const slot h = nn_rmsnorm(p, x, &norm, m->norm_epsilon);
        struct param_spec qkv = {.name = "qkv", .rows = 3 * q,
                                 .cols = m->width, .piece_count = 3,
                                 .split_rows = AXIS_TENSOR};

        for (int j = 0; j < 3; j++) qkv.pieces[j].rows = q;
        const slot a = nn_attention(p, nn_linear(p, h, &qkv, NULL), m->heads,
                                    m->heads);
        const slot f = nn_activation(p, rows_cut(p, h, "up", inner),
                                     ACTIVATION_GELU_ERF);

        x = nn_add(p, x, cols_cut(p, a, "out", m, q));
        x = nn_add(p, x, cols_cut(p, f, "down", m, inner));
        x = nn_add(p, x, cols_cut(p, f, "side", m, inner));
    }
    program_enter_block(p, -1);
    nn_head(p, x, NULL);
    return p->error;
}

static const struct model_kind kind_parallel = {
    .name = "parallel", .layer_prefix = "h.%d.", .build = build_parallel};
static const struct model parallel = {
    .kind = &kind_parallel, .vocab = 61, .layers = 2, .heads = 4,
    .kv_heads = 4, .head_width = 6, .width = 20, .feed_forward = 24,
    .context = 512, .tied = true, .norm_epsilon = 1e-5, .init_std = 0.02};

struct variant {
    const char *name;
    const struct model *model;
    int ranks, leaves, data_leaves;
    int64_t sequences, length, micro_batch, logits_chunk;
    enum dtype dtype;
    enum backward_mode backward;
    const char *recompute;
    int overlap;
    bool domino;
};

/* ---- data ---- */

struct data {
    int32_t inputs[TOKENS_MAX], targets[TOKENS_MAX], positions[TOKENS_MAX],
        documents[TOKENS_MAX];
};

static void data_fill(struct data *data, const struct variant *v)
{
    const struct random_key key = random_key_make(1, "test data");
    const uint64_t vocab = (uint64_t)v->model->vocab;
    int32_t document = 0, position = 0;

    CHECK(v->sequences * v->length <= TOKENS_MAX);
    for (int64_t i = 0; i < v->sequences * v->length; i++) {
        const uint64_t at = (uint64_t)(3 * i);
        const double dice = random_uniform(key, at);

        if (i % v->length == 0 || dice < 0.1) {
            document++;
            position = 0;
        }
        data->inputs[i] = (int32_t)random_below(key, at + 1, vocab);
        data->targets[i] =
            dice > 0.95 ? -1 : (int32_t)random_below(key, at + 2, vocab);
        data->documents[i] = document;
        data->positions[i] = position++;
    }
}

/* ---- one rank ---- */

/* Weights at the start, random ones, and what a step makes of these. */
struct whole {
    const struct variant *variant;
    struct data data;
    struct stage stage;
    void *start; /* owned */
    double losses[TOKENS_MAX], evaluated[TOKENS_MAX];
};

static struct stage_request request_of(const struct variant *v,
                                       const char *const *policy, int ranks)
{
    struct stage_request r = {
        .model = v->model, .mode = PROGRAM_TRAIN, .dtype = v->dtype,
        .layout.grid =
            {.data = v->data_leaves, .tensor = v->leaves, .context = 1},
        .layout.mesh = mesh_alone(), .size.batch = v->sequences,
        .size.length = v->length,
        .size.context = v->model->context,
        .size.micro_batch = v->micro_batch ? v->micro_batch : v->sequences,
        .size.logits_chunk = v->logits_chunk,
        .backward = v->backward ? v->backward : BACKWARD_FUSED,
        .layout.overlap = {v->overlap, v->domino}, .machine.threads = 1,
        .recomputation.policy = policy, .recomputation.count = 1};

    r.layout.mesh.size[AXIS_TENSOR] = ranks;
    return r;
}

/* All micro-batches, forwards only when there are no gradients. */
static status run_step(struct stage *stage, const struct data *data,
                       struct group *tensor, double *losses)
{
    struct run *run = &stage->run;
    const int64_t tokens = stage->program.size.tokens;
    const int64_t count =
        stage->program.size.batch / stage->program.size.sequences;
    const bool trains = run->gradients != NULL;
    struct gradients *g = &stage->gradients;

    if (trains) gradients_reset(g);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * tokens;

        run->batch = (struct batch){
            .index = i, .inputs = data->inputs + at,
            .targets = data->targets + at, .positions = data->positions + at,
            .documents = data->documents + at, .tokens = tokens};
        TRY(run_forward(run));
        if (trains) TRY(run_backward_input(run));
        if (trains) TRY(run_backward_weight(run));
        memcpy(losses + at, run->losses, (size_t)tokens * sizeof *losses);
    }
    if (!trains) return OK;
    TRY(gradients_join(g, gradients_all(g), tensor));
    return gradients_finish(g);
}

static void *real_at(void *arena, int64_t element, enum dtype dtype)
{
    return (char *)arena + element * dtype_bytes(dtype);
}

static void random_weights(struct stage *stage)
{
    for (int i = 0; i < stage->program.params.count; i++) {
        const struct param *param = &stage->program.params.items[i];
        const struct random_key key = random_key_make(5, param->name);
        const struct tensor view =
            param_tensor(param, stage->run.params.weights,
                         stage->program.dtype);
        const double base = param->spec.init == INIT_ONE ? 1 : 0;

        for (int64_t j = 0; j < param->elements; j++)
            tensor_set(&view, j,
                       base + 0.7 * (random_uniform(key, (uint64_t)j) - 0.5));
    }
}

static status evaluate(struct stage *stage, const struct data *data,
                       double *losses)
{
    struct gradients *gradients = stage->run.gradients;
    status result;

    stage->run.gradients = NULL;
    result = run_step(stage, data, NULL, losses);
    stage->run.gradients = gradients;
    return result;
}

static void whole_run(struct whole *w, const struct variant *v)
{
    static const char *const none[] = {"none"};
    const struct stage_request request = request_of(v, none, 1);

    *w = (struct whole){.variant = v};
    data_fill(&w->data, v);
    IS_OK(stage_plan(&w->stage, &request));
    IS_OK(stage_open(&w->stage));
    IS_OK(stage_init_weights(&w->stage, v->model, SEED));
    const struct memory_row *row =
        &w->stage.memory[stage_reads(&w->stage)];

    IS_OK(memory_take(row->bytes, 1, &w->start));
    memcpy(w->start, row->data, row->bytes);
    random_weights(&w->stage);
    IS_OK(evaluate(&w->stage, &w->data, w->evaluated));
    IS_OK(run_step(&w->stage, &w->data, NULL, w->losses));
}

static void whole_free(struct whole *w)
{
    stage_free(&w->stage);
    memory_free(w->start);
}

/* ---- several ranks ---- */

enum walk { WALK_COPY, WALK_COMPARE };

/* One row of a run, at the two places. */
static status walk_row(enum dtype dtype, enum walk walk, void *whole,
                       void *rank, int64_t length)
{
    const size_t bytes = (size_t)(length * dtype_bytes(dtype));

    if (walk == WALK_COPY) memcpy(rank, whole, bytes);
    else if (memcmp(whole, rank, bytes) != 0) return ERR_NUMERIC;
    return OK;
}

/* Every run of every parameter, between an arena of the whole and one of the
 * rank's. */
static status walk_runs(const struct whole *w, const struct stage *rank,
                        enum walk walk, void *whole_arena, void *rank_arena)
{
    const struct program *p = &rank->program;
    const enum dtype dtype = rank_arena == rank->gradients.root
                                 ? program_real(p) : p->dtype;

    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        const struct param *all = &w->stage.program.params.items[i];
        struct layout_run runs[LAYOUT_RUNS_MAX];
        const int count =
            layout_runs(&param->spec, &p->layout.mesh, &p->layout.place, 0,
                        param->elements, runs);

        for (int r = 0; r < count; r++)
            for (int64_t row = 0; row < runs[r].repeats; row++) {
                const int64_t from = all->offset + runs[r].whole_first +
                                     row * runs[r].whole_stride;
                const int64_t to = param->offset + runs[r].local_first +
                                   row * runs[r].length;

                if (walk_row(dtype, walk, real_at(whole_arena, from, dtype),
                             real_at(rank_arena, to, dtype),
                             runs[r].length) != OK)
                    FAIL(ERR_NUMERIC, "%s of tensor rank %d differs in row "
                                      "%lld of run %d", param->name,
                         p->layout.place.at[AXIS_TENSOR], (long long)row, r);
            }
    }
    return OK;
}

static void poison(struct stage *stage)
{
    static const enum memory_owner owners[] = {
        MEMORY_GRADIENTS, MEMORY_PARTIALS, MEMORY_FRAME,
        MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH};

    stage->run.poison = true;
    for (int i = 0; i < ROWS(owners); i++)
        if (stage->memory[owners[i]].bytes > 0)
            memset(stage->memory[owners[i]].data, 0xff,
                   stage->memory[owners[i]].bytes);
}

static status open_rank(struct stage *stage, const struct whole *w,
                        struct group *world)
{
    const struct variant *v = w->variant;
    const char *const policy[] = {v->recompute ? v->recompute : "none"};
    struct stage_request request = request_of(v, policy, v->ranks);
    struct memory_row *row = &stage->memory[MEMORY_MESSAGES];
    const struct gradients *g = &stage->gradients;

    request.layout.place.at[AXIS_TENSOR] = world->rank;
    TRY(stage_plan(stage, &request));
    const size_t a = program_message_bytes(&stage->program, world);
    const size_t b = gradients_message_bytes(g, gradients_all(g), world);
    stage_reserve(stage, MEMORY_MESSAGES, a > b ? a : b);
    TRY(stage_open(stage));
    stage->run.groups[AXIS_TENSOR] = world;
    group_scratch(world, row->data, row->bytes);
    TRY(stage_init_weights(stage, v->model, SEED));
    TRY(walk_runs(w, stage, WALK_COMPARE, w->start, stage->run.params.weights));
    TRY(walk_runs(w, stage, WALK_COPY, w->stage.run.params.weights,
                  stage->run.params.weights));
    poison(stage);
    return OK;
}

static status compare_losses(const double *one, const double *several,
                             const struct variant *v, const char *what)
{
    for (int64_t i = 0; i < v->sequences * v->length; i++)
        if (memcmp(&one[i], &several[i], sizeof *one) != 0)
            FAIL(ERR_NUMERIC, "%s of token %lld is %a, expected %a", what,
                 (long long)i, several[i], one[i]);
    return OK;
}

static status rank_steps(struct stage *stage, const struct whole *w,
                         struct group *world)
{
    double losses[TOKENS_MAX];

    TRY(open_rank(stage, w, world));
    const int64_t before = arena_allocations();

    TRY(run_step(stage, &w->data, world, losses));
    TRY(compare_losses(w->losses, losses, w->variant, "the loss"));
    TRY(walk_runs(w, stage, WALK_COMPARE, w->stage.gradients.root,
                  stage->gradients.root));
    TRY(evaluate(stage, &w->data, losses));
    TRY(compare_losses(w->evaluated, losses, w->variant,
                       "the loss without gradients"));
    if (world->size == 1 && arena_allocations() != before)
        FAIL(ERR_NUMERIC, "a step allocates");
    if (stage->arena.peak != stage->bytes)
        FAIL(ERR_NUMERIC, "%zu bytes are planned, %zu used", stage->bytes,
             stage->arena.peak);
    return OK;
}

static status rank_body(void *argument, struct group *world)
{
    struct stage stage = {0};
    const status result = rank_steps(&stage, argument, world);

    stage_free(&stage);
    return result;
}

static void check(const struct variant *v)
{
    struct whole w;

    whole_run(&w, v);
    if (ranks_run(v->ranks, rank_body, &w) != OK)
        fail_msg("%s, %d ranks of %d leaves: %s", v->name, v->ranks,
                 v->leaves, status_message());
    whole_free(&w);
}

#include "tests/unit/nn/tensor_variants.h"

TEST(tensor_ranks_have_the_bits_of_one)
{
    for (int i = 0; i < ROWS(variants); i++) check(&variants[i]);
}

/* ---- what is sent ---- */

struct sent { int64_t calls, bytes; };

static struct sent sent_of(struct group *world, enum comm_kind kind)
{
    struct traffic_row rows[TRAFFIC_ROWS_MAX];
    const int count = comm_traffic(world, rows, TRAFFIC_ROWS_MAX);
    struct sent sum = {0, 0};

    for (int i = 0; i < count; i++) {
        if (rows[i].kind != kind) continue;
        sum.calls += rows[i].calls;
        sum.bytes += rows[i].bytes;
    }
    return sum;
}

static status expect_sent(struct group *world, enum comm_kind kind,
                          int64_t calls, int64_t bytes)
{
    const struct sent sent = sent_of(world, kind);

    if (sent.calls == calls && sent.bytes == bytes) return OK;
    FAIL(ERR_NUMERIC, "%s: %lld bytes in %lld calls, expected %lld in %lld",
         comm_kind_name(kind), (long long)sent.bytes, (long long)sent.calls,
         (long long)bytes, (long long)calls);
}

/* In a micro-batch each block gathers twice and scatters twice, forwards; the
 * mirror image backwards; and gathers twice again for its weights' gradients.
 * The embedding scatters once, the head gathers once. */
static status count_step(struct stage *stage, const struct whole *w,
                         struct group *world)
{
    const struct variant *v = w->variant;
    const int64_t micro_batches = v->sequences / v->micro_batch;
    const int64_t gathers = micro_batches * (v->model->layers * 6 + 2);
    const int64_t scatters = micro_batches * (v->model->layers * 4 + 2);
    const int64_t token = v->model->width * dtype_bytes(v->dtype);
    double losses[TOKENS_MAX];

    TRY(open_rank(stage, w, world));
    const int64_t all = v->micro_batch * v->length;
    const int64_t own =
        v->micro_batch * program_part(&stage->program, world->rank).count;

    TRY(comm_agree(world, OK));
    comm_traffic_reset(world);
    TRY(run_step(stage, &w->data, world, losses));
    TRY(expect_sent(world, COMM_ALL_GATHER, gathers,
                    gathers * own * (v->ranks - 1) * token));
    return expect_sent(world, COMM_REDUCE_SCATTER, scatters,
                       scatters * (all - own) * token);
}

static status count_body(void *argument, struct group *world)
{
    struct stage stage = {0};
    const status result = count_step(&stage, argument, world);

    stage_free(&stage);
    return result;
}

TEST(a_block_gathers_and_scatters_twice_each_way)
{
    static const struct variant counted[] = {
        {.name = "llama", .model = &llama, .ranks = 2, .leaves = 2,
         .data_leaves = 4, .sequences = 8, .length = 20, .micro_batch = 8,
         .dtype = DTYPE_F32},
        {.name = "gpt2", .model = &gpt2, .ranks = 4, .leaves = 4,
         .data_leaves = 4, .sequences = 8, .length = 19, .micro_batch = 2,
         .dtype = DTYPE_F64},
    };

    for (int i = 0; i < ROWS(counted); i++) {
        struct whole w;

        whole_run(&w, &counted[i]);
        if (ranks_run(counted[i].ranks, count_body, &w) != OK)
            fail_msg("%s: %s", counted[i].name, status_message());
        whole_free(&w);
    }
}

/* ---- what is not finite ---- */

/* A weight of the last rank alone is NaN: every rank finds the same step. */
static status find_nan(struct stage *stage, const struct whole *w,
                       struct group *world)
{
    const struct data *data = &w->data;
    int step;

    TRY(open_rank(stage, w, world));
    const struct param *param = &stage->program.params.items[6]; /* w2 */
    const struct tensor view = param_tensor(param, stage->run.params.weights,
                                            stage->program.dtype);

    stage->run.poison = false; /* the frame is looked at again */
    if (world->rank == world->size - 1) tensor_set(&view, 3, (double)NAN);
    stage->run.batch = (struct batch){
        .inputs = data->inputs, .targets = data->targets,
        .positions = data->positions, .documents = data->documents,
        .tokens = stage->program.size.tokens};
    TRY(run_forward(&stage->run));
    TRY(run_find_nan(&stage->run, &step));
    TRY(comm_same(world, "the step that is not finite", (uint64_t)step));
    if (step < 0 || stage->program.steps[step].param[0] != 6)
        FAIL(ERR_NUMERIC, "step %d is found", step);
    return OK;
}

static status find_nan_body(void *argument, struct group *world)
{
    struct stage stage = {0};
    const status result = find_nan(&stage, argument, world);

    stage_free(&stage);
    return result;
}

TEST(all_ranks_find_the_layer_that_is_not_finite)
{
    static const struct variant v = {"llama", &llama, 4, 4, 4, 8, 20, 8, 0,
                                     DTYPE_F32, 0, NULL, 0, false};
    struct whole w;

    whole_run(&w, &v);
    if (ranks_run(v.ranks, find_nan_body, &w) != OK)
        fail_msg("%s", status_message());
    whole_free(&w);
}

/* ---- what is built ---- */

TEST(relayout_steps_are_in_the_program)
{
    static const char *const none[] = {"none"};
    const struct variant v = {"llama", &llama, 2, 2, 4, 8, 20, 8, 0,
                              DTYPE_F32, 0, NULL, 0, false};
    const struct stage_request request = request_of(&v, none, 2);
    struct stage stage = {0};
    struct text text = {0};
    int gathers = 0, scatters = 0;

    IS_OK(stage_plan(&stage, &request));
    for (int i = 0; i < stage.program.step_count; i++) {
        const char *name = stage.program.steps[i].layer->name;

        gathers += strcmp(name, "gather") == 0;
        scatters += strcmp(name, "scatter") == 0;
    }
    EQUAL_INT(gathers, 2 * llama.layers + 1);
    EQUAL_INT(scatters, 2 * llama.layers + 1);
    IS_OK(program_print(&stage.program, &text));
    CHECK(strstr(text.bytes, "gather") != NULL);
    CHECK(strstr(text.bytes, "sent") != NULL);
    text_free(&text);
    stage_free(&stage);
}

/* In 16 bits: what tensor ranks have yet to add up is float32, and so is the
 * gradient of what they gather, which they add up, too. */
TEST(sums_over_ranks_have_a_type_of_their_own)
{
    static const char *const none[] = {"none"};
    const struct variant v = {"llama", &llama, 2, 2, 4, 8, 20, 8, 0,
                              DTYPE_BF16, 0, NULL, 0, false};

    for (int ranks = 1; ranks <= 2; ranks++) {
        const struct stage_request request = request_of(&v, none, ranks);
        struct stage stage = {0};
        int sums = 0, gathered = 0;

        IS_OK(stage_plan(&stage, &request));
        for (int i = 0; i < stage.program.step_count; i++) {
            const struct step *step = &stage.program.steps[i];

            if (step->output < 0) continue;
            const struct slot_info *info =
                &stage.program.slots[step->output];

            sums += info->dtype == DTYPE_F32;
            gathered += info->gradient_dtype == DTYPE_F32;
            if (step->aux >= 0)
                EQUAL_INT(stage.program.slots[step->aux].dtype, DTYPE_F32);
        }
        EQUAL_INT(sums, ranks == 1 ? 0 : 2 * llama.layers + 1);
        EQUAL_INT(gathered, ranks == 1 ? 0 : 2 * llama.layers + 1);
        for (int i = 0; i < stage.program.params.count; i++)
            EQUAL_INT(stage.program.params.items[i].dtype, DTYPE_BF16);
        stage_free(&stage);
    }
}

static status build_uncut(struct program *p, const struct model *m)
{
    const struct param_spec
        table = {.name = "table", .rows = m->vocab, .cols = m->width,
                 .split_rows = AXIS_TENSOR},
        weight = {.name = "mixer", .rows = m->width, .cols = m->width};

    nn_head(p, nn_linear(p, nn_embedding(p, &table), &weight, NULL), NULL);
    return p->error;
}

TEST(a_product_that_no_rank_cuts_is_refused)
{
    static const char *const none[] = {"none"};
    static const struct model_kind kind = {.name = "uncut",
                                           .layer_prefix = "h.%d.",
                                           .build = build_uncut};
    struct model model = llama;
    const struct variant v = {"uncut", &model, 2, 2, 4, 8, 20, 8, 0,
                              DTYPE_F32, 0, NULL, 0, false};
    struct stage_request request;
    struct stage stage = {0};

    model.kind = &kind;
    request = request_of(&v, none, 2);
    FAILS(stage_plan(&stage, &request), ERR_CONFIG,
          "mixer: the tensor axis does not cut it");
    stage_free(&stage);
}

TEST_MAIN(tensor_ranks_have_the_bits_of_one,
          sums_over_ranks_have_a_type_of_their_own,
          a_block_gathers_and_scatters_twice_each_way,
          all_ranks_find_the_layer_that_is_not_finite,
          relayout_steps_are_in_the_program,
          a_product_that_no_rank_cuts_is_refused)
