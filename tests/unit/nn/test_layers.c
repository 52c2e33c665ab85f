/* SPDX-License-Identifier: Apache-2.0 */
/* test_layers.c - every kind of layer by itself: gradients against finite
 * differences in float64, and NaN in whatever its flags call dead.
 *
 * Each row is a program: embedding, the layer, head. The embedding's gradient
 * went through the layer's B, the layer's own through its W. A new layer adds a
 * row and has both tests. */
#include <math.h>
#include <sys/wait.h>
#include "plan/stage.h"
#include "tests/test.h"

enum { VOCAB = 19, WIDTH = 12, HEADS = 4, KV_HEADS = 2, HEAD_WIDTH = 4,
       SEQUENCES = 4, LENGTH = 9, TOKENS = SEQUENCES * LENGTH };

static struct param_spec matrix(const char *name, int64_t rows, int64_t cols)
{
    return (struct param_spec){.name = name, .rows = rows, .cols = cols};
}

static struct param_spec vector(const char *name, int64_t cols)
{
    return (struct param_spec){.name = name, .rows = 1, .cols = cols,
                               .vector = true};
}

static slot cut_linear(struct program *p, slot x)
{
    struct param_spec weight = matrix("weight", 10, WIDTH),
                      bias = vector("bias", 10),
                      back = matrix("back", WIDTH, 10);

    weight.split_rows = bias.split_rows = back.split_cols = AXIS_TENSOR;
    return nn_linear(p, nn_linear(p, x, &weight, &bias), &back, NULL);
}

static slot residual(struct program *p, slot x)
{
    const struct param_spec weight = matrix("weight", WIDTH, WIDTH);

    return nn_add(p, x, nn_linear(p, x, &weight, NULL));
}

static slot rms_norm(struct program *p, slot x)
{
    const struct param_spec weight = vector("weight", WIDTH);

    return nn_rmsnorm(p, x, &weight, 1e-5);
}

static slot layer_norm(struct program *p, slot x)
{
    const struct param_spec weight = vector("weight", WIDTH),
                            bias = vector("bias", WIDTH);

    return nn_layernorm(p, x, &weight, &bias, 1e-5);
}

static slot positions(struct program *p, slot x)
{
    const struct param_spec table = matrix("positions", LENGTH, WIDTH);

    return nn_position_embedding(p, x, &table);
}

static slot swiglu(struct program *p, slot x)
{
    const struct param_spec up = matrix("up", 2 * WIDTH, WIDTH);

    return nn_swiglu(p, nn_linear(p, x, &up, NULL));
}

static slot activated(struct program *p, slot x, enum activation activation)
{
    const struct param_spec up = matrix("up", WIDTH, WIDTH);

    return nn_activation(p, nn_linear(p, x, &up, NULL), activation);
}

static slot gelu_tanh(struct program *p, slot x)
{
    return activated(p, x, ACTIVATION_GELU_TANH);
}

static slot gelu_erf(struct program *p, slot x)
{
    return activated(p, x, ACTIVATION_GELU_ERF);
}

static slot silu(struct program *p, slot x)
{
    return activated(p, x, ACTIVATION_SILU);
}

static slot qkv(struct program *p, slot x)
{
    const int64_t rows = (HEADS + 2 * KV_HEADS) * HEAD_WIDTH;
    const struct param_spec weight = matrix("qkv", rows, WIDTH);

    return nn_linear(p, x, &weight, NULL);
}

static slot attention(struct program *p, slot x)
{
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);

    x = nn_attention(p, qkv(p, x), HEADS, KV_HEADS);
    return nn_linear(p, x, &out, NULL);
}

static slot ruled(struct program *p, slot x)
{
    static const struct attention_rule rule = {
        .scale = 0.4, .softcap = 1.5, .window = 4};
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);

    x = nn_attention_ruled(p, qkv(p, x), HEADS, KV_HEADS, &rule);
    return nn_linear(p, x, &out, NULL);
}

static slot leaning(struct program *p, slot x)
{
    static const struct attention_rule rule = {.alibi = true};
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);

    x = nn_attention_ruled(p, qkv(p, x), HEADS, KV_HEADS, &rule);
    return nn_linear(p, x, &out, NULL);
}

