/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c - logits, loss and every gradient of five tiny models, against
 * an oracle in float64 (tests/golden/README.md). */
#include "tests/golden/golden_step.h"

static const struct golden_case rows[] = {
    {"models/llama_untied", DTYPE_F64, 3, BACKWARD_FUSED, "none", 0},
    {"models/llama_untied", DTYPE_F64, 1, BACKWARD_SPLIT, "block", 0},
    {"models/llama_untied", DTYPE_F32, 3, BACKWARD_FUSED, "none", 0},
    {"models/llama_tied_bias", DTYPE_F64, 3, BACKWARD_SPLIT, "norm", 0},
    {"models/llama_tied_bias", DTYPE_F32, 1, BACKWARD_FUSED, "none", 0},
    {"models/llama_nine_heads", DTYPE_F64, 1, BACKWARD_FUSED, "none", 0},
    {"models/llama_nine_heads", DTYPE_F32, 3, BACKWARD_FUSED, "block", 0},
    {"models/gpt2", DTYPE_F64, 3, BACKWARD_FUSED, "none", 0},
    {"models/gpt2", DTYPE_F64, 1, BACKWARD_SPLIT, "activation", 0},
    {"models/gpt2", DTYPE_F32, 3, BACKWARD_FUSED, "none", 0},
    {"models/gpt2_plain_names", DTYPE_F64, 3, BACKWARD_FUSED, "none", 0},
    {"models/gpt2_plain_names", DTYPE_F32, 1, BACKWARD_FUSED, "block", 0},
};

static double within_of(const struct golden_case *row)
{
    return row->dtype == DTYPE_F64 ? 1e-10 : 1e-5;
}

static void loss_check(const struct golden_case *row, double loss)
{
    const struct json *root;
    struct arena arena;
    double expected;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, golden_path(row, "expected.json"),
                         1 << 20));
    IS_OK(json_get_real(root, "expected.json", "loss", &expected));
    arena_free(&arena);
    const double gap = loss > expected ? loss - expected : expected - loss;
    if (!(gap <= within_of(row) * expected))
        print_error("%s: loss %.15g, expected %.15g\n", row->model, loss,
                    expected);
    CHECK(gap <= within_of(row) * expected);
}

static void logits_check(const struct golden_case *row, const double *ours,
                         int64_t count)
{
    struct safetensors file = {0};
    double most = 0, apart = 0, *theirs;
    void *memory = NULL;

    IS_OK(memory_take((size_t)count, sizeof(double), &memory));
    theirs = memory;
    IS_OK(safetensors_open(&file, golden_path(row, "logits.safetensors"),
                           true));
    EQUAL_INT(file.entries[0].elements, count);
    IS_OK(safetensors_read(&file, file.entries, 0, count, DTYPE_F64, theirs));
    for (int64_t i = 0; i < count; i++) {
        const double gap = ours[i] - theirs[i];

        if (theirs[i] > most || -theirs[i] > most)
            most = theirs[i] < 0 ? -theirs[i] : theirs[i];
        if (!(gap <= apart && -gap <= apart)) apart = gap < 0 ? -gap : gap;
    }
    safetensors_close(&file);
    memory_free(memory);
    if (!(apart <= within_of(row) * most))
        print_error("%s: logits are off by %g of the largest\n", row->model,
                    apart / most);
    CHECK(apart <= within_of(row) * most);
}

/* Gradients were summed unscaled: divide by the number of targets. */
static void gradients_check(struct stage *stage, const struct golden_case *row)
{
    struct golden_limit limit = {
        .flat = stage->memory[MEMORY_GRADIENTS].data,
        .within = within_of(row)};
    const struct tensor flat = tensor_1d(limit.flat, row->dtype,
                                         stage->program.params.elements);

    for (int64_t i = 0; i < stage->program.params.elements; i++)
        tensor_set(&flat, i,
                   tensor_get(&flat, i) / (SEQUENCES * (LENGTH - 1)));
    golden_each(stage, golden_path(row, "gradients.safetensors"),
                golden_compare, &limit);
}

TEST(logits_and_gradients_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct stage stage = {0};
        struct model model;
        struct golden_copy copy = {0};
        int32_t tokens[TOKENS];
        void *memory = NULL;

        golden_begin(&stage, &model, &rows[i]);
        copy.vocab = model.vocab;
        IS_OK(memory_take((size_t)(TOKENS * model.vocab), sizeof(double),
                          &memory));
        copy.all = memory;
        golden_tokens(&rows[i], tokens);
        loss_check(&rows[i], golden_run(&stage, tokens, &copy));
        logits_check(&rows[i], copy.all, TOKENS * model.vocab);
        gradients_check(&stage, &rows[i]);
        memory_free(memory);
        stage_free(&stage);
    }
}

TEST_MAIN(logits_and_gradients_agree_with_the_oracle)
