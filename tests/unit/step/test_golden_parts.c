/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_parts.c - 20 steps of AdamW with parameter groups, a frozen
 * matrix and a moving average, and with low-rank adapters, against an oracle in
 * float64 (tests/golden/make_parts.py). Losses after the first step are
 * functions of all that is trained, so weights are not stored. */
#include "models/lora.h"
#include "tests/golden/golden_training.h"

enum { ROWS_MAX = 8 };

static const struct parts_case {
    const char *name;
    enum dtype dtype;
    int64_t micro_batch;
    double within; /* of losses; norms: 100 times */
} cases[] = {
    {"groups", DTYPE_F64, 3, 1e-10},    {"groups", DTYPE_F64, 6, 1e-10},
    {"groups", DTYPE_F32, 2, 1e-5},     {"lora", DTYPE_F64, 3, 1e-10},
    {"lora", DTYPE_F64, 1, 1e-10},      {"lora", DTYPE_F32, 6, 1e-5},
    {"lora_gpt2", DTYPE_F64, 2, 1e-10}, {"lora_gpt2", DTYPE_F32, 3, 1e-5},
    {"lora_router", DTYPE_F64, 2, 1e-10},
    {"lora_router", DTYPE_F32, 3, 1e-5},
    {"lora_mixtral", DTYPE_F64, 2, 1e-10},
    {"lora_mixtral", DTYPE_F32, 3, 1e-5},
    {"lora_deepseek", DTYPE_F64, 3, 1e-10},
    {"lora_deepseek", DTYPE_F64, 6, 1e-10}};

struct training {
    struct golden_training golden;
    const struct parts_case *row;
    const char *rows[ROWS_MAX];
};

static const char *path_of(const struct training *t, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/parts/%s/%s", GOLDEN, t->row->name, name);
    return path;
}

/* An array of texts; returns how many. */
static int list_of(const struct training *t, const char *key,
                   const char *out[ROWS_MAX])
{
    const struct json *list = json_get(t->golden.root, key);

    CHECK(list != NULL && list->count <= ROWS_MAX);
    for (int i = 0; i < list->count; i++) out[i] = list->items[i].string;
    return list->count;
}

/* Tensors of one file: adapters, or all others. */
static void each_of(const struct training *t, const char *path, bool adapters,
                    golden_visitor *visit, void *argument)
{
    struct stage *stage = &t->golden.pipeline.stages[0];
    const struct param_table *table = &stage->program.params;
    struct safetensors file = {0};
    int used = 0;

    IS_OK(safetensors_open(&file, path, true));
    for (int i = 0; i < table->count; i++) {
        struct param_outside outside;

        if (table->items[i].spec.adapter != adapters) continue;
        for (int j = 0; param_outside(&table->items[i],
                                      t->golden.model.kind->layer_prefix, j,
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
    struct golden_training *g = &t->golden;
    struct pipeline_request request =
        golden_training_request(g, t->row->dtype, t->row->micro_batch);
    const bool lora = g->model.lora.rank > 0;

    request.stage.training.choice = (struct optimizer_choice){
        .average = golden_number(g, "ema"),
        .groups = {.rows = t->rows, .count = list_of(t, "groups", t->rows),
                   .prefix = g->model.kind->layer_prefix, .adapters = lora}};
    golden_training_open(g, &request);
    each_of(t, golden_model_file(g, "model.safetensors"), false, golden_load,
            NULL);
    if (lora)
        each_of(t, path_of(t, "adapters.safetensors"), true, golden_load,
                NULL);
    IS_OK(train_step_build(&g->step, &g->pipeline, NULL));
    IS_OK(train_step_start(&g->step));
    IS_OK(train_step_refresh(&g->step));
    golden_training_settings(g);
}

static void training_begin(struct training *t, const struct parts_case *row)
{
    struct golden_training *g = &t->golden;
    const char *targets[ROWS_MAX];

    *t = (struct training){.row = row};
    golden_training_read(g, row->name, path_of(t, "parts.json"));
    golden_training_tokens(g, golden_text(g, "tokens"), "tokens.safetensors",
                           -1);
    IS_OK(model_from_config(&g->model, golden_model_file(g, "config.json")));
    if (json_get(g->root, "rank") != NULL)
        IS_OK(lora_choose(
            &g->model, &(struct lora_wish){
                           .rank = (int)golden_number(g, "rank"),
                           .alpha = golden_number(g, "alpha"),
                           .targets = targets,
                           .count = list_of(t, "targets", targets)}));
    for (int64_t i = 0; i < STEPS * g->batch * (g->length + 1); i++)
        g->tokens[i] %= (int32_t)g->model.vocab;
    stage_begin(t);
}

static void steps_run(struct training *t)
{
    struct golden_training *g = &t->golden;
    const struct sample_source source = golden_source(g);
    const struct json *rows = json_get(g->root, "rows");
    struct golden_limit limit = {
        .flat = g->pipeline.stages[0].memory[MEMORY_GRADIENTS].data,
        .gradients = true,
        .within = t->row->within * 10};

    EQUAL_INT(rows->count, STEPS);
    for (g->now = 0; g->now < STEPS; g->now++) {
        const struct json *row = &rows->items[g->now];
        struct step_result found;

        IS_OK(train_step_run(&g->step, &source, rate_at(&g->rate, g->now),
                             g->now + 1, &found));
        golden_near(g, "loss", found.loss, golden_field(row, "loss"),
                    t->row->within);
        golden_near(g, "norm", found.norm, golden_field(row, "grad_norm"),
                    100 * t->row->within);
        if (g->now == 0 && g->model.lora.rank > 0)
            each_of(t, path_of(t, "gradients.safetensors"), true,
                    golden_compare, &limit);
    }
}

/* On the last batch; what was swapped comes back. */
static void average_check(struct training *t)
{
    struct golden_training *g = &t->golden;
    const struct sample_source source = golden_source(g);
    double room[64], mean[3];

    g->now = STEPS - 1;
    for (int i = 0; i < 3; i++) {
        struct evaluation evaluation = {.sums = room};

        IS_OK(train_evaluate(&g->step, &source, g->batch, &evaluation));
        mean[i] = evaluation.sum / (double)evaluation.targets;
        IS_OK(train_step_swap(&g->step));
    }
    golden_near(g, "loss of the average", mean[1],
                golden_number(g, "ema_loss"), t->row->within);
    CHECK(mean[0] == mean[2] && mean[0] != mean[1]);
}

TEST(parts_are_trained_as_the_oracle_trains_them)
{
    for (int i = 0; i < ROWS(cases); i++) {
        struct training t;

        training_begin(&t, &cases[i]);
        steps_run(&t);
        average_check(&t);
        golden_training_end(&t.golden);
    }
}

TEST_MAIN(parts_are_trained_as_the_oracle_trains_them)
