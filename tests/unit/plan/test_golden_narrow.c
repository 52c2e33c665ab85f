/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_narrow.c - logits and every gradient of tiny models in 16 bits
 * are no further from float64 than 1.2 times PyTorch's own (the fixtures:
 * tests/golden/make_narrow.py). The float64 is ours, checked against the
 * oracle's on the first batch. */
#include <math.h>

#include "tests/golden/golden_step.h"

enum { BATCHES = 8 };

static const char *const models[] = {"narrow/llama", "narrow/llama_wide",
                                     "narrow/gpt2"};

/* Types, products and ways to compute the same. */
static const struct golden_case rows[] = {
    {NULL, DTYPE_BF16, 3, BACKWARD_FUSED, "none", PRODUCT_PAIRS},
    {NULL, DTYPE_BF16, 1, BACKWARD_SPLIT, "block", PRODUCT_TILES},
    {NULL, DTYPE_F16, 3, BACKWARD_FUSED, "none", PRODUCT_PAIRS},
};

static const double times_pytorch = 1.2;
static const double within_stored = 1e-6; /* stored as float32 */

/* Logits and gradients of all batches, in float64. */
struct results {
    int64_t logits_count, elements;
    double *logits, *gradients; /* owned; [BATCHES][...] */
};

static void results_free(struct results *r)
{
    memory_free(r->logits);
    memory_free(r->gradients);
}

static double *room(int64_t count)
{
    void *memory = NULL;

    IS_OK(memory_take((size_t)count, sizeof(double), &memory));
    return memory;
}

/* |found - expected|^2 / |expected|^2, Euclidean. */
static double apart(const double *found, const double *expected,
                    int64_t count)
{
    double gap = 0, whole = 0;

    for (int64_t i = 0; i < count; i++) {
        gap += (found[i] - expected[i]) * (found[i] - expected[i]);
        whole += expected[i] * expected[i];
    }
    return gap / whole;
}

/* The mean gradient of a stage as float64. Gradients were summed unscaled. */
static void gradients_take(const struct stage *stage, double *out)
{
    const int64_t count = stage->program.params.elements;
    const struct tensor flat =
        tensor_1d(stage->memory[MEMORY_GRADIENTS].data,
                  dtype_real(stage->request.dtype), count);

    for (int64_t i = 0; i < count; i++)
        out[i] = tensor_get(&flat, i) / (SEQUENCES * (LENGTH - 1));
}

static void tokens_take(const struct golden_case *row, int32_t *tokens)
{
    struct safetensors file = {0};

    IS_OK(safetensors_open(&file, golden_path(row, "tokens.safetensors"),
                           true));
    EQUAL_INT(file.entries[0].elements, BATCHES * TOKENS);
    IS_OK(safetensors_read(&file, file.entries, 0, BATCHES * TOKENS, DTYPE_I32,
                           tokens));
    safetensors_close(&file);
}

/* Opens a stage of the case and runs every batch. */
static void batches_run(struct stage *stage, struct model *model,
                        const struct golden_case *row, struct results *out)
{
    int32_t tokens[BATCHES * TOKENS];

    golden_begin(stage, model, row);
    tokens_take(row, tokens);
    out->logits_count = TOKENS * model->vocab;
    out->elements = stage->program.params.elements;
    out->logits = room(BATCHES * out->logits_count);
    out->gradients = room(BATCHES * out->elements);
    for (int b = 0; b < BATCHES; b++) {
        struct golden_copy copy = {.all = out->logits + b * out->logits_count,
                                   .vocab = model->vocab};

        golden_run(stage, tokens + b * TOKENS, &copy);
        gradients_take(stage, out->gradients + b * out->elements);
    }
}

/* ---- the truth ---- */

static void near_stored(const char *name, double square)
{
    if (sqrt(square) <= within_stored) return;
    print_error("%s in float64 is off by %g\n", name, sqrt(square));
    test_failed(__FILE__, __LINE__, "as stored");
}

static void stored_gradient(struct stage *stage, const struct param *param,
                            const struct param_outside *outside, char *dense,
                            void *argument)
{
    const struct results *truth = argument;
    const int64_t count = outside->rows * outside->cols;
    double *ours = room(count);

    (void)stage;
    golden_move(outside, param, (char *)truth->gradients, (char *)ours,
                DTYPE_F64, false);
    near_stored(outside->name,
                apart(ours, (const double *)(const void *)dense, count));
    memory_free(ours);
}

static void truth_check(struct stage *stage, const struct golden_case *row,
                        struct results *truth)
{
    struct safetensors file = {0};
    double *stored = room(truth->logits_count);

