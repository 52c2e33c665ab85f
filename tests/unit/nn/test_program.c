/* SPDX-License-Identifier: Apache-2.0 */
/* test_program.c - whole tiny models: their gradients are derivatives, and
 * nothing but the grid changes a bit. */
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>
#include "base/random.h"
#include "plan/stage.h"
#include "tests/test.h"

enum { SEQUENCES = 24, LENGTH = 19, LONG_SEQUENCES = 2, LONG_LENGTH = 300,
       TOKENS_MAX = LONG_SEQUENCES * LONG_LENGTH };

/* ---- models ---- */

static const struct model llama_plain = {
    .kind = &model_llama, .vocab = 61, .layers = 2, .heads = 4, .kv_heads = 2,
    .head_width = 6, .width = 20, .feed_forward = 24, .context = 512,
    .rope.base = 10000, .norm_epsilon = 1e-5, .activation = ACTIVATION_SILU};
static const struct model llama_tied = {
    .kind = &model_llama, .vocab = 61, .layers = 2, .heads = 6, .kv_heads = 3,
    .head_width = 4, .width = 20, .feed_forward = 24, .context = 512,
    .tied = true, .biases.attention = true, .biases.mlp = true,
    .rope.base = 500000, .norm_epsilon = 1e-6,
    .activation = ACTIVATION_SILU};
static const struct model gpt2 = {
    .kind = &model_gpt2, .vocab = 53, .layers = 2, .heads = 4, .kv_heads = 4,
    .head_width = 6, .width = 24, .feed_forward = 36, .context = 320,
    .tied = true, .biases.attention = true, .biases.mlp = true,
    .norm_epsilon = 1e-5, .activation = ACTIVATION_GELU_TANH};
/* Each sum of a residual is followed by a norm. */
static const struct model gemma2 = {
    .kind = &model_gemma2, .vocab = 53, .layers = 2, .heads = 4, .kv_heads = 2,
    .head_width = 6, .width = 20, .feed_forward = 24, .context = 512,
    .tied = true, .rope.base = 10000, .norm_epsilon = 1e-6,
    .activation = ACTIVATION_GELU_TANH};

/* A block whose attention and feed-forward read one norm, and whose
 * activation has a third reader: gradients that are added to. */
static slot apply(struct program *p, slot x, const char *name, int64_t rows,
                  int64_t cols)
{
    const struct param_spec weight = {.name = name, .outside_name = name,
                                      .rows = rows, .cols = cols,
                                      .decay = true};

    return nn_linear(p, x, &weight, NULL);
}