static slot rope(struct program *p, slot x)
{
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);

    x = nn_rope(p, qkv(p, x), HEADS, KV_HEADS, 100.0, NULL);
    return nn_linear(p, nn_attention(p, x, HEADS, KV_HEADS), &out, NULL);
}

static slot rope_part(struct program *p, slot x)
{
    static const struct rope_table table = {.base = 100, .rotary = 2};
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);

    x = nn_rope_part(p, qkv(p, x), HEADS, KV_HEADS, &table);
    return nn_linear(p, nn_attention(p, x, HEADS, KV_HEADS), &out, NULL);
}

/* One matrix makes a latent vector and the rotary key of all heads. */
static slot latent(struct program *p, slot x)
{
    static const struct rope_table table = {.base = 100, .rotary = 4};
    static const struct latent_heads heads = {HEADS, 3, 4, 5};
    static const struct layout_span first = {0, 6}, turning = {6, 4},
                                    values = {0, 5};
    const struct param_spec queries = matrix("q", HEADS * 7, WIDTH),
                            down = matrix("down", 10, WIDTH),
                            up = matrix("up", HEADS * 8, 6),
                            out = matrix("out", WIDTH, HEADS * 5);
    const slot a = nn_down(p, x, &down);
    const slot keys = nn_linear(p, nn_part(p, a, 1, &first), &up, NULL);
    slot y = nn_latent_keys(p, keys, nn_part(p, a, 1, &turning), &heads);

    y = nn_latent_join(p, nn_linear(p, x, &queries, NULL), y, &heads);
    y = nn_attention(p, nn_rope_part(p, y, HEADS, HEADS, &table), HEADS,
                     HEADS);
    return nn_linear(p, nn_part(p, y, HEADS, &values), &out, NULL);
}

static slot qk_norm(struct program *p, slot x, int heads, int kv_heads,
                    bool each)
{
    const struct param_spec out = matrix("out", WIDTH, HEADS * HEAD_WIDTH);
    const struct qk_norm norm = {
        .weights = {vector("q", heads * HEAD_WIDTH),
                    vector("k", kv_heads * HEAD_WIDTH)},
        .epsilon = 1e-3, .plus_one = heads == 1, .each = each};

    x = nn_qk_norm(p, qkv(p, x), HEADS, KV_HEADS, &norm);
    return nn_linear(p, nn_attention(p, x, HEADS, KV_HEADS), &out, NULL);
}

static slot heads_norm(struct program *p, slot x)
{
    return qk_norm(p, x, 1, 1, false);
}

static slot whole_norm(struct program *p, slot x)
{
    return qk_norm(p, x, HEADS, KV_HEADS, false);
}

static slot each_norm(struct program *p, slot x)
{
    return qk_norm(p, x, HEADS, KV_HEADS, true);
}

static slot bare_layer_norm(struct program *p, slot x)
{
    const struct param_spec weight = vector("weight", WIDTH);

    return nn_layernorm(p, x, &weight, NULL, 1e-5);
}

static slot plus_one(struct program *p, slot x)
{
    const struct param_spec weight = vector("weight", WIDTH);

    return nn_rmsnorm_plus_one(p, x, &weight, 1e-5);
}

static slot scaled(struct program *p, slot x)
{
    return nn_scale_over(p, x, 0.3);
}

static slot geglu(struct program *p, slot x)
{
    const struct param_spec up = matrix("up", 2 * WIDTH, WIDTH);

    return nn_geglu(p, nn_linear(p, x, &up, NULL));
}

static slot dropped(struct program *p, slot x)
{
    const struct param_spec weight = matrix("weight", WIDTH, WIDTH);

    return nn_dropout(p, nn_linear(p, x, &weight, NULL), DROPOUT_ATTENTION);
}

static slot dropped_residual(struct program *p, slot x)
{
    const struct param_spec weight = matrix("weight", WIDTH, WIDTH);
    const slot y = nn_linear(p, x, &weight, NULL);

    return nn_add(p, x, nn_dropout(p, y, DROPOUT_FEED_FORWARD));
}

