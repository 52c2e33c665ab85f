/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_whole.c - 20 steps of the optimizers that see whole matrices,
 * and of others but AdamW, with clipping and a schedule, against oracles in
 * float64 (tests/golden/make_whole.py, make_elements.py). Losses after the
 * first step are functions of all weights, so weights are not stored. */
#include "optimizer/rate.h"
#include "tests/golden/golden.h"
#include "train/step.h"

enum { STEPS = 20 };

static const struct whole_case {
    const char *run, *file, *optimizer;
    enum dtype dtype;
    double within; /* of losses; norms: 100 times */
} cases[] = {
    {"llama", "muon", "muon", DTYPE_F64, 1e-10},
    {"llama", "muon", "muon", DTYPE_F32, 1e-4},
    {"gpt2", "muon", "muon", DTYPE_F64, 1e-10},
    {"gpt2", "muon", "muon", DTYPE_F32, 1e-4},
    {"llama", "muon_rms", "muon", DTYPE_F64, 1e-10},
    {"gpt2", "muon_rms", "muon", DTYPE_F64, 1e-10},
    {"llama", "adafactor", "adafactor", DTYPE_F64, 1e-10},
    {"llama", "adafactor", "adafactor", DTYPE_F32, 1e-4},
    {"gpt2", "adafactor", "adafactor", DTYPE_F64, 1e-10},
    {"llama", "lion", "lion", DTYPE_F64, 1e-10},
    {"llama", "lion", "lion", DTYPE_F32, 1e-4},
    {"gpt2", "lion", "lion", DTYPE_F64, 1e-10},
    {"llama", "sgd", "sgd", DTYPE_F64, 1e-10},
    {"llama", "sgd", "sgd", DTYPE_F32, 1e-5},
    {"gpt2", "sgd", "sgd", DTYPE_F64, 1e-10},
    {"llama", "schedule_free", "schedule_free", DTYPE_F64, 1e-10},
    {"llama", "schedule_free", "schedule_free", DTYPE_F32, 1e-5},
    {"gpt2", "schedule_free", "schedule_free", DTYPE_F64, 1e-10},
    {"gpt2", "schedule_free", "schedule_free", DTYPE_F32, 1e-4},
    {"llama", "soap", "soap", DTYPE_F64, 1e-10},
    {"gpt2", "soap", "soap", DTYPE_F64, 1e-9}, /* 8e-11 when it was made */
};

struct training {
    const struct whole_case *row;
    struct arena arena;
    const struct json *root;
    struct model model;
    struct pipeline pipeline;
    struct train_step step;
    struct rate rate;
    int64_t batch, length, now;
    int32_t *tokens; /* [steps, batch, length + 1] */
};

static double number_or(const struct training *t, const char *key,
                        double fallback)
{
    double value = 0;

    IS_OK(json_get_real_or(t->root, "golden", key, fallback, &value));
    return value;
}

static double number(const struct training *t, const char *key)
{
    double value = 0;

    IS_OK(json_get_real(t->root, "golden", key, &value));
    return value;
}

static const char *model_file(const struct training *t, const char *name)
{
    static char path[300];
    const char *model = NULL;

    IS_OK(json_get_string(t->root, "golden", "model", &model));
    snprintf(path, sizeof path, "%s/models/%s/%s", GOLDEN, model, name);
    return path;
}

static void tokens_read(struct training *t)
{
    const int64_t count = STEPS * t->batch * (t->length + 1);
    struct safetensors file = {0};
    char path[300];
    void *memory = NULL;

    snprintf(path, sizeof path, "%s/training/%s/tokens.safetensors", GOLDEN,
             t->row->run);
    IS_OK(arena_take_array(&t->arena, (size_t)count, sizeof *t->tokens,
                           &memory));
    t->tokens = memory;
    IS_OK(safetensors_open(&file, path, true));
    EQUAL_INT(file.entries[0].elements, count);
    IS_OK(safetensors_read(&file, file.entries, 0, count, DTYPE_I32,
                           t->tokens));
    safetensors_close(&file);
}

static void settings_read(struct training *t)
{
    struct update *u = &t->step.update;
    const char *adjust = "original", *schedule;

    u->beta1 = number(t, "beta1");
    u->beta2 = number(t, "beta2");
    u->epsilon = number(t, "epsilon");
    u->weight_decay = number(t, "weight_decay");
    u->clip = number(t, "clip");
    u->momentum = number_or(t, "momentum", 0);
    u->nesterov = true;
    u->frequency = (int)number_or(t, "frequency", 1);
    u->ns_steps = (int)number_or(t, "ns_steps", 0);
    if (u->ns_steps > 0)
        IS_OK(json_get_string(t->root, "golden", "adjust", &adjust));
    IS_OK(muon_adjust_parse(&u->adjust, adjust));
    t->rate = (struct rate){.peak = number(t, "lr"),
                            .least = number(t, "min_lr"), .steps = STEPS,
                            .warmup = (int64_t)number(t, "warmup")};
    IS_OK(json_get_string(t->root, "golden", "schedule", &schedule));
    IS_OK(rate_curve_parse(schedule, &t->rate.curve));
}

