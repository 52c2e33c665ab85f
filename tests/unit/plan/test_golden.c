/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c - logits, loss and every gradient of five tiny models, against
 * an oracle in float64 (tests/golden/README.md). */
#include "tests/golden/golden.h"

enum { SEQUENCES = 3, LENGTH = 37, TOKENS = SEQUENCES * LENGTH };

static const struct golden_case {
    const char *model;
    enum dtype dtype;
    int64_t micro_batch;
    enum backward_mode backward;
    const char *recompute;
} rows[] = {
    {"llama_untied", DTYPE_F64, 3, BACKWARD_FUSED, "none"},
    {"llama_untied", DTYPE_F64, 1, BACKWARD_SPLIT, "block"},
    {"llama_untied", DTYPE_F32, 3, BACKWARD_FUSED, "none"},
    {"llama_tied_bias", DTYPE_F64, 3, BACKWARD_SPLIT, "norm"},
    {"llama_tied_bias", DTYPE_F32, 1, BACKWARD_FUSED, "none"},
    {"llama_nine_heads", DTYPE_F64, 1, BACKWARD_FUSED, "none"},
    {"llama_nine_heads", DTYPE_F32, 3, BACKWARD_FUSED, "block"},
    {"gpt2", DTYPE_F64, 3, BACKWARD_FUSED, "none"},
    {"gpt2", DTYPE_F64, 1, BACKWARD_SPLIT, "activation"},
    {"gpt2", DTYPE_F32, 3, BACKWARD_FUSED, "none"},
    {"gpt2_plain_names", DTYPE_F64, 3, BACKWARD_FUSED, "none"},
    {"gpt2_plain_names", DTYPE_F32, 1, BACKWARD_FUSED, "block"},
};

static double within_of(const struct golden_case *row)
{
    return row->dtype == DTYPE_F64 ? 1e-10 : 1e-5;
}

/* A path in the golden directory of the case. */
static const char *path_of(const struct golden_case *row, const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, "%s/models/%s/%s", GOLDEN, row->model, name);
    return path;
}

static void stage_begin(struct stage *stage, struct model *model,
                        const struct golden_case *row)
{
    const struct grid asked = {0, 0, 0};

    IS_OK(model_from_config(model, path_of(row, "config.json")));
    const struct grid_facts facts = {
        .batch = SEQUENCES, .heads = model->heads,
        .kv_heads = model->kv_heads, .head_width = model->head_width,
        .feed_forward = model->feed_forward};
    struct stage_request request = {
        .model = model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .batch = SEQUENCES, .micro_batch = row->micro_batch,
        .length = LENGTH, .context = model->context, .threads = 2,
        .backward = row->backward, .recompute = &row->recompute,
        .recompute_count = 1};

    IS_OK(grid_resolve(&request.grid, &asked, &facts));
    IS_OK(stage_plan(stage, &request));
    IS_OK(stage_open(stage));
    golden_each(stage, path_of(row, "model.safetensors"), row->dtype,
                golden_load, NULL);
}

static void tokens_read(const struct golden_case *row, int32_t tokens[TOKENS])
{
    const struct json *root;
    struct arena arena;

    arena_init(&arena, "tokens", 0);
    IS_OK(json_read_file(&root, &arena, path_of(row, "tokens.json"), 1 << 20));
    EQUAL_INT(root->count, SEQUENCES);
    for (int s = 0; s < SEQUENCES; s++) {
        EQUAL_INT(root->items[s].count, LENGTH);
        for (int t = 0; t < LENGTH; t++)
            tokens[s * LENGTH + t] =
                (int32_t)root->items[s].items[t].integer;
    }
    arena_free(&arena);
}

/* Where a chunk of logits is copied to. */
struct logits_copy {
    double *all;          /* [tokens of the batch, vocab] */
    int64_t first, vocab; /* first: token of the micro-batch in the batch */
};

static status logits_take(void *argument, int64_t first_token,
                          const struct tensor *logits)
{
    const struct logits_copy *copy = argument;
    const int64_t count = logits->shape[0] * logits->shape[1];
    double *out = copy->all + (copy->first + first_token) * copy->vocab;

    for (int64_t i = 0; i < count; i++) out[i] = tensor_get(logits, i);
    return OK;
}

/* Every micro-batch forwards and backwards; returns the mean loss. */
static double step_run(struct stage *stage, const int32_t *tokens,
                       struct logits_copy *copy)
{
    const int64_t count = stage->program.tokens;
    const struct stage_batch memory = stage_batch(stage, 0);
    struct run *run = &stage->run;
    double loss = 0;

    run->read_logits = logits_take;
    run->read_argument = copy;
    gradients_reset(&stage->gradients);
    for (int64_t i = 0; i < TOKENS / count; i++) {
        const int32_t *from = tokens + i * count;

        for (int64_t t = 0; t < count; t++) {
            memory.inputs[t] = from[t];
            memory.targets[t] = t % LENGTH == LENGTH - 1 ? -1 : from[t + 1];
        }
        run->batch = (struct batch){.index = i, .inputs = memory.inputs,
                                    .targets = memory.targets,
                                    .tokens = count};
        copy->first = i * count;
        IS_OK(run_forward(run));
        IS_OK(run_backward_input(run));
        IS_OK(run_backward_weight(run));
        for (int64_t t = 0; t < count; t++) loss += run->losses[t];
    }
    IS_OK(gradients_finish(&stage->gradients));
    return loss / (SEQUENCES * (LENGTH - 1));
}

static void loss_check(const struct golden_case *row, double loss)
{
    const struct json *root;
    struct arena arena;
    double expected;

    arena_init(&arena, "expected", 0);
    IS_OK(json_read_file(&root, &arena, path_of(row, "expected.json"),
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
    IS_OK(safetensors_open(&file, path_of(row, "logits.safetensors"), true));
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
    golden_each(stage, path_of(row, "gradients.safetensors"), DTYPE_F64,
                golden_compare, &limit);
}

TEST(logits_and_gradients_agree_with_the_oracle)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct stage stage = {0};
        struct model model;
        struct logits_copy copy = {0};
        int32_t tokens[TOKENS];
        void *memory = NULL;

        stage_begin(&stage, &model, &rows[i]);
        copy.vocab = model.vocab;
        IS_OK(memory_take((size_t)(TOKENS * model.vocab), sizeof(double),
                          &memory));
        copy.all = memory;
        tokens_read(&rows[i], tokens);
        loss_check(&rows[i], step_run(&stage, tokens, &copy));
        logits_check(&rows[i], copy.all, TOKENS * model.vocab);
        gradients_check(&stage, &rows[i]);
        memory_free(memory);
        stage_free(&stage);
    }
}

TEST_MAIN(logits_and_gradients_agree_with_the_oracle)