/* Three experts, two for each token. adapters: 0, none; 1, beside all; -1,
 * beside up alone. */
static slot mixture(struct program *p, slot x, int adapters)
{
    enum { INNER = 6, EXPERTS = 3, RANK = 2 };
    struct experts_spec spec = {
        .up = matrix("experts.%d.up", 2 * INNER, WIDTH),
        .down = matrix("experts.%d.down", WIDTH, INNER),
        .form = {.normalised = true, .experts = EXPERTS, .choices = 2},
        .leaf = EXPERTS};
    const struct param_spec router = matrix("router", EXPERTS, WIDTH);

    spec.up.split_rows = spec.down.split_cols = AXIS_TENSOR;
    spec.up.piece_count = 2;
    spec.up.pieces[0] = spec.up.pieces[1] =
        (struct param_piece){NULL, INNER, 1};
    if (adapters != 0) {
        spec.up_adapter = (struct adapter){
            .rank = RANK, .scale = 0.7, .named = true,
            .pieces = adapters > 0 ? 2 : 1};
        spec.up_adapter.of[adapters > 0].piece = 1;
    }
    if (adapters > 0)
        spec.down_adapter = (struct adapter){.rank = RANK + 1, .scale = 1.3,
                                             .pieces = 1};
    const slot choice =
        nn_choose(p, nn_router(p, x, &router, NULL), &spec.form);

    return nn_experts(p, x, choice, &spec);
}

static slot experts(struct program *p, slot x)
{
    return mixture(p, x, 0);
}

static slot adapted_experts(struct program *p, slot x)
{
    return mixture(p, x, 1);
}

static slot adapted_half(struct program *p, slot x)
{
    return mixture(p, x, -1);
}

static slot nothing(struct program *p, slot x)
{
    (void)p;
    return x;
}

static const struct row {
    const char *name;
    slot (*build)(struct program *p, slot x);
    bool tied; /* the head is the embedding's table */
} rows[] = {
    {"head", nothing, false},      {"tied head", nothing, true},
    {"linear", cut_linear, false}, {"residual", residual, false},
    {"rmsnorm", rms_norm, false},  {"layernorm", layer_norm, false},
    {"positions", positions, true}, {"swiglu", swiglu, false},
    {"gelu tanh", gelu_tanh, false}, {"gelu erf", gelu_erf, false},
    {"silu", silu, false},         {"attention", attention, false},
    {"rope", rope, true},          {"part of rope", rope_part, true},
    {"latent attention", latent, true},
    {"norm of heads", heads_norm, false}, {"scale", scaled, true},
    {"rmsnorm plus one", plus_one, false}, {"geglu", geglu, false},
    {"rules of attention", ruled, false},
    {"softcap", NULL, false},      {"bias of head", NULL, true},
    {"norm of all heads", whole_norm, false},
    {"layernorm of each head", each_norm, false},
    {"linear biases of scores", leaning, false},
    {"layernorm without bias", bare_layer_norm, false},
    {"dropout", dropped, false},
    {"dropout, residual", dropped_residual, true},
    {"dropout, attention", ruled, false},
    {"z-loss", rms_norm, false},
    {"experts", experts, false},
    {"adapters of experts", adapted_experts, false},
    {"adapters of one half", adapted_half, true},
};

static const struct row *current; /* row that `build` is to make */
static int lame_step = -1;        /* step whose flags `build` is to clear */

static status build(struct program *p, const struct model *model)
{
    static struct layer lame;
    const struct param_spec table = matrix("table", VOCAB, WIDTH),
                            head = matrix("head", VOCAB, WIDTH),
                            bias = matrix("bias", VOCAB, 1);
    slot x = nn_embedding(p, &table);

    (void)model;
    program_enter_block(p, 0);
    if (current->build != NULL) x = current->build(p, x);
    program_enter_block(p, -1);
    nn_head(p, x, current->tied ? NULL : &head);
    if (strcmp(current->name, "softcap") == 0) nn_head_softcap(p, 0.7);
    if (strcmp(current->name, "bias of head") == 0) nn_head_bias(p, &bias);
    if (lame_step >= 0 && p->error == OK) {
        lame = *p->steps[lame_step].layer;
        lame.keeps_input_for_b = lame.keeps_output_for_b = false;
        lame.keeps_aux_for_b = lame.keeps_input_for_w = false;
        lame.keeps_output_gradient_for_w = false;
        p->steps[lame_step].layer = &lame;
    }
    return p->error;
}