static status build_parallel(struct program *p, const struct model *m)
{
    const struct param_spec
        table = {.name = "table", .outside_name = "table", .rows = m->vocab,
                 .cols = m->width},
        norm = {.name = "norm", .outside_name = "norm", .rows = 1,
                .cols = m->width, .vector = true, .init = INIT_ONE};
    const int64_t q = (int64_t)m->heads * m->head_width;
    const int64_t inner = m->feed_forward;
    slot x = nn_embedding(p, &table);

    for (int i = 0; i < m->layers; i++) {
        program_enter_block(p, i);
        const slot h = nn_rmsnorm(p, x, &norm, m->norm_epsilon);
        const slot a = nn_attention(p, apply(p, h, "qkv", 3 * q, m->width),
                                    m->heads, m->heads);
        const slot f = nn_activation(p, apply(p, h, "up", inner, m->width),
                                     ACTIVATION_GELU_ERF);
        x = nn_add(p, x, apply(p, a, "out", m->width, q));
        x = nn_add(p, x, apply(p, f, "down", m->width, inner));
        x = nn_add(p, x, apply(p, f, "side", m->width, inner));
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
    .context = 512, .tied = true, .norm_epsilon = 1e-5};

/* ---- data: packed documents of random ids ---- */

struct data {
    int64_t sequences, length;
    int32_t inputs[TOKENS_MAX], targets[TOKENS_MAX], positions[TOKENS_MAX],
        documents[TOKENS_MAX];
};

static void data_fill(struct data *data, int64_t sequences, int64_t length,
                      int64_t vocab)
{
    const struct random_key key = random_key_make(1, "test data");
    int32_t document = 0, position = 0;

    data->sequences = sequences;
    data->length = length;
    for (int64_t i = 0; i < sequences * length; i++) {
        const double dice = random_uniform(key, (uint64_t)(3 * i));

        if (i % length == 0 || dice < 0.1) {
            document++;
            position = 0;
        }
        data->inputs[i] = (int32_t)random_below(key, (uint64_t)(3 * i + 1),
                                                (uint64_t)vocab);
        data->targets[i] = dice > 0.95
                               ? -1
                               : (int32_t)random_below(key,
                                                       (uint64_t)(3 * i + 2),
                                                       (uint64_t)vocab);
        data->documents[i] = document;
        data->positions[i] = position++;
    }
}

/* ---- one step under one variant ---- */

struct variant {
    const char *name;
    enum backward_mode backward; /* BACKWARD_NONE: fused */
    int64_t micro_batch;         /* 0: all */
    int64_t logits_chunk;
    int threads;                 /* 0: 1 */
    const char *recompute[2];    /* NULL: none */
    bool poison, apart;          /* norms from the sums before them */
    bool reads_logits;
    bool reference;              /* kernels: the reference table */
};

struct outcome {
    double losses[TOKENS_MAX];
    unsigned char *gradients; /* owned */
    size_t bytes;
    int64_t frame_bytes;
    int64_t logits;           /* rows that were read */
};

static void outcome_free(struct outcome *outcome)
{
    memory_free(outcome->gradients);
    outcome->gradients = NULL;
}

static void weights_fill(struct stage *stage)
{
    const struct param_table *table = &stage->program.params;

    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
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

/* NaN into all memory that a step must write before it reads. */
static void memory_poison(struct stage *stage)
{
    static const enum memory_owner owners[] = {
        MEMORY_GRADIENTS, MEMORY_PARTIALS, MEMORY_FRAME,
        MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH};

    for (int i = 0; i < ROWS(owners); i++)
        if (stage->memory[owners[i]].bytes > 0)
            memset(stage->memory[owners[i]].data, 0xff,
                   stage->memory[owners[i]].bytes);
}

static status count_logits(void *argument, int64_t first,
                           const struct tensor *logits)
{
    struct outcome *outcome = argument;

    CHECK(first >= 0);
    outcome->logits += logits->shape[0];
    return OK;
}

static void plan(struct stage *stage, const struct model *model,
                 enum dtype dtype, struct grid grid, const struct data *data,
                 const struct variant *variant)
{
    const char *const none[] = {"none"};
    const bool recomputes = variant->recompute[0] != NULL;
    const struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = dtype,
        .layout.grid = grid,
        .size.batch = data->sequences, .size.length = data->length,
        .size.context = model->context,
        .size.micro_batch = variant->micro_batch ? variant->micro_batch
                                            : data->sequences,
        .size.logits_chunk = variant->logits_chunk,
        .backward = variant->backward ? variant->backward : BACKWARD_FUSED,
        .machine.threads = variant->threads ? variant->threads : 1,
        .recomputation.policy = recomputes ? variant->recompute : none,
        .recomputation.count = recomputes && variant->recompute[1] ? 2 : 1};

    IS_OK(stage_plan(stage, &request));
    if (!variant->apart) return;
    stage->program.joins_norms.sums = false;
    IS_OK(stage_plan_again(stage, none, 1, request.backward));
}

/* All micro-batches of an open stage with weights. */
static void step(struct stage *stage, const struct data *data,
                 double *losses)
{
    struct run *run = &stage->run;
    const int64_t tokens = stage->program.size.tokens;
    const int64_t count = data->sequences * data->length / tokens;

    if (run->gradients != NULL) gradients_reset(&stage->gradients);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * tokens;

        run->batch = (struct batch){
            .index = i, .inputs = data->inputs + at,
            .targets = data->targets + at, .positions = data->positions + at,
            .documents = data->documents + at, .tokens = tokens};
        IS_OK(run_forward(run));
        if (run->gradients != NULL) {
            IS_OK(run_backward_input(run));
            IS_OK(run_backward_weight(run));
        }
        memcpy(losses + at, run->losses, (size_t)tokens * sizeof *losses);
    }
    if (run->gradients != NULL) IS_OK(gradients_finish(&stage->gradients));
}

