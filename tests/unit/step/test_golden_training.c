/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_training.c - 20 AdamW steps with clipping and a schedule of the
 * learning rate, against an oracle in float64 (tests/golden/README.md); those
 * in 16 bits no further from float64 than 1.2 times PyTorch's own. */
#include <math.h>

#include "tests/golden/golden_training.h"
#include "tests/sanitized.h"
#include "step/noise.h"

static const struct training_case {
    const char *run;
    enum dtype dtype;
    int64_t micro_batch;
    double within; /* of losses; norms: 100 times */
    enum product product;
} rows[] = {
    {"llama", DTYPE_F64, 6, 1e-10, 0}, {"llama", DTYPE_F64, 1, 1e-10, 0},
    {"llama", DTYPE_F32, 3, 1e-5, 0},  {"gpt2", DTYPE_F64, 2, 1e-10, 0},
    {"gpt2", DTYPE_F64, 3, 1e-10, 0},  {"gpt2", DTYPE_F32, 6, 1e-5, 0},
}, narrow_rows[] = {
    {"llama", DTYPE_BF16, 3, 0, PRODUCT_PAIRS},
    {"llama", DTYPE_BF16, 6, 0, PRODUCT_TILES},
    {"gpt2", DTYPE_BF16, 2, 0, PRODUCT_PAIRS},
    {"gpt2", DTYPE_BF16, 6, 0, PRODUCT_TILES},
    {"llama", DTYPE_F16, 2, 0, PRODUCT_PAIRS},
    {"gpt2", DTYPE_F16, 3, 0, PRODUCT_PAIRS},
};

enum { DRAWS = 4 }; /* of the eight stored */
static const double times_pytorch = 1.2;

/* The limit of final weights, in float64 alone: the gradient of a key's bias
 * is zero up to rounding (softmax does not see it), and AdamW makes full steps
 * of the signs of that noise. */
static const double weights_within = 1e-9;

/* Everything of a golden run. */
struct training {
    struct golden_training golden;
    const struct training_case *row;
    double losses[STEPS], norms[STEPS]; /* found */
};

static const char *path_of(const struct training_case *row, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/training/%s/%s", GOLDEN, row->run, name);
    return path;
}

static void stage_begin(struct training *t)
{
    struct golden_training *g = &t->golden;
    struct pipeline_request request;

    IS_OK(model_from_config(&g->model, golden_model_file(g, "config.json")));
    request = golden_training_request(g, t->row->dtype, t->row->micro_batch);
    request.stage.machine.product = t->row->product;
    golden_training_open(g, &request);
    golden_each(&g->pipeline.stages[0],
                golden_model_file(g, "model.safetensors"), golden_load, NULL);
    IS_OK(train_step_build(&g->step, &g->pipeline, NULL));
    IS_OK(train_step_refresh(&g->step));
    golden_training_settings(g);
    if (t->row->dtype == DTYPE_F16)
        IS_OK(loss_scale_parse(&g->step.scaling, "1024", DTYPE_F16,
                               g->batch * g->length));
}

/* draw: of the tokens of narrow.json; -1: the tokens of training.json. */
static void training_begin(struct training *t, const struct training_case *row,
                           int64_t draw)
{
    *t = (struct training){.row = row};
    golden_training_read(&t->golden, row->run, path_of(row, "training.json"));
    golden_training_tokens(&t->golden, row->run,
                           draw < 0 ? "tokens.safetensors"
                                    : "narrow_tokens.safetensors", draw);
    stage_begin(t);
}

static void steps_run(struct training *t)
{
    struct golden_training *g = &t->golden;
    const struct sample_source source = golden_source(g);

    for (g->now = 0; g->now < STEPS; g->now++) {
        struct step_result result;

        IS_OK(train_step_run(&g->step, &source, rate_at(&g->rate, g->now),
                             g->now + 1, &result));
        EQUAL_INT(result.targets, g->batch * g->length);
        t->losses[g->now] = result.loss;
        t->norms[g->now] = result.norm;
    }
}

static void steps_check(struct training *t)
{
    struct golden_training *g = &t->golden;
    const struct json *expected = json_get(g->root, "rows");

    CHECK(expected != NULL);
    EQUAL_INT(expected->count, STEPS);
    for (g->now = 0; g->now < STEPS; g->now++) {
        const struct json *row = &expected->items[g->now];

        golden_near(g, "lr", rate_at(&g->rate, g->now),
                    golden_field(row, "lr"), 1e-12);
        golden_near(g, "loss", t->losses[g->now], golden_field(row, "loss"),
                    t->row->within);
        golden_near(g, "norm", t->norms[g->now],
                    golden_field(row, "grad_norm"), 100 * t->row->within);
    }
}

TEST(twenty_steps_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct training training;

        training_begin(&training, &rows[i], -1);
        steps_run(&training);
        steps_check(&training);
        struct golden_limit limit = {
            .flat = training.golden.pipeline.stages[0]
                        .memory[MEMORY_WEIGHTS].data,
            .within = weights_within};
        if (rows[i].dtype == DTYPE_F64)
            golden_each(&training.golden.pipeline.stages[0],
                        path_of(&rows[i], "final.safetensors"),
                        golden_compare, &limit);
        golden_training_end(&training.golden);
    }
}

/* ---- 16 bits ---- */

/* Sums over draws of mean squares; narrow.json has their roots. */
struct errors { double losses, norms, weights; };