static void training_begin(struct training *t, const struct whole_case *row)
{
    static const char *const recompute = "none";
    const struct grid asked = {0, 0, 0};
    char path[300];

    *t = (struct training){.row = row};
    arena_init(&t->arena, "training", 0);
    snprintf(path, sizeof path, "%s/training/%s/%s.json", GOLDEN, row->run,
             row->file);
    IS_OK(json_read_file(&t->root, &t->arena, path, 1 << 20));
    t->batch = (int64_t)number(t, "batch");
    t->length = (int64_t)number(t, "sequence");
    EQUAL_INT(number(t, "steps"), STEPS);
    tokens_read(t);
    IS_OK(model_from_config(&t->model, model_file(t, "config.json")));
    const struct grid_facts facts = {
        .batch = t->batch, .heads = t->model.heads,
        .kv_heads = t->model.kv_heads, .head_width = t->model.head_width,
        .feed_forward = t->model.feed_forward};
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .batch = t->batch, .micro_batch = 3, .length = t->length,
        .context = t->model.context, .threads = 2,
        .backward = BACKWARD_FUSED, .optimizer = true,
        .recompute = &recompute, .recompute_count = 1}};

    IS_OK(optimizer_find(&request.stage.choice.kind, row->optimizer));
    IS_OK(grid_resolve(&request.stage.grid, &asked, &facts));
    IS_OK(pipeline_plan(&t->pipeline, &request));
    IS_OK(pipeline_open(&t->pipeline));
    golden_each(&t->pipeline.stages[0], model_file(t, "model.safetensors"),
                golden_load, NULL);
    IS_OK(train_step_build(&t->step, &t->pipeline, NULL));
    IS_OK(train_step_start(&t->step));
    IS_OK(train_step_refresh(&t->step));
    settings_read(t);
}

static void training_end(struct training *t)
{
    train_step_free(&t->step);
    pipeline_free(&t->pipeline);
    arena_free(&t->arena);
}

/* A struct sample_source over the stored tokens. */
static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const struct training *t = argument;
    const int32_t *from =
        t->tokens + (t->now * t->batch + index) * (t->length + 1);

    for (int64_t i = 0; i < t->length; i++) {
        inputs[i] = from[i];
        targets[i] = from[i + 1];
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}

static void near(const struct training *t, const char *what, double found,
                 double expected, double within)
{
    const double gap = found > expected ? found - expected : expected - found;

    if (gap <= within * expected) return;
    print_error("%s, %s, %s: step %lld: %s is %.15g, expected %.15g\n",
                t->row->run, t->row->file, dtype_name(t->row->dtype),
                (long long)t->now, what, found, expected);
    test_failed(__FILE__, __LINE__, "within the tolerance");
}

static void steps_check(struct training *t)
{
    const struct json *rows = json_get(t->root, "rows");
    const struct sample_source source = {.fill = fill, .argument = t};

    CHECK(rows != NULL);
    EQUAL_INT(rows->count, STEPS);
    for (t->now = 0; t->now < STEPS; t->now++) {
        const struct json *row = &rows->items[t->now];
        double loss = 0, norm = 0, lr = 0;
        struct step_result result;

        IS_OK(json_get_real(row, "row", "loss", &loss));
        IS_OK(json_get_real(row, "row", "grad_norm", &norm));
        IS_OK(json_get_real(row, "row", "lr", &lr));
        near(t, "lr", rate_at(&t->rate, t->now), lr, 1e-12);
        IS_OK(train_step_run(&t->step, &source, rate_at(&t->rate, t->now),
                             t->now + 1, &result));
        near(t, "loss", result.loss, loss, t->row->within);
        near(t, "norm", result.norm, norm, 100 * t->row->within);
    }
}

/* Where an average is what counts: the loss of the last batch there. The
 * weights that are trained come back. */
static void average_check(struct training *t)
{
    const struct sample_source source = {.fill = fill, .argument = t};
    struct evaluation there, back, first;
    double sums[64], wanted;

    if (json_get(t->root, "average_loss") == NULL) return;
    t->now = STEPS - 1;
    wanted = number(t, "average_loss");
    there = back = first = (struct evaluation){.sums = sums};
    IS_OK(train_evaluate(&t->step, &source, t->batch, &first));
    IS_OK(train_step_average(&t->step));
    IS_OK(train_evaluate(&t->step, &source, t->batch, &there));
    IS_OK(train_step_return(&t->step));
    IS_OK(train_evaluate(&t->step, &source, t->batch, &back));
    near(t, "loss of the average", there.sum / (double)there.targets, wanted,
         t->row->within);
    CHECK(first.sum == back.sum && first.sum != there.sum);
}

TEST(twenty_steps_agree_with_the_oracles)
{
    for (int i = 0; i < ROWS(cases); i++) {
        struct training training;

        training_begin(&training, &cases[i]);
        steps_check(&training);
        average_check(&training);
        training_end(&training);
    }
}

TEST_MAIN(twenty_steps_agree_with_the_oracles)