static void outcome_take(struct stage *stage, struct outcome *outcome)
{
    void *memory;

    outcome->bytes = (size_t)stage->program.params.elements *
                     (size_t)dtype_bytes(program_real(&stage->program));
    outcome->frame_bytes = stage->frame.bytes;
    IS_OK(memory_take(outcome->bytes, 1, &memory));
    outcome->gradients = memory;
    for (int i = 0; i < stage->program.params.count; i++) {
        const struct param *param = &stage->program.params.items[i];
        const size_t real =
            (size_t)dtype_bytes(program_real(&stage->program));

        memcpy(outcome->gradients + (size_t)param->offset * real,
               (char *)stage->gradients.root + (size_t)param->offset * real,
               (size_t)param->elements * real);
    }
}

/* Opens, runs and closes a planned stage. */
static void finish(struct stage *stage, const struct data *data,
                   const struct variant *variant, struct outcome *outcome)
{
    IS_OK(stage_open(stage));
    if (variant->reference)
        IS_OK(kernels_get(&stage->kernels, stage->program.dtype, ISA_PLAIN));
    weights_fill(stage);
    memory_poison(stage);
    stage->run.poison = variant->poison;
    outcome->logits = 0;
    if (variant->reads_logits) {
        stage->run.logits.read = count_logits;
        stage->run.logits.argument = outcome;
    }
    const int64_t before = arena_allocations();

    step(stage, data, outcome->losses);
    EQUAL_INT(arena_allocations(), before); /* nothing in a step */
    EQUAL_INT(stage->arena.peak, stage->bytes);
    outcome_take(stage, outcome);
    stage_free(stage);
}

static void run_variant(const struct model *model, enum dtype dtype,
                        struct grid grid, const struct data *data,
                        const struct variant *variant,
                        struct outcome *outcome)
{
    struct stage stage = {0};

    plan(&stage, model, dtype, grid, data, variant);
    finish(&stage, data, variant, outcome);
}

static bool same(const struct outcome *a, const struct outcome *b,
                 const struct data *data)
{
    const size_t tokens = (size_t)(data->sequences * data->length);

    return a->bytes == b->bytes &&
           memcmp(a->losses, b->losses, tokens * sizeof *a->losses) == 0 &&
           memcmp(a->gradients, b->gradients, a->bytes) == 0;
}

/* ---- what changes no bit ---- */

