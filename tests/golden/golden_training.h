/* SPDX-License-Identifier: Apache-2.0 */
/* golden_training.h - a run of STEPS steps over stored tokens, its numbers from
 * the JSON file of an oracle. For tests only. */
#ifndef LOCKSTEP_TESTS_GOLDEN_TRAINING_H
#define LOCKSTEP_TESTS_GOLDEN_TRAINING_H

#include "optimizer/rate.h"
#include "tests/golden/golden.h"
#include "step/step.h"

enum { STEPS = 20 };

struct golden_training {
    char name[100];          /* of the case, in messages */
    struct arena arena;
    const struct json *root; /* the oracle's file */
    struct model model;
    struct pipeline pipeline;
    struct train_step step;
    struct rate rate;
    int64_t batch, length;
    int32_t *tokens;         /* [STEPS, batch, length + 1] */
    int64_t now;             /* step that the source reads */
};

static inline double golden_number(const struct golden_training *t,
                                   const char *key)
{
    double value = 0;

    IS_OK(json_get_real(t->root, t->name, key, &value));
    return value;
}

static inline double golden_number_or(const struct golden_training *t,
                                      const char *key, double fallback)
{
    double value = 0;

    IS_OK(json_get_real_or(t->root, t->name, key, fallback, &value));
    return value;
}

static inline const char *golden_text(const struct golden_training *t,
                                      const char *key)
{
    const char *text = NULL;

    IS_OK(json_get_string(t->root, t->name, key, &text));
    return text;
}

/* A file of the model that the oracle names. */
static inline const char *golden_model_file(const struct golden_training *t,
                                            const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/models/%s/%s", GOLDEN,
             golden_text(t, "model"), name);
    return path;
}

/* Begins with the oracle's file `path`. */
static inline void golden_training_read(struct golden_training *t,
                                        const char *name, const char *path)
{
    *t = (struct golden_training){0};
    snprintf(t->name, sizeof t->name, "%s", name);
    arena_init(&t->arena, "training", 0);
    IS_OK(json_read_file(&t->root, &t->arena, path, 1 << 20));
    t->batch = (int64_t)golden_number(t, "batch");
    t->length = (int64_t)golden_number(t, "sequence");
    EQUAL_INT(golden_number(t, "steps"), STEPS);
}

/* Tokens of tests/golden/training/<run>/<file>. draw: which of the file;
 * -1: it has one. */
static inline void golden_training_tokens(struct golden_training *t,
                                          const char *run, const char *name,
                                          int64_t draw)
{
    const int64_t count = STEPS * t->batch * (t->length + 1);
    struct safetensors file = {0};
    char path[300];
    void *memory = NULL;

    snprintf(path, sizeof path, "%s/training/%s/%s", GOLDEN, run, name);
    IS_OK(arena_take_array(&t->arena, (size_t)count, sizeof *t->tokens,
                           &memory));
    t->tokens = memory;
    IS_OK(safetensors_open(&file, path, true));
    EQUAL_INT(file.entries[0].elements % count, 0);
    if (draw < 0) EQUAL_INT(file.entries[0].elements, count);
    IS_OK(safetensors_read(&file, file.entries,
                           (draw < 0 ? 0 : draw) * count, count, DTYPE_I32,
                           t->tokens));
    safetensors_close(&file);
}

/* The request for the model that was read. golden_training_open sets the
 * grid. */
static inline struct pipeline_request
golden_training_request(const struct golden_training *t, enum dtype dtype,
                        int64_t micro_batch)
{
    static const char *const recompute = "none";

    return (struct pipeline_request){.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = dtype,
        .size.batch = t->batch, .size.micro_batch = micro_batch,
        .size.length = t->length,
        .size.context = t->model.context, .machine.threads = 2,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .recomputation.policy = &recompute, .recomputation.count = 1}};
}

static inline void golden_training_open(struct golden_training *t,
                                        struct pipeline_request *request)
{
    const struct grid asked = {0, 0, 0, 0};
    const struct grid_facts facts = {
        .batch = t->batch, .heads = t->model.heads,
        .kv_heads = t->model.kv_heads, .head_width = t->model.head_width,
        .feed_forward = t->model.feed_forward};

    IS_OK(grid_resolve(&request->stage.layout.grid, &asked, &facts));
    IS_OK(pipeline_plan(&t->pipeline, request));
    IS_OK(pipeline_open(&t->pipeline));
}

/* Numbers of the update that every oracle names. */
static inline void golden_training_settings(struct golden_training *t)
{
    struct update *u = &t->step.update;

    u->beta1 = golden_number(t, "beta1");
    u->beta2 = golden_number(t, "beta2");
    u->epsilon = golden_number(t, "epsilon");
    u->weight_decay = golden_number(t, "weight_decay");
    u->clip = golden_number(t, "clip");
    t->rate = (struct rate){.curve = RATE_COSINE,
                            .peak = golden_number(t, "lr"),
                            .least = golden_number(t, "min_lr"),
                            .steps = STEPS,
                            .warmup = (int64_t)golden_number(t, "warmup")};
}

static inline void golden_training_end(struct golden_training *t)
{
    train_step_free(&t->step);
    pipeline_free(&t->pipeline);
    arena_free(&t->arena);
}

/* A struct sample_source over the stored tokens. */
static inline status golden_fill(void *argument, int64_t index,
                                 int32_t *inputs, int32_t *targets,
                                 int32_t *positions, int32_t *documents)
{
    const struct golden_training *t = argument;
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

static inline struct sample_source golden_source(struct golden_training *t)
{
    return (struct sample_source){.fill = golden_fill, .argument = t};
}

static inline void golden_near(const struct golden_training *t,
                               const char *what, double found,
                               double expected, double within)
{
    const double gap = found > expected ? found - expected : expected - found;

    if (gap <= within * expected) return;
    print_error("%s: step %lld: %s is %.15g, expected %.15g\n", t->name,
                (long long)t->now, what, found, expected);
    test_failed(__FILE__, __LINE__, "within the tolerance");
}

/* A number of a row of the oracle's file. */
static inline double golden_field(const struct json *row, const char *key)
{
    double value = 0;

    IS_OK(json_get_real(row, "row", key, &value));
    return value;
}

/* The steps begin; settings are read after it. */
static inline void golden_steps_begin(struct golden_training *t)
{
    IS_OK(train_step_build(&t->step, &t->pipeline, NULL));
    IS_OK(train_step_start(&t->step));
    IS_OK(train_step_refresh(&t->step));
}

/* All STEPS: rates, losses within `within` of the oracle's, norms 100 times. */
static inline void golden_steps_check(struct golden_training *t, double within)
{
    const struct json *rows = json_get(t->root, "rows");
    const struct sample_source source = golden_source(t);

    CHECK(rows != NULL);
    EQUAL_INT(rows->count, STEPS);
    for (t->now = 0; t->now < STEPS; t->now++) {
        const struct json *row = &rows->items[t->now];
        const double rate = rate_at(&t->rate, t->now);
        struct step_result result;

        golden_near(t, "lr", rate, golden_field(row, "lr"), 1e-12);
        IS_OK(train_step_run(&t->step, &source, rate, t->now + 1, &result));
        golden_near(t, "loss", result.loss, golden_field(row, "loss"),
                    within);
        golden_near(t, "norm", result.norm, golden_field(row, "grad_norm"),
                    100 * within);
    }
}

#endif