static double square(double x)
{
    return x * x;
}

/* |a - b|^2 over all matrices: not vectors, for the gradient of a key's bias
 * is zero up to rounding, and AdamW makes full steps of the signs of that. */
static double matrices_apart(const struct stage *stage,
                             const struct tensor *a, const struct tensor *b)
{
    const struct param_table *table = &stage->program.params;
    double sum = 0;

    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];

        if (param->spec.rows == 1 || param->spec.cols == 1) continue;
        for (int64_t at = param->offset;
             at < param->offset + param->elements; at++)
            sum += square(tensor_get(a, at) - tensor_get(b, at));
    }
    return sum;
}

static struct tensor weights_of(const struct training *t)
{
    const struct stage *stage = &t->golden.pipeline.stages[0];

    return tensor_1d(stage->memory[MEMORY_WEIGHTS].data,
                     dtype_real(stage->request.dtype),
                     stage->program.params.elements);
}

static void errors_add(struct errors *sum, const struct training_case *row,
                       int64_t draw)
{
    const struct training_case exact = {row->run, DTYPE_F64, row->micro_batch,
                                        0, 0};
    struct training start, truth, ours;

    training_begin(&start, &exact, draw);
    training_begin(&truth, &exact, draw);
    training_begin(&ours, row, draw);
    steps_run(&truth);
    steps_run(&ours);
    for (int i = 0; i < STEPS; i++) {
        sum->losses += square(ours.losses[i] / truth.losses[i] - 1) / STEPS;
        sum->norms += square(ours.norms[i] / truth.norms[i] - 1) / STEPS;
    }
    const struct stage *stage = &truth.golden.pipeline.stages[0];
    const struct tensor first = weights_of(&start), end = weights_of(&truth),
                        found = weights_of(&ours);
    sum->weights += matrices_apart(stage, &found, &end)
                    / matrices_apart(stage, &end, &first);
    golden_training_end(&start.golden);
    golden_training_end(&truth.golden);
    golden_training_end(&ours.golden);
}

static void no_further(const struct training_case *row,
                       const struct json *theirs, const char *what,
                       double squares)
{
    const double ours = sqrt(squares / DRAWS);
    double allowed = 0;

    IS_OK(json_get_real(theirs, "narrow.json", what, &allowed));
    print_message("%s, %s, product %d: %s %.2f of PyTorch's error\n",
                  row->run, dtype_name(row->dtype), (int)row->product, what,
                  ours / allowed);
    CHECK(ours <= times_pytorch * allowed);
}

TEST(steps_in_sixteen_bits_are_no_worse_than_those_of_pytorch)
{
    for (int i = 0; i < ROWS(narrow_rows); i++) {
        const struct training_case *row = &narrow_rows[i];
        struct errors errors = {0, 0, 0};
        const struct json *root, *theirs;
        struct arena arena;

        arena_init(&arena, "errors", 0);
        IS_OK(json_read_file(&root, &arena, path_of(row, "narrow.json"),
                             1 << 20));
        theirs = json_get(root, dtype_name(row->dtype));
        CHECK(theirs != NULL);
        for (int64_t draw = 0; draw < (SANITIZED ? 1 : DRAWS); draw++)
            errors_add(&errors, row, draw);
        if (!SANITIZED) { /* one draw is no mean */
            no_further(row, theirs, "losses", errors.losses);
            no_further(row, theirs, "norms", errors.norms);
            no_further(row, theirs, "weights", errors.weights);
        }
        arena_free(&arena);
    }
}

/* ---- the gradient-noise scale ---- */

/* One batch with the weights that the model begins with. */
static void noise_of(struct golden_training *t, const struct json *row,
                     double within)
{
    const struct sample_source source = golden_source(t);
    struct noise noise = {.every = 1, .leaves = 2, .data_leaves = 2};
    struct step_result result;
    double now, average;

    IS_OK(noise_begin(&noise, &t->step, &source, 0, t->batch));
    golden_near(t, "small", noise.small, golden_field(row, "small"), within);
    IS_OK(train_step_probe(&t->step, &source, &result));
    golden_near(t, "big", result.norm * result.norm, golden_field(row, "big"),
                within);
    noise_end(&noise, &result, &now, &average);
    golden_near(t, "trace", 10 * noise.trace, golden_field(row, "trace"),
                within);
    if (golden_field(row, "gradient") > 0) {
        golden_near(t, "gradient", 10 * noise.gradient,
                    golden_field(row, "gradient"), 100 * within);
        golden_near(t, "scale", now, golden_field(row, "scale"),
                    100 * within);
    } else {
        CHECK(isnan(now) && isnan(average));
    }
}

TEST(the_noise_scale_is_that_of_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct training t;
        const struct json *root;

        training_begin(&t, &rows[i], -1);
        IS_OK(json_read_file(&root, &t.golden.arena,
                             path_of(&rows[i], "noise.json"), 1 << 20));
        const struct json *expected = json_get(root, "rows");

        for (t.golden.now = 0; t.golden.now < expected->count; t.golden.now++)
            noise_of(&t.golden, &expected->items[t.golden.now],
                     10 * rows[i].within);
        CHECK(t.golden.now > 3);
        golden_training_end(&t.golden);
    }
}

TEST_MAIN(twenty_steps_agree_with_the_oracle,
          the_noise_scale_is_that_of_the_oracle,
          steps_in_sixteen_bits_are_no_worse_than_those_of_pytorch)