static const struct variant base = {.name = "base"};
static const struct variant variants[] = {
    {.name = "again"},
    {.name = "poison", .poison = true},
    {.name = "split", .backward = BACKWARD_SPLIT},
    {.name = "split, poison", .backward = BACKWARD_SPLIT, .poison = true},
    {.name = "blocks again", .recompute = {"block"}, .poison = true},
    {.name = "norms again", .recompute = {"norm"}, .poison = true},
    {.name = "norms, activations again",
     .recompute = {"norm", "activation"}, .poison = true},
    {.name = "attention again", .recompute = {"attention"}, .poison = true},
    {.name = "linear again", .recompute = {"linear"}, .poison = true},
    {.name = "split, blocks again", .backward = BACKWARD_SPLIT,
     .recompute = {"block"}, .poison = true},
    {.name = "logits of 19", .logits_chunk = 19},
    {.name = "logits of 38", .logits_chunk = 38},
    {.name = "logits of 190", .logits_chunk = 190, .poison = true},
    {.name = "logits read", .reads_logits = true},
    {.name = "norms apart, two threads", .threads = 2, .apart = true},
    {.name = "three threads", .threads = 3},
    {.name = "reference", .reference = true},
    {.name = "micro-batch 1", .micro_batch = 1},
    {.name = "micro-batch 2", .micro_batch = 2, .poison = true},
    {.name = "micro-batch 3", .micro_batch = 3},
    {.name = "micro-batch 4", .micro_batch = 4},
    {.name = "micro-batch 6", .micro_batch = 6},
    {.name = "micro-batch 8", .micro_batch = 8},
    {.name = "micro-batch 12", .micro_batch = 12},
    {.name = "micro-batch 3, split, logits of 38", .micro_batch = 3,
     .backward = BACKWARD_SPLIT, .logits_chunk = 38, .poison = true},
    {.name = "micro-batch 6, blocks again, three threads", .micro_batch = 6,
     .recompute = {"block"}, .threads = 3},
};
static const struct variant long_variants[] = {
    {.name = "logits of 256", .logits_chunk = 256},
    {.name = "logits of 256, split", .logits_chunk = 256,
     .backward = BACKWARD_SPLIT, .poison = true},
    {.name = "logits of 300", .logits_chunk = 300},
    {.name = "micro-batch 1", .micro_batch = 1},
    {.name = "micro-batch 1, logits of 256", .micro_batch = 1,
     .logits_chunk = 256, .poison = true},
    {.name = "micro-batch 1, blocks again", .micro_batch = 1,
     .recompute = {"block"}, .poison = true},
    {.name = "three threads", .threads = 3},
    {.name = "reference", .reference = true},
};

static void all_same(const struct model *model, enum dtype dtype,
                     struct grid grid, const struct data *data,
                     const struct variant *rows, int count)
{
    static struct outcome first, other;

    run_variant(model, dtype, grid, data, &base, &first);
    for (int i = 0; i < count; i++) {
        run_variant(model, dtype, grid, data, &rows[i], &other);
        if (!same(&first, &other, data)) {
            print_error("%s, %s, grid %d x %d, %s: other bits\n",
                        model->kind->name, dtype_name(dtype), grid.data,
                        grid.tensor, rows[i].name);
            CHECK(same(&first, &other, data));
        }
        if (rows[i].reads_logits)
            EQUAL_INT(other.logits, data->sequences * data->length);
        outcome_free(&other);
    }
    outcome_free(&first);
}

static const struct {
    const struct model *model;
    struct grid grid;
    enum dtype dtype;
} cases[] = {
    {&llama_plain, {8, 4, 1, 1}, DTYPE_F32},
    {&llama_plain, {1, 1, 1, 1}, DTYPE_F32},
    {&llama_plain, {3, 2, 1, 1}, DTYPE_F64},
    {&llama_tied, {4, 3, 1, 1}, DTYPE_F32},
    {&llama_tied, {8, 1, 1, 1}, DTYPE_F64},
    {&llama_tied, {2, 3, 1, 1}, DTYPE_F32},
    {&gpt2, {8, 4, 1, 1}, DTYPE_F32},
    {&gpt2, {3, 1, 1, 1}, DTYPE_F32},
    {&gpt2, {2, 2, 1, 1}, DTYPE_F64},
    {&parallel, {4, 4, 1, 1}, DTYPE_F32},
    {&gemma2, {4, 2, 1, 1}, DTYPE_F32},
    {&llama_tied, {4, 3, 1, 1}, DTYPE_BF16},
    {&gemma2, {2, 2, 1, 1}, DTYPE_BF16},
    {&gpt2, {2, 2, 1, 1}, DTYPE_BF16},
    {&llama_plain, {2, 1, 1, 1}, DTYPE_F16},
};

