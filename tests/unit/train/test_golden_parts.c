/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_parts.c - 20 steps of AdamW with parameter groups, a frozen
 * matrix and a moving average, and with low-rank adapters, against an oracle in
 * float64 (tests/golden/make_parts.py). Losses after the first step are
 * functions of all that is trained, so weights are not stored. */
#include "models/lora.h"
#include "optimizer/rate.h"
#include "tests/golden/golden.h"
#include "train/step.h"

enum { STEPS = 20, ROWS_MAX = 8 };

static const struct parts_case {
    const char *name;
    enum dtype dtype;
    int64_t micro_batch;
    double within; /* of losses; norms: 100 times */
} cases[] = {
    {"groups", DTYPE_F64, 3, 1e-10},    {"groups", DTYPE_F64, 6, 1e-10},
    {"groups", DTYPE_F32, 2, 1e-5},     {"lora", DTYPE_F64, 3, 1e-10},
    {"lora", DTYPE_F64, 1, 1e-10},      {"lora", DTYPE_F32, 6, 1e-5},
    {"lora_gpt2", DTYPE_F64, 2, 1e-10}, {"lora_gpt2", DTYPE_F32, 3, 1e-5}};

struct training {
    const struct parts_case *row;
    struct arena arena;
    const struct json *root; /* parts.json */
    struct model model;
    struct pipeline pipeline;
    struct train_step step;
    struct rate rate;
    const char *rows[ROWS_MAX];
    int64_t batch, length, now;
    int32_t *tokens; /* [STEPS, batch, length + 1] */
};

static const char *path_of(const struct training *t, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/parts/%s/%s", GOLDEN, t->row->name, name);
    return path;
}

static double number(const struct training *t, const char *key)
{
    double value = 0;

    IS_OK(json_get_real(t->root, "parts.json", key, &value));
    return value;
}

static const char *text_of(const struct training *t, const char *key)
{
    const char *text = NULL;

    IS_OK(json_get_string(t->root, "parts.json", key, &text));
    return text;
}

static const char *model_file(const struct training *t, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/models/%s/%s", GOLDEN,
             text_of(t, "model"), name);
    return path;
}

/* An array of texts; returns how many. */
static int list_of(const struct training *t, const char *key,
                   const char *out[ROWS_MAX])
{
    const struct json *list = json_get(t->root, key);

    CHECK(list != NULL && list->count <= ROWS_MAX);
    for (int i = 0; i < list->count; i++) out[i] = list->items[i].string;
    return list->count;
}

static void tokens_read(struct training *t)
{
    const int64_t count = STEPS * t->batch * (t->length + 1);
    struct safetensors file = {0};
    char path[300];
    void *memory = NULL;

    snprintf(path, sizeof path, "%s/training/%s/tokens.safetensors", GOLDEN,
             text_of(t, "tokens"));
    IS_OK(arena_take_array(&t->arena, (size_t)count, sizeof *t->tokens,
                           &memory));
    t->tokens = memory;
    IS_OK(safetensors_open(&file, path, true));
    EQUAL_INT(file.entries[0].elements, count);
    IS_OK(safetensors_read(&file, file.entries, 0, count, DTYPE_I32,
                           t->tokens));
    safetensors_close(&file);
}

/* Tensors of one file: adapters, or all others. */
static void each_of(const struct training *t, const char *path, bool adapters,
                    golden_visitor *visit, void *argument)
{
    struct stage *stage = &t->pipeline.stages[0];
    const struct param_table *table = &stage->program.params;
    struct safetensors file = {0};
    int used = 0;

    IS_OK(safetensors_open(&file, path, true));
    for (int i = 0; i < table->count; i++) {
        struct param_outside outside;

        if (table->items[i].spec.adapter != adapters) continue;
        for (int j = 0; param_outside(&table->items[i],
                                      t->model.kind->layer_prefix, j,
                                      &outside); j++) {
            const struct safetensors_entry *entry =
                golden_find(&file, outside.name);
            void *dense = NULL;

            EQUAL_INT(entry->elements, outside.rows * outside.cols);
            IS_OK(memory_take((size_t)entry->elements, sizeof(double),
                              &dense));
            IS_OK(safetensors_read(&file, entry, 0, entry->elements,
                                   DTYPE_F64, dense));
            visit(stage, &table->items[i], &outside, dense, argument);
            memory_free(dense);
            used++;
        }
    }
    if (adapters) EQUAL_INT(used, file.count);
    safetensors_close(&file);
}

