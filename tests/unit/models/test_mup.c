/* SPDX-License-Identifier: Apache-2.0 */
/* test_mup.c - mirrors src/models/mup.c: table 8 of Yang et al. 2022, with the
 * factor of the logits in the gain of the norm before the head. */
#include "models/mup.h"

#include <math.h>

#include "plan/stage.h"
#include "tests/test.h"

enum { BASE = 32, WIDTH = 128, VOCAB = 97 };

static struct model model_of(const struct model_kind *kind, double mup)
{
    return (struct model){.kind = kind, .vocab = VOCAB, .layers = 2,
                          .heads = 8, .kv_heads = 8, .head_width = 16,
                          .width = WIDTH, .feed_forward = 256, .context = 16,
                          .tied = kind->tied, .rope.base = 10000,
                          .norm_epsilon = 1e-5, .init_std = 0.02, .mup = mup,
                          .biases.attention = kind->biases.attention,
                          .biases.mlp = kind->biases.mlp,
                          .activation = ACTIVATION_GELU_TANH};
}

static const struct row {
    const char *name;
    struct mup factors; /* deviation, rate, rate of SGD, gain */
} llama[] = {
    {"embedding", {1, 1, 4, 1}}, {"layers.0.attention_norm", {1, 1, 4, 1}},
    {"layers.0.attention.wqkv", {0.5, 0.25, 1, 1}},
    {"layers.1.attention.wo", {0.5, 0.25, 1, 1}},
    {"layers.1.ffn.w13", {0.5, 0.25, 1, 1}},
    {"layers.0.ffn.w2", {0.5, 0.25, 1, 1}},
    {"norm", {1, 0.25, 0.25, 0.25}}, {"head", {1, 1, 4, 1}}},
  gptj[] = {
    {"layers.0.ffn.b1", {1, 1, 4, 1}}, {"norm.bias", {1, 0.25, 0.25, 0.25}},
    {"head", {1, 1, 4, 1}}, {"head.bias", {1, 1, 1, 1}}},
  qwen3[] = {
    {"layers.1.attention.q_norm", {1, 1, 1, 1}},
    {"layers.1.attention.k_norm", {1, 1, 1, 1}},
    {"layers.1.ffn_norm", {1, 1, 4, 1}}},
  olmo2[] = {{"layers.1.attention.q_norm", {1, 1, 4, 1}}},
  experts[] = { /* outputs, and matrices of blocks; biases of both */
    {"layers.1.router", {0.25, 0.25, 0.25, 0.25}},
    {"layers.0.router_b", {1, 1, 1, 1}},
    {"layers.1.experts.2.w13", {0.5, 0.25, 1, 1}},
    {"layers.0.experts.0.w2", {0.5, 0.25, 1, 1}},
    {"layers.0.experts.1.b13", {1, 1, 4, 1}},
    {"layers.0.experts.b2", {1, 1, 4, 1}}},
  later[] = {
    {"layers.2.mtp.projection", {0.5, 0.25, 1, 1}},
    {"layers.2.ffn.w13", {0.5, 0.25, 1, 1}},
    {"layers.2.mtp.hidden_norm", {1, 1, 4, 1}},
    {"layers.2.mtp.norm", {1, 0.25, 0.25, 0.25}}};

static const struct param *find(const struct param_table *table,
                                const char *name)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->items[i].name, name) == 0) return &table->items[i];
    print_error("no parameter %s\n", name);
    CHECK(false);
    return NULL;
}

static bool same(struct mup a, struct mup b)
{
    return a.deviation == b.deviation && a.rate == b.rate && a.sgd == b.sgd &&
           a.gain == b.gain;
}

static void check_kind(const struct model_kind *kind, const struct row *rows,
                       int count, int depth)
{
    struct model wide = model_of(kind, WIDTH / BASE);
    const struct model standard = model_of(kind, 0);
    struct program whole;

    wide.mtp_depth = depth;
    if (kind->moe.experts > 0)
        wide.moe = (struct moe){.experts = 3, .top_k = 2, .width = 64};

    IS_OK(model_build_whole(&whole, &wide));
    for (int i = 0; i < count; i++) {
        const struct param *param = find(&whole.params, rows[i].name);
        struct param other = *param; /* factors follow roles, not names */

        snprintf(other.name, sizeof other.name, "other");
        CHECK(same(mup_of(&wide, param), rows[i].factors));
        CHECK(same(mup_of(&wide, &other), rows[i].factors));
        CHECK(same(mup_of(&standard, param), (struct mup){1, 1, 1, 1}));
    }
    program_free(&whole);
}

TEST(factors_are_those_of_the_table)
{
    check_kind(&model_llama, llama, ROWS(llama), 0);
    check_kind(&model_gptj, gptj, ROWS(gptj), 0);
    check_kind(&model_qwen3, qwen3, ROWS(qwen3), 0);
    check_kind(&model_olmo2, olmo2, ROWS(olmo2), 0);
    check_kind(&model_gpt_oss, experts, ROWS(experts), 0);
    check_kind(&model_llama, later, ROWS(later), 1);
}

/* Weights of a whole model from the same seed. */
static void open_stage(struct stage *stage, const struct model *model)
{
    const struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .layout.grid = {1, 1, 1, 1},
        .size.batch = 1,
        .size.micro_batch = 1, .size.length = 4, .size.context = 16,
        .machine.threads = 1};

    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    IS_OK(stage_init_weights(stage, model, 5));
}

/* Element 7 of a parameter. */
static double element(const struct stage *stage, const char *name)
{
    const struct param *param = find(&stage->program.params, name);
    const struct tensor view =
        param_tensor(param, stage->run.params.weights, DTYPE_F32);

    return tensor_get(&view, 7);
}

static const struct {
    const struct model_kind *kind;
    const char *name;
    double factor, other; /* element = factor standard + other */
} starts[] = {
    {&model_llama, "embedding", 1, 0},
    {&model_llama, "layers.1.ffn.w13", 0.5, 0},
    {&model_llama, "layers.0.attention.wo", 0.5, 0},
    {&model_llama, "norm", 0.25, 0}, {&model_llama, "head", 1, 0},
    {&model_gpt2, "norm.weight", 0.25, 0}, {&model_gpt2, "norm.bias", 1, 0},
    {&model_gpt2, "layers.0.ffn.b1", 1, 0},
    {&model_gpt2, "positions", 1, 0},
    {&model_gemma, "norm", 1, -0.75}, /* stored less 1 */
    {&model_gemma, "layers.0.ffn_norm", 1, 0}};

TEST(weights_begin_with_those_factors)
{
    for (int i = 0; i < ROWS(starts); i++) {
        const struct model wide = model_of(starts[i].kind, WIDTH / BASE);
        const struct model standard = model_of(starts[i].kind, 0);
        struct stage a = {0}, b = {0};

        open_stage(&a, &wide);
        open_stage(&b, &standard);
        CHECK(element(&a, starts[i].name) ==
              starts[i].factor * element(&b, starts[i].name) +
                  starts[i].other);
        stage_free(&a);
        stage_free(&b);
    }
}

TEST_MAIN(factors_are_those_of_the_table, weights_begin_with_those_factors)