TEST(only_the_grid_decides_the_bits)
{
    static struct data data;

    for (int i = 0; i < ROWS(cases); i++) {
        data_fill(&data, SEQUENCES, LENGTH, cases[i].model->vocab);
        all_same(cases[i].model, cases[i].dtype, cases[i].grid, &data,
                 variants, ROWS(variants));
    }
}

TEST(sequences_longer_than_a_granule_keep_their_bits)
{
    static const struct grid grids[] = {{1, 1, 1, 1}, {2, 1, 1, 1},
                                        {2, 2, 1, 1}};
    static const struct model *const models[] = {&llama_plain, &gpt2};
    static struct data data;

    for (int i = 0; i < ROWS(grids) * ROWS(models); i++) {
        const struct model *model = models[i / ROWS(grids)];

        data_fill(&data, LONG_SEQUENCES, LONG_LENGTH, model->vocab);
        all_same(model, DTYPE_F32, grids[i % ROWS(grids)], &data,
                 long_variants, ROWS(long_variants));
    }
}

/* The tests above would pass if nothing depended on anything. */
TEST(another_grid_has_other_bits)
{
    static struct data data;
    static struct outcome a, b;
    const struct grid one = {1, 1, 1, 1}, eight = {8, 1, 1, 1},
                      four = {1, 4, 1, 1};

    data_fill(&data, SEQUENCES, LENGTH, llama_plain.vocab);
    run_variant(&llama_plain, DTYPE_F32, one, &data, &base, &a);
    run_variant(&llama_plain, DTYPE_F32, eight, &data, &base, &b);
    CHECK(!same(&a, &b, &data));
    outcome_free(&b);
    run_variant(&llama_plain, DTYPE_F32, four, &data, &base, &b);
    CHECK(!same(&a, &b, &data));
    outcome_free(&a);
    outcome_free(&b);
}

TEST(recomputation_takes_less_memory)
{
    static const struct variant rows[] = {
        {.recompute = {"norm"}}, {.recompute = {"norm", "activation"}},
        {.recompute = {"block"}}};
    static struct data data;
    const struct grid grid = {1, 1, 1, 1};
    struct stage stage = {0};
    int64_t last;

    data_fill(&data, SEQUENCES, LENGTH, llama_plain.vocab);
    plan(&stage, &llama_plain, DTYPE_F32, grid, &data, &base);
    last = stage.frame.bytes;
    stage_free(&stage);
    for (int i = 0; i < ROWS(rows); i++) {
        plan(&stage, &llama_plain, DTYPE_F32, grid, &data, &rows[i]);
        CHECK(stage.frame.bytes < last);
        last = stage.frame.bytes;
        stage_free(&stage);
    }
}

/* A product less for each frozen matrix; a lookup has none, a vector's is made
 * in any case. */
TEST(frozen_matrices_make_less_work)
{
    static struct data data;
    const struct grid grid = {1, 1, 1, 1};
    struct stage stage = {0};

    data_fill(&data, SEQUENCES, LENGTH, llama_plain.vocab);
    plan(&stage, &llama_plain, DTYPE_F32, grid, &data, &base);
    struct program *p = &stage.program;
    int64_t expected = 3 * (int64_t)program_cost(p).flops;

    EQUAL_INT(program_training_flops(p), expected);
    for (int i = 0; i < p->params.count; i++) {
        struct param *param = &p->params.items[i];

        param->frozen = true;
        if (!param->spec.vector && strstr(param->name, "embed") == NULL)
            expected -= 2 * p->size.tokens * param->elements;
        EQUAL_INT(program_training_flops(p), expected);
    }
    CHECK((double)expected > 2 * program_cost(p).flops);
    stage_free(&stage);
}

/* ---- gradients are derivatives ---- */