static const struct model_kind kind = {.name = "test", .build = build};
static const struct model model = {
    .kind = &kind, .vocab = VOCAB, .layers = 1, .heads = HEADS,
    .kv_heads = KV_HEADS, .head_width = HEAD_WIDTH, .width = WIDTH,
    .feed_forward = WIDTH, .context = LENGTH};

/* A cheap sequence of numbers in (-1, 1), the same every time. */
static double noise(int64_t i)
{
    const uint64_t mixed = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;

    return (double)(int64_t)(mixed ^ (mixed >> 29)) / 0x1p63;
}

struct how {
    int64_t micro_batch;
    enum backward_mode backward;
    const char *recompute;
    bool poison;
};

static void stage_begin(struct stage *stage, const struct how *how)
{
    const struct stage_request request = {
        .model = &model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F64,
        .layout.grid = {.data = 2, .tensor = 2, .context = 1},
        .size.batch = SEQUENCES,
        .size.micro_batch = how->micro_batch, .size.length = LENGTH,
        .machine.threads = 1,
        .backward = how->backward, .recomputation.policy = &how->recompute,
        .recomputation.count = 1, .seed = 9,
        .regular.dropout = strncmp(current->name, "dropout", 7) == 0 ? 0.3 : 0,
        .regular.attention_dropout =
            strcmp(current->name, "dropout, attention") == 0 ? 0.3 : 0,
        .regular.z_loss = strcmp(current->name, "z-loss") == 0 ? 0.05 : 0};

    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    stage->run.poison = how->poison;
    const struct param_table *table = &stage->program.params;
    const struct tensor weights = tensor_1d(
        stage->memory[MEMORY_WEIGHTS].data, DTYPE_F64, table->elements);
    for (int64_t i = 0; i < table->elements; i++)
        tensor_set(&weights, i, noise(i));
}

/* Sum of the token losses; gradients too, in the root arena. */
static double step_run(struct stage *stage)
{
    const struct stage_batch memory = stage_batch(stage, 0);
    const int64_t count = stage->program.size.tokens;
    struct run *run = &stage->run;
    double loss = 0;

    gradients_reset(&stage->gradients);
    for (int64_t i = 0; i < TOKENS / count; i++) {
        for (int64_t t = 0; t < count; t++) {
            const int64_t at = i * count + t;

            memory.inputs[t] = (int32_t)(at * 7 % VOCAB);
            memory.targets[t] = at % 5 == 3 ? -1 : (int32_t)(at * 3 % VOCAB);
            memory.documents[t] = (int32_t)(t % LENGTH / 6);
        }
        run->batch = (struct batch){
            .index = i, .inputs = memory.inputs, .targets = memory.targets,
            .documents = memory.documents, .tokens = count,
            .sequence = 70 + i * count / LENGTH};
        IS_OK(run_forward(run));
        IS_OK(run_backward_input(run));
        IS_OK(run_backward_weight(run));
        for (int64_t t = 0; t < count; t++) loss += run->losses[t];
        for (int64_t t = 0; t < count && run->z_losses != NULL; t++)
            loss += run->z_losses[t];
    }
    IS_OK(gradients_finish(&stage->gradients));
    return loss;
}

static double distance(double a, double b)
{
    return a > b ? a - b : b - a;
}

