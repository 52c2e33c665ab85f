/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_mtp.c - losses and gradients of modules that predict later tokens
 * against PyTorch in float64 (tests/golden/make_mtp.py): documents in one
 * sequence, tokens without a target, two modules, any micro-batch. */
#include <math.h>

#include "base/json.h"
#include "step/step.h"
#include "tests/golden/golden.h"

enum { SEQUENCES = 3, LENGTH = 37, TOKENS = SEQUENCES * LENGTH };

static const struct mtp_case {
    const char *name;
    enum dtype dtype;
    int64_t micro_batch;
    const char *recompute;
    double within;
} rows[] = {
    {"deepseek_v3", DTYPE_F64, 3, "none", 1e-10},
    {"deepseek_v3", DTYPE_F64, 1, "block", 1e-10},
    {"deepseek_v3", DTYPE_F32, 1, "none", 2e-5},
    {"glm4_moe", DTYPE_F64, 3, "none", 1e-10},
    {"glm4_moe", DTYPE_F32, 3, "block", 2e-5},
    {"glm4_moe_lite", DTYPE_F64, 1, "none", 1e-10},
    {"glm4_moe_lite", DTYPE_F32, 3, "block", 2e-5},
    {"llama", DTYPE_F64, 3, "none", 1e-10},
    {"llama", DTYPE_F64, 1, "block", 1e-10},
    {"llama", DTYPE_F32, 1, "none", 2e-5},
    {"qwen3", DTYPE_F64, 3, "none", 1e-10},
    {"qwen3", DTYPE_F32, 1, "block", 2e-5},
};

/* The batch of the oracle: tokens, targets, positions, documents. */
struct mtp_batch { int32_t arrays[4][TOKENS]; };

static const char *path_of(const struct mtp_case *row, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/mtp/%s/%s", GOLDEN, row->name, name);
    return path;
}

static void read_batch(const struct json *root, struct mtp_batch *batch)
{
    static const char *const names[] = {"tokens", "targets", "positions",
                                        "documents"};

    for (int i = 0; i < 4; i++) {
        const struct json *table = json_get(root, names[i]);

        CHECK(table != NULL && table->count == SEQUENCES);
        for (int t = 0; t < TOKENS; t++)
            batch->arrays[i][t] =
                (int32_t)table->items[t / LENGTH].items[t % LENGTH].integer;
    }
}

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const struct mtp_batch *batch = argument;
    int32_t *const to[] = {inputs, targets, positions, documents};

    for (int i = 0; i < 4; i++)
        memcpy(to[i], batch->arrays[i] + index * LENGTH,
               LENGTH * sizeof(int32_t));
    return OK;
}

static void open_pipeline(const struct mtp_case *row, struct model *model,
                          const struct json *expected,
                          struct pipeline *pipeline)
{
    const struct grid_facts facts = {
        .batch = SEQUENCES, .heads = model->heads,
        .kv_heads = model->kv_heads, .head_width = model->head_width,
        .feed_forward = model_inner(model), .experts = model->moe.experts,
        .groups = model->moe.groups};
    const struct grid asked = {0, 0, 0, 0};
    struct pipeline_request request = {.stage = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .size.batch = SEQUENCES, .size.micro_batch = row->micro_batch,
        .size.length = LENGTH, .size.context = model->context,
        .machine.threads = 2,
        .mtp_depth = model->mtp_depth, .backward = BACKWARD_FUSED,
        .training.optimizer = true, .recomputation.policy = &row->recompute,
        .recomputation.count = 1}};
    double weight = 0;

    IS_OK(json_get_real(expected, "expected", "weight", &weight));
    request.stage.regular.mtp_weight[0] = weight;
    IS_OK(grid_resolve(&request.stage.layout.grid, &asked, &facts));
    IS_OK(pipeline_plan(pipeline, &request));
    IS_OK(pipeline_open(pipeline));
    golden_each(&pipeline->stages[0], path_of(row, "model.safetensors"),
                golden_load, NULL);
}

static void same_losses(const struct mtp_case *row, const struct json *expected,
                        const struct step_result *result)
{
    const struct json *losses = json_get(expected, "losses");

    CHECK(losses != NULL && losses->count >= 2);
    for (int i = 0; i < losses->count; i++) {
        const double found = i == 0 ? result->loss : result->later[i - 1];
        const double wanted = losses->items[i].real;

        if (!(fabs(found - wanted) <= row->within * wanted))
            print_error("%s: loss %d is %.12f, not %.12f\n", row->name, i,
                        found, wanted);
        CHECK(fabs(found - wanted) <= row->within * wanted);
    }
}

static void compare(struct stage *stage, const struct param *param,
                    const struct param_outside *outside, char *dense,
                    void *argument)
{
    if (param_has_gradient(param))
        golden_compare(stage, param, outside, dense, argument);
}

static void run_case(const struct mtp_case *row)
{
    const struct json *root, *expected, *depth;
    struct pipeline pipeline;
    struct train_step step;
    struct mtp_batch batch;
    struct model model;
    struct step_result result;
    struct arena arena;

    arena_init(&arena, "mtp", 0);
    IS_OK(json_read_file(&root, &arena, path_of(row, "batch.json"), 1 << 20));
    read_batch(root, &batch);
    IS_OK(json_read_file(&expected, &arena, path_of(row, "expected.json"),
                         1 << 20));
    IS_OK(model_from_config(&model, path_of(row, "config.json")));
    depth = json_get(expected, "depth");
    model.mtp_depth = (int)depth->integer;
    open_pipeline(row, &model, expected, &pipeline);
    IS_OK(train_step_build(&step, &pipeline, NULL));
    IS_OK(train_step_refresh(&step));
    train_step_begin(&step, 0);
    const struct sample_source source = {.fill = fill, .argument = &batch};

    IS_OK(train_step_probe(&step, &source, &result));
    same_losses(row, expected, &result);
    struct golden_limit limit = {
        .flat = pipeline.stages[0].memory[MEMORY_GRADIENTS].data,
        .gradients = true, .within = row->within};

    golden_each(&pipeline.stages[0], path_of(row, "gradients.safetensors"),
                compare, &limit);
    train_step_free(&step);
    pipeline_free(&pipeline);
    arena_free(&arena);
}

TEST(losses_and_gradients_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) run_case(&rows[i]);
}

TEST_MAIN(losses_and_gradients_agree_with_the_oracle)