static double total_loss(struct stage *stage, const struct data *data)
{
    static double losses[TOKENS_MAX];
    struct gradients *gradients = stage->run.gradients;
    double sum = 0;

    stage->run.gradients = NULL; /* F makes the losses */
    step(stage, data, losses);
    stage->run.gradients = gradients;
    for (int64_t i = 0; i < data->sequences * data->length; i++)
        sum += losses[i];
    return sum;
}

/* Central difference of fourth order of the total loss by one weight. */
static double difference(struct stage *stage, const struct data *data,
                         const struct tensor *weight, int64_t index)
{
    static const double step_width = 2e-3;
    static const double factors[] = {1, -8, 0, 8, -1};
    const double old = tensor_get(weight, index);
    double sum = 0;

    for (int k = -2; k <= 2; k++) {
        if (k == 0) continue;
        tensor_set(weight, index, old + k * step_width);
        sum += factors[k + 2] * total_loss(stage, data);
    }
    tensor_set(weight, index, old);
    return sum / (12 * step_width);
}

static void check_derivatives(const struct model *model, struct grid grid,
                              const struct variant *variant)
{
    enum { SAMPLES = 4 }; /* of each parameter */
    static struct data data;
    static struct outcome outcome;
    struct stage stage = {0};

    data_fill(&data, 3, LENGTH, model->vocab);
    run_variant(model, DTYPE_F64, grid, &data, variant, &outcome);
    plan(&stage, model, DTYPE_F64, grid, &data, &base);
    IS_OK(stage_open(&stage));
    weights_fill(&stage);
    for (int i = 0; i < stage.program.params.count; i++) {
        const struct param *param = &stage.program.params.items[i];
        const struct tensor weight =
            param_tensor(param, stage.run.params.weights, DTYPE_F64);
        const struct tensor gradient =
            param_tensor(param, outcome.gradients, DTYPE_F64);
        const struct random_key key = random_key_make(9, param->name);
        double most = 0;

        for (int64_t j = 0; j < param->elements; j++)
            most = fmax(most, fabs(tensor_get(&gradient, j)));
        CHECK(most > 0);
        for (uint64_t j = 0; j < SAMPLES; j++) {
            const int64_t index = (int64_t)random_below(
                key, j, (uint64_t)param->elements);
            const double gap = difference(&stage, &data, &weight, index) -
                               tensor_get(&gradient, index);

            if (!(fabs(gap) <= 1e-7 * most)) {
                print_error("%s: %s: element %lld is off by %g of %g\n",
                            model->kind->name, param->name, (long long)index,
                            gap, most);
                CHECK(fabs(gap) <= 1e-7 * most);
            }
        }
    }
    outcome_free(&outcome);
    stage_free(&stage);
}

TEST(gradients_are_derivatives)
{
    static const struct variant rows[] = {
        {.name = "fused"},
        {.name = "split", .backward = BACKWARD_SPLIT, .micro_batch = 1}};

    for (int i = 0; i < ROWS(rows); i++) {
        const struct grid one = {1, 1, 1, 1}, many = {3, 2, 1, 1},
                          odd = {1, 3, 1, 1};

        check_derivatives(&llama_plain, many, &rows[i]);
        check_derivatives(&llama_tied, odd, &rows[i]);
        check_derivatives(&gpt2, one, &rows[i]);
        check_derivatives(&parallel, many, &rows[i]);
    }
}

/* ---- every flag is needed ---- */

struct flag {
    const char *name;
    size_t offset;
};
static const struct flag flags[] = {
    {"input for B", offsetof(struct layer, keeps_input_for_b)},
    {"output for B", offsetof(struct layer, keeps_output_for_b)},
    {"aux for B", offsetof(struct layer, keeps_aux_for_b)},
    {"input for W", offsetof(struct layer, keeps_input_for_w)},
    {"output gradient for W",
     offsetof(struct layer, keeps_output_gradient_for_w)},
};

struct flag_case {
    const struct model *model;
    const struct data *data;
    const struct outcome *right;
};