    IS_OK(safetensors_open(&file, golden_path(row, "logits.safetensors"),
                           true));
    EQUAL_INT(file.entries[0].elements, truth->logits_count);
    IS_OK(safetensors_read(&file, file.entries, 0, truth->logits_count,
                           DTYPE_F64, stored));
    near_stored("logits",
                apart(truth->logits, stored, truth->logits_count));
    safetensors_close(&file);
    memory_free(stored);
    golden_each(stage, golden_path(row, "gradients.safetensors"),
                stored_gradient, truth);
}

/* ---- 16 bits ---- */

struct comparison {
    const struct golden_case *row;
    double worst; /* found: ours over theirs */
    const char *worst_name;
};

/* `square`: the sum over batches of squared relative errors. */
static void compare(struct comparison *c, const struct json *theirs,
                    const char *name, double square)
{
    const double ours = sqrt(square / BATCHES);
    double allowed = 0;

    IS_OK(json_get_real(theirs, "errors.json", name, &allowed));
    if (ours / allowed > c->worst) {
        c->worst = ours / allowed;
        c->worst_name = name;
    }
    if (ours <= times_pytorch * allowed) return;
    print_error("%s, %s, product %d: %s is off by %g, PyTorch by %g\n",
                c->row->model, dtype_name(c->row->dtype),
                (int)c->row->product, name, ours, allowed);
    test_failed(__FILE__, __LINE__, "no further than PyTorch");
}

static double gradient_square(const struct param *param,
                              const struct param_outside *outside,
                              const struct results *ours,
                              const struct results *truth)
{
    const int64_t count = outside->rows * outside->cols;
    double *found = room(2 * count), *expected = found + count;
    double square = 0;

    for (int b = 0; b < BATCHES; b++) {
        const int64_t at = b * truth->elements;

        golden_move(outside, param, (char *)(ours->gradients + at),
                    (char *)found, DTYPE_F64, false);
        golden_move(outside, param, (char *)(truth->gradients + at),
                    (char *)expected, DTYPE_F64, false);
        square += apart(found, expected, count);
    }
    memory_free(found);
    return square;
}

static void all_compare(struct comparison *c, const struct stage *stage,
                        const struct results *ours,
                        const struct results *truth, const struct json *theirs)
{
    const struct param_table *table = &stage->program.params;
    const char *prefix = stage->request.model->kind->layer_prefix;
    struct param_outside outside;
    double square = 0;

    for (int b = 0; b < BATCHES; b++)
        square += apart(ours->logits + b * ours->logits_count,
                        truth->logits + b * ours->logits_count,
                        ours->logits_count);
    compare(c, theirs, "logits", square);
    for (int i = 0; i < table->count; i++)
        for (int piece = 0;
             param_outside(&table->items[i], prefix, piece, &outside); piece++)
            compare(c, json_get(theirs, "gradients"), outside.name,
                    gradient_square(&table->items[i], &outside, ours, truth));
}

static void case_check(const struct golden_case *row,
                       const struct results *truth)
{
    struct comparison comparison = {.row = row};
    struct stage stage = {0};
    struct results ours = {0};
    struct model model;
    const struct json *root;
    struct arena arena;

    batches_run(&stage, &model, row, &ours);
    EQUAL_INT(ours.elements, truth->elements);
    arena_init(&arena, "errors", 0);
    IS_OK(json_read_file(&root, &arena, golden_path(row, "errors.json"),
                         1 << 20));
    root = json_get(root, dtype_name(row->dtype));
    CHECK(root != NULL);
    all_compare(&comparison, &stage, &ours, truth, root);
    print_message("%s, %s, product %d: at most %.2f of PyTorch's error\n",
                  row->model, dtype_name(row->dtype), (int)row->product,
                  comparison.worst);
    arena_free(&arena);
    results_free(&ours);
    stage_free(&stage);
}

TEST(sixteen_bits_are_no_worse_than_those_of_pytorch)
{
    for (int m = 0; m < ROWS(models); m++) {
        struct golden_case row = {models[m], DTYPE_F64, SEQUENCES,
                                  BACKWARD_FUSED, "none", PRODUCT_PAIRS};
        struct stage stage = {0};
        struct results truth = {0};
        struct model model;

        batches_run(&stage, &model, &row, &truth);
        truth_check(&stage, &row, &truth);
        stage_free(&stage);
        for (int i = 0; i < ROWS(rows); i++) {
            row = rows[i];
            row.model = models[m];
            case_check(&row, &truth);
        }
        results_free(&truth);
    }
}

TEST_MAIN(sixteen_bits_are_no_worse_than_those_of_pytorch)