static void stage_begin(struct training *t)
{
    static const char *const recompute = "none";
    const struct grid asked = {0, 0, 0};
    const bool lora = t->model.lora.rank > 0;
    const struct grid_facts facts = {
        .batch = t->batch, .heads = t->model.heads,
        .kv_heads = t->model.kv_heads, .head_width = t->model.head_width,
        .feed_forward = t->model.feed_forward};
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = t->row->dtype,
        .batch = t->batch, .micro_batch = t->row->micro_batch,
        .length = t->length, .context = t->model.context, .threads = 2,
        .backward = BACKWARD_FUSED, .optimizer = true,
        .choice = {.average = number(t, "ema"),
                   .groups = {.rows = t->rows,
                              .count = list_of(t, "groups", t->rows),
                              .prefix = t->model.kind->layer_prefix,
                              .adapters = lora}},
        .recompute = &recompute, .recompute_count = 1}};

    IS_OK(grid_resolve(&request.stage.grid, &asked, &facts));
    IS_OK(pipeline_plan(&t->pipeline, &request));
    IS_OK(pipeline_open(&t->pipeline));
    each_of(t, model_file(t, "model.safetensors"), false, golden_load, NULL);
    if (lora)
        each_of(t, path_of(t, "adapters.safetensors"), true, golden_load,
                NULL);
    IS_OK(train_step_build(&t->step, &t->pipeline, NULL));
    IS_OK(train_step_start(&t->step));
    IS_OK(train_step_refresh(&t->step));
    t->step.update.beta1 = number(t, "beta1");
    t->step.update.beta2 = number(t, "beta2");
    t->step.update.epsilon = number(t, "epsilon");
    t->step.update.weight_decay = number(t, "weight_decay");
    t->step.update.clip = number(t, "clip");
}

static void training_begin(struct training *t, const struct parts_case *row)
{
    const char *targets[ROWS_MAX];

    *t = (struct training){.row = row};
    arena_init(&t->arena, "training", 0);
    IS_OK(json_read_file(&t->root, &t->arena, path_of(t, "parts.json"),
                         1 << 20));
    t->batch = (int64_t)number(t, "batch");
    t->length = (int64_t)number(t, "sequence");
    EQUAL_INT(number(t, "steps"), STEPS);
    tokens_read(t);
    IS_OK(model_from_config(&t->model, model_file(t, "config.json")));
    if (json_get(t->root, "rank") != NULL)
        IS_OK(lora_choose(
            &t->model, &(struct lora_wish){
                           .rank = (int)number(t, "rank"),
                           .alpha = number(t, "alpha"), .targets = targets,
                           .count = list_of(t, "targets", targets)}));
    t->rate = (struct rate){.curve = RATE_COSINE, .peak = number(t, "lr"),
                            .least = number(t, "min_lr"), .steps = STEPS,
                            .warmup = (int64_t)number(t, "warmup")};
    stage_begin(t);
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
    print_error("%s: step %lld: %s is %.15g, expected %.15g\n", t->row->name,
                (long long)t->now, what, found, expected);
    test_failed(__FILE__, __LINE__, "within the tolerance");
}

static void steps_run(struct training *t, const struct sample_source *source)
{
    const struct json *rows = json_get(t->root, "rows");
    struct golden_limit limit = {
        .flat = t->pipeline.stages[0].memory[MEMORY_GRADIENTS].data,
        .within = t->row->within * 10};

    EQUAL_INT(rows->count, STEPS);
    for (t->now = 0; t->now < STEPS; t->now++) {
        struct step_result found;
        double loss = 0, norm = 0;

        IS_OK(json_get_real(&rows->items[t->now], "row", "loss", &loss));
        IS_OK(json_get_real(&rows->items[t->now], "row", "grad_norm", &norm));
        IS_OK(train_step_run(&t->step, source, rate_at(&t->rate, t->now),
                             t->now + 1, &found));
        near(t, "loss", found.loss, loss, t->row->within);
        near(t, "norm", found.norm, norm, 100 * t->row->within);
        if (t->now == 0 && t->model.lora.rank > 0)
            each_of(t, path_of(t, "gradients.safetensors"), true,
                    golden_compare, &limit);
    }
}

/* On the last batch; what was swapped comes back. */
static void average_check(struct training *t,
                          const struct sample_source *source)
{
    double room[64], mean[3];

    t->now = STEPS - 1;
    for (int i = 0; i < 3; i++) {
        struct evaluation evaluation = {.sums = room};

        IS_OK(train_evaluate(&t->step, source, t->batch, &evaluation));
        mean[i] = evaluation.sum / (double)evaluation.targets;
        IS_OK(train_step_swap(&t->step));
    }
    near(t, "loss of the average", mean[1], number(t, "ema_loss"),
         t->row->within);
    CHECK(mean[0] == mean[2] && mean[0] != mean[1]);
}

TEST(parts_are_trained_as_the_oracle_trains_them)
{
    for (int i = 0; i < ROWS(cases); i++) {
        struct training t;
        const struct sample_source source = {.fill = fill,
                                             .argument = &t};

        training_begin(&t, &cases[i]);
        steps_run(&t, &source);
        average_check(&t, &source);
        training_end(&t);
    }
}

TEST_MAIN(parts_are_trained_as_the_oracle_trains_them)
