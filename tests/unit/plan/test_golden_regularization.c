/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_regularization.c - z-loss, dropout and the largest scores of
 * heads against an oracle in float64, whose masks come from a generator of its
 * own (tests/golden/README.md). */
#include <math.h>

#include "nn/score_peaks.h"
#include "tests/golden/golden_step.h"

#define NINE "models/llama_nine_heads"
#define PLAIN "models/gpt2_plain_names"
static const struct golden_extra z_loss = {.z_loss = 0.03},
    dropout = {.dropout = 0.3, .seed = 5},
    both = {.z_loss = 0.01, .dropout = 0.1, .attention_dropout = 0.2,
            .seed = (1ull << 40) + 1},
    clip = {.qk_clip = 0.3};

static const struct golden_row {
    const char *name; /* a folder of tests/golden/regularization */
    const struct golden_extra *extra;
    int64_t sequence;
    struct golden_case of;
} rows[] = {
    {"z_loss", &z_loss, 0, {NINE, DTYPE_F64, 3, BACKWARD_FUSED, "none", 0}},
    {"z_loss", &z_loss, 0, {NINE, DTYPE_F64, 1, BACKWARD_SPLIT, "block", 0}},
    {"z_loss", &z_loss, 0, {NINE, DTYPE_F32, 1, BACKWARD_FUSED, "none", 0}},
    {"dropout", &dropout, 1000,
     {NINE, DTYPE_F64, 3, BACKWARD_FUSED, "none", 0}},
    {"dropout", &dropout, 1000,
     {NINE, DTYPE_F64, 1, BACKWARD_SPLIT, "block", 0}},
    {"dropout", &dropout, 1000,
     {NINE, DTYPE_F32, 3, BACKWARD_FUSED, "norm", 0}},
    {"dropout_gpt2", &both, 1ll << 33,
     {PLAIN, DTYPE_F64, 1, BACKWARD_FUSED, "none", 0}},
    {"dropout_gpt2", &both, 1ll << 33,
     {PLAIN, DTYPE_F32, 3, BACKWARD_SPLIT, "block", 0}},
    {"clip_groups", &clip, 0, {NINE, DTYPE_F64, 1, BACKWARD_FUSED, "block", 0}},
    {"clip_heads", &clip, 0,
     {"models/llama_tied_bias", DTYPE_F32, 3, BACKWARD_FUSED, "none", 0}},
};

static const char *path_of(const struct golden_row *row, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/regularization/%s/%s", GOLDEN, row->name,
             name);
    return path;
}

static double within_of(const struct golden_row *row)
{
    return row->of.dtype == DTYPE_F64 ? 1e-10 : 1e-5;
}

static void near(const struct golden_row *row, const char *what, double found,
                 double expected)
{
    if (!(fabs(found - expected) <= within_of(row) * fabs(expected)))
        print_error("%s: %s is %.15g, expected %.15g\n", row->name, what,
                    found, expected);
    CHECK(fabs(found - expected) <= within_of(row) * fabs(expected));
}

static void peaks_check(const struct golden_row *row, const struct stage *stage,
                        const struct json *root)
{
    const struct json *blocks = json_get(root, "peaks");
    const int heads = stage->request.model->heads;
    double table[64];

    CHECK(blocks != NULL && blocks->count * heads <= ROWS(table));
    for (int i = 0; i < ROWS(table); i++) table[i] = -(double)INFINITY;
    score_peaks_collect(&stage->run, heads, table);
    for (int i = 0; i < blocks->count; i++) {
        EQUAL_INT(blocks->items[i].count, heads);
        for (int h = 0; h < heads; h++)
            near(row, "the largest score of a head", table[i * heads + h],
                 blocks->items[i].items[h].real);
    }
}

static void numbers_check(const struct golden_row *row,
                          const struct stage *stage, double loss,
                          const struct golden_copy *copy)
{
    const struct json *root;
    struct arena arena;
    double expected = 0;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, path_of(row, "expected.json"),
                         1 << 20));
    IS_OK(json_get_real(root, "expected.json", "loss", &expected));
    near(row, "loss", loss, expected);
    IS_OK(json_get_real(root, "expected.json", "z_loss", &expected));
    near(row, "z-loss", copy->z_loss, expected);
    if (row->extra->qk_clip > 0) peaks_check(row, stage, root);
    arena_free(&arena);
}

/* Gradients were summed unscaled: divide by the number of targets. */
static void gradients_check(const struct golden_row *row, struct stage *stage)
{
    struct golden_limit limit = {
        .flat = stage->memory[MEMORY_GRADIENTS].data,
        .within = within_of(row)};
    const int64_t count = stage->program.params.elements;
    const struct tensor flat = tensor_1d(limit.flat, row->of.dtype, count);

    for (int64_t i = 0; i < count; i++)
        tensor_set(&flat, i,
                   tensor_get(&flat, i) / (SEQUENCES * (LENGTH - 1)));
    golden_each(stage, path_of(row, "gradients.safetensors"), golden_compare,
                &limit);
}

TEST(losses_and_gradients_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct golden_copy copy = {.sequence = rows[i].sequence};
        struct stage stage = {0};
        struct model model;
        int32_t tokens[TOKENS];
        void *memory = NULL;

        golden_begin_with(&stage, &model, &rows[i].of, rows[i].extra);
        score_peaks_reset(&stage.run);
        copy.vocab = model.vocab;
        IS_OK(memory_take((size_t)(TOKENS * model.vocab), sizeof(double),
                          &memory));
        copy.all = memory;
        golden_tokens(&rows[i].of, tokens);
        const double loss = golden_run(&stage, tokens, &copy);

        numbers_check(&rows[i], &stage, loss, &copy);
        if (rows[i].extra->qk_clip == 0) gradients_check(&rows[i], &stage);
        memory_free(memory);
        stage_free(&stage);
    }
}

/* The loss of validation is that of the model without any of it. */
TEST(outside_training_nothing_is_dropped_or_added)
{
    static const struct golden_extra all = {.z_loss = 0.5, .dropout = 0.5,
                                           .attention_dropout = 0.5};
    const struct golden_row row = {.name = "models/" PLAIN,
                                   .of = {.model = PLAIN, .dtype = DTYPE_F64,
                                          .micro_batch = SEQUENCES,
                                          .backward = BACKWARD_FUSED,
                                          .recompute = "none"}};
    struct stage stage = {0};
    const struct json *root;
    struct model model;
    struct arena arena;
    int32_t tokens[TOKENS];
    double loss = 0, expected = 0;

    golden_begin_with(&stage, &model, &row.of, &all);
    golden_tokens(&row.of, tokens);
    const struct stage_batch memory = stage_batch(&stage, 0);

    for (int t = 0; t < TOKENS; t++) {
        memory.inputs[t] = tokens[t];
        memory.targets[t] = t % LENGTH == LENGTH - 1 ? -1 : tokens[t + 1];
    }
    stage.run.batch = (struct batch){.inputs = memory.inputs,
                                     .targets = memory.targets,
                                     .tokens = TOKENS};
    stage.run.gradients = NULL;
    IS_OK(run_forward(&stage.run));
    for (int t = 0; t < TOKENS; t++) loss += stage.run.losses[t];
    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, golden_path(&row.of, "expected.json"),
                         1 << 20));
    IS_OK(json_get_real(root, "expected.json", "loss", &expected));
    near(&row, "loss", loss / (SEQUENCES * (LENGTH - 1)), expected);
    arena_free(&arena);
    stage_free(&stage);
}

TEST_MAIN(losses_and_gradients_agree_with_the_oracle,
          outside_training_nothing_is_dropped_or_added)