/* Clears the flag of every step of this layer, plans the frame again, and
 * returns whether the poison then shows. */
static bool poison_shows(const struct flag_case *at, const char *layer,
                         const struct flag *flag, enum backward_mode mode)
{
    const struct variant variant = {.backward = mode, .poison = true};
    static struct outcome outcome;
    const struct grid grid = {1, 1, 1, 1};
    struct stage stage = {0};
    struct layer changed;
    bool differs;

    plan(&stage, at->model, DTYPE_F32, grid, at->data, &variant);
    for (int i = 0; i < stage.program.step_count; i++) {
        if (strcmp(stage.program.steps[i].layer->name, layer) != 0) continue;
        changed = *stage.program.steps[i].layer;
        memset((char *)&changed + flag->offset, 0, sizeof(bool));
        stage.program.steps[i].layer = &changed;
    }
    frame_plan_free(&stage.frame);
    IS_OK(frame_plan_build(&stage.frame, &stage.program, mode,
                           (struct frame_count){.frames = 1}));
    finish(&stage, at->data, &variant, &outcome);
    differs = !same(at->right, &outcome, at->data);
    outcome_free(&outcome);
    return differs;
}

/* The same in a child: a slot that nobody keeps may have no memory at all,
 * which stops at a CHECK. */
static bool flag_matters(const struct flag_case *at, const char *layer,
                         const struct flag *flag, enum backward_mode mode)
{
    const pid_t child = fork();
    int code = 0;

    CHECK(child >= 0);
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);

        dup2(nowhere, STDERR_FILENO);
        _exit(poison_shows(at, layer, flag, mode));
    }
    CHECK(waitpid(child, &code, 0) == child);
    return !WIFEXITED(code) || WEXITSTATUS(code) != 0;
}

/* Each flag of the layer in one of the two modes: in the other, somebody else
 * may keep the same slot. */
static void check_flags(const struct flag_case *at, const struct layer *layer)
{
    for (int i = 0; i < ROWS(flags); i++) {
        if (!*(const bool *)((const char *)layer + flags[i].offset)) continue;
        /* Positions work on the slot of the embedding, which keeps it longer;
         * the head's W reads its input after its B. */
        if (strcmp(layer->name, "positions") == 0) continue;
        if (strcmp(layer->name, "head") == 0 && i == 0) continue;
        if (flag_matters(at, layer->name, &flags[i], BACKWARD_SPLIT)) continue;
        if (flag_matters(at, layer->name, &flags[i], BACKWARD_FUSED)) continue;
        print_error("%s: %s: %s is not needed\n", at->model->kind->name,
                    layer->name, flags[i].name);
        test_failed(__FILE__, __LINE__, "every flag is needed");
    }
}

TEST(every_keeps_flag_is_needed)
{
    static const struct model *const models[] = {&llama_plain, &gpt2,
                                                 &parallel};
    static struct data data;
    static struct outcome right;
    const struct grid grid = {1, 1, 1, 1};

    for (int m = 0; m < ROWS(models); m++) {
        const struct flag_case at = {models[m], &data, &right};
        struct stage stage = {0};

        data_fill(&data, 2, LENGTH, models[m]->vocab);
        run_variant(models[m], DTYPE_F32, grid, &data, &base, &right);
        plan(&stage, models[m], DTYPE_F32, grid, &data, &base);
        for (int i = 0; i < stage.program.step_count; i++)
            if (stage.program.steps[i].block <= 0) /* the others are equal */
                check_flags(&at, stage.program.steps[i].layer);
        stage_free(&stage);
        outcome_free(&right);
    }
}

TEST_MAIN(only_the_grid_decides_the_bits,
          sequences_longer_than_a_granule_keep_their_bits,
          another_grid_has_other_bits, recomputation_takes_less_memory,
          frozen_matrices_make_less_work, gradients_are_derivatives,
          every_keeps_flag_is_needed)
