/* SPDX-License-Identifier: Apache-2.0 */
/* test_qk_clip.c - the weights after QK-clip against an oracle in float64
 * (tests/golden/README.md), from a step whose learning rate is 0; and that
 * nothing is touched within the bound. */
#include "tests/golden/golden_step.h"
#include "step/step.h"

static const struct clip_case {
    const char *name; /* a folder of tests/golden/regularization */
    const char *model;
    enum dtype dtype;
    int64_t micro_batch;
    double bound;
} rows[] = {
    {"clip_groups", "models/llama_nine_heads", DTYPE_F64, 3, 0.3},
    {"clip_groups", "models/llama_nine_heads", DTYPE_F32, 1, 0.3},
    {"clip_heads", "models/llama_tied_bias", DTYPE_F64, 1, 0.3},
    {"clip_heads", "models/llama_tied_bias", DTYPE_F32, 3, 0.3},
};

static int32_t tokens[TOKENS];

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int32_t *from = tokens + index * LENGTH;

    (void)argument;
    for (int32_t t = 0; t < LENGTH; t++) {
        inputs[t] = from[t];
        targets[t] = t == LENGTH - 1 ? -1 : from[t + 1];
        positions[t] = t;
        documents[t] = 0;
    }
    return OK;
}

static void pipeline_begin(struct pipeline *pipeline, struct model *model,
                           const struct clip_case *row, double bound)
{
    static const char *const recompute = "none";
    const struct golden_case files = {.model = row->model};
    const struct grid asked = {0, 0, 0, 0};

    IS_OK(model_from_config(model, golden_path(&files, "config.json")));
    const struct grid_facts facts = {
        .batch = SEQUENCES, .heads = model->heads,
        .kv_heads = model->kv_heads, .head_width = model->head_width,
        .feed_forward = model->feed_forward};
    struct pipeline_request request = {.stage = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .size.batch = SEQUENCES, .size.micro_batch = row->micro_batch,
        .size.length = LENGTH, .size.context = model->context,
        .machine.threads = 2,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .qk_clip = bound,
        .recomputation.policy = &recompute, .recomputation.count = 1}};

    IS_OK(grid_resolve(&request.stage.layout.grid, &asked, &facts));
    IS_OK(pipeline_plan(pipeline, &request));
    IS_OK(pipeline_open(pipeline));
    golden_each(&pipeline->stages[0],
                golden_path(&files, "model.safetensors"), golden_load, NULL);
    golden_tokens(&files, tokens);
}

/* One step in which AdamW changes nothing. The largest score. */
static double step_once(struct pipeline *pipeline)
{
    const struct sample_source source = {.fill = fill, .argument = NULL};
    struct step_result result;
    struct train_step step;

    IS_OK(train_step_build(&step, pipeline, NULL));
    IS_OK(train_step_refresh(&step));
    step.update.beta1 = step.update.beta2 = 0.9;
    step.update.epsilon = 1e-8;
    IS_OK(train_step_run(&step, &source, 0, 1, &result));
    train_step_free(&step);
    return result.max_score;
}

static void weights_check(struct pipeline *pipeline,
                          const struct clip_case *row, const char *path)
{
    struct stage *stage = &pipeline->stages[0];
    struct golden_limit limit = {
        .flat = stage->memory[MEMORY_WEIGHTS].data,
        .within = row->dtype == DTYPE_F64 ? 1e-12 : 1e-6};

    golden_each(stage, path, golden_compare, &limit);
}

TEST(weights_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct pipeline pipeline = {0};
        struct model model;
        char path[300];

        pipeline_begin(&pipeline, &model, &rows[i], rows[i].bound);
        CHECK(step_once(&pipeline) > rows[i].bound);
        snprintf(path, sizeof path,
                 "%s/regularization/%s/weights.safetensors", GOLDEN,
                 rows[i].name);
        weights_check(&pipeline, &rows[i], path);
        pipeline_free(&pipeline);
    }
}

TEST(within_the_bound_nothing_is_touched)
{
    struct pipeline pipeline = {0};
    struct model model;

    pipeline_begin(&pipeline, &model, &rows[0], 1e6);
    const double most = step_once(&pipeline);

    CHECK(most > 0 && most < 1e6);
    const struct golden_case files = {.model = rows[0].model};
    weights_check(&pipeline, &rows[0],
                  golden_path(&files, "model.safetensors"));
    pipeline_free(&pipeline);
    pipeline = (struct pipeline){0};
    pipeline_begin(&pipeline, &model, &rows[0], 0);
    const double off = step_once(&pipeline);

    CHECK(off != off); /* nobody asks */
    pipeline_free(&pipeline);
}

/* The update alone: a second step sees scores at the bound, or below it. */
TEST(clipped_scores_are_at_the_bound)
{
    for (int i = 0; i < ROWS(rows); i += 2) {
        struct pipeline pipeline = {0};
        struct model model;

        pipeline_begin(&pipeline, &model, &rows[i], rows[i].bound);
        const double before = step_once(&pipeline);
        const double after = step_once(&pipeline);

        CHECK(after < before);
        CHECK(after < 1.5 * rows[i].bound); /* later blocks see others */
        pipeline_free(&pipeline);
    }
}

TEST_MAIN(weights_agree_with_the_oracle, within_the_bound_nothing_is_touched,
          clipped_scores_are_at_the_bound)