TEST(gradients_agree_with_finite_differences)
{
    static const struct how how = {2, BACKWARD_FUSED, "none", false};

    for (int r = 0; r < ROWS(rows); r++) {
        struct stage stage = {0};
        void *memory = NULL;

        current = &rows[r];
        stage_begin(&stage, &how);
        step_run(&stage);
        const int64_t count = stage.program.params.elements;
        const size_t bytes = (size_t)count * sizeof(double);
        double *weights = stage.memory[MEMORY_WEIGHTS].data, *gradient;
        IS_OK(memory_take(1, bytes, &memory));
        gradient = memory;
        memcpy(gradient, stage.memory[MEMORY_GRADIENTS].data, bytes);
        for (int64_t i = 0; i < count; i += 3) {
            const double old = weights[i], h = 1e-5;

            weights[i] = old + h;
            const double up = step_run(&stage);
            weights[i] = old - h;
            const double slope = (up - step_run(&stage)) / (2 * h);
            weights[i] = old;
            if (!(distance(slope, gradient[i]) <= 1e-7 + 1e-6 * fabs(slope))) {
                print_error("%s: weight %lld: gradient %.12g, slope %.12g\n",
                            rows[r].name, (long long)i, gradient[i], slope);
                test_failed(__FILE__, __LINE__, "gradient and slope agree");
            }
        }
        memory_free(memory);
        stage_free(&stage);
    }
}

/* Copies the gradients out; returns how many bytes. */
static size_t gradients_of(const struct how *how, char *out, size_t room)
{
    struct stage stage = {0};

    stage_begin(&stage, how);
    step_run(&stage);
    const size_t bytes = (size_t)stage.program.params.elements
                         * sizeof(double);
    CHECK(bytes <= room);
    memcpy(out, stage.memory[MEMORY_GRADIENTS].data, bytes);
    stage_free(&stage);
    return bytes;
}

static char plain[1 << 16], other[1 << 16];

TEST(no_bit_depends_on_what_is_dead)
{
    static const struct how usual = {4, BACKWARD_FUSED, "none", false};
    static const struct how ways[] = {
        {4, BACKWARD_FUSED, "none", true},  {4, BACKWARD_SPLIT, "none", true},
        {1, BACKWARD_SPLIT, "block", true}, {2, BACKWARD_FUSED, "block", true},
        {2, BACKWARD_SPLIT, "norm", true},  {1, BACKWARD_FUSED, "none", false},
        {1, BACKWARD_SPLIT, "activation", true},
    };

    for (int r = 0; r < ROWS(rows); r++) {
        current = &rows[r];
        const size_t bytes = gradients_of(&usual, plain, sizeof plain);
        for (int i = 0; i < ROWS(ways); i++) {
            EQUAL_INT(gradients_of(&ways[i], other, sizeof other), bytes);
            if (memcmp(plain, other, bytes) != 0)
                print_error("%s, way %d\n", rows[r].name, i);
            EQUAL_BYTES(plain, other, bytes);
        }
    }
}

/* In a process of its own, for the planner may stop the program: a buffer that
 * is read and that no flag kept has no place. True when all went well. */
static bool lie_passes(size_t bytes)
{
    static const struct how poison = {4, BACKWARD_SPLIT, "none", true};
    const pid_t child = fork();
    int ended = 0;

    CHECK(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
        gradients_of(&poison, other, sizeof other);
        _exit(memcmp(plain, other, bytes) == 0 ? 0 : 1);
    }
    CHECK(waitpid(child, &ended, 0) == child);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

/* The test above is worth something only if a wrong flag shows. */
TEST(a_flag_that_lies_is_found)
{
    static const struct { const char *row; int step; } lies[] = {
        {"linear", 1}, {"rmsnorm", 1}, {"layernorm", 1},
        {"swiglu", 2}, {"gelu erf", 2}, {"attention", 2},
        {"norm of heads", 2},          {"adapters of experts", 3},
        {"adapters of experts", 5},
    };
    static const struct how usual = {4, BACKWARD_SPLIT, "none", false};

    for (int i = 0; i < ROWS(lies); i++) {
        for (int r = 0; r < ROWS(rows); r++)
            if (strcmp(rows[r].name, lies[i].row) == 0) current = &rows[r];
        lame_step = -1;
        const size_t bytes = gradients_of(&usual, plain, sizeof plain);
        CHECK(lie_passes(bytes)); /* the truth does */
        lame_step = lies[i].step;
        if (lie_passes(bytes)) print_error("%s\n", lies[i].row);
        CHECK(!lie_passes(bytes));
        lame_step = -1;
    }
}

TEST_MAIN(gradients_agree_with_finite_differences,
          no_bit_depends_on_what_is_dead, a_flag_that_lies_is_found)
