/* SPDX-License-Identifier: Apache-2.0 */
/* test_step_memory.c - a step takes no memory beyond the plan, reads nothing
 * that it did not write, and uses what was planned. */
#include <math.h>
#include "mesh/grid.h"
#include "tests/unit/small_run.h"

enum { LENGTH = 96, BATCH = 4, VOCAB = 75, STEPS = 4 };

static const struct memory_case {
    const struct model_kind *kind;
    enum dtype dtype;
    int64_t micro_batch;
    const char *recompute;
} rows[] = {
    {&model_llama, DTYPE_F32, 4, "none"}, {&model_llama, DTYPE_F64, 1, "none"},
    {&model_llama, DTYPE_F32, 2, "block"}, {&model_llama, DTYPE_F32, 4, "norm"},
    {&model_gpt2, DTYPE_F32, 2, "none"},  {&model_gpt2, DTYPE_F64, 4, "block"},
    {&model_llama, DTYPE_BF16, 2, "none"},
    {&model_gpt2, DTYPE_BF16, 4, "block"}, {&model_llama, DTYPE_F16, 1, "norm"},
};

/* Two documents in each sequence; some targets masked. */
static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int64_t border = 40 + index;

    (void)argument;
    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + index * 13) % VOCAB);
        targets[i] = i + 1 == border
                         ? -1 : (int32_t)((i * 7 + 7 + index * 13) % VOCAB);
        positions[i] = (int32_t)(i < border ? i : i - border);
        documents[i] = i >= border;
    }
    return OK;
}
static const struct sample_source source = {.fill = fill, .argument = NULL};

/* Every byte that a step may write before it reads it. Weights, moments and
 * tables are made before the first step. */
static const enum memory_owner loose[] = {
    MEMORY_GRADIENTS, MEMORY_PARTIALS, MEMORY_FRAME, MEMORY_PASS,
    MEMORY_LAYER_SCRATCH, MEMORY_KERNEL_SCRATCH, MEMORY_BATCH};
enum { POISON = 0xff }; /* a NaN in every float, an impossible index */

static void poison(struct stage *stage)
{
    for (int i = 0; i < ROWS(loose); i++) {
        const struct memory_row *row = &stage->memory[loose[i]];

        if (row->bytes > 0) memset(row->data, POISON, row->bytes);
    }
}

static void begin(struct training *t, const struct memory_case *row,
                  bool poisoned)
{
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = row->dtype,
        .layout.grid = {4, 2, 1, 1}, .size.batch = BATCH,
        .size.micro_batch = row->micro_batch,
        .size.length = LENGTH, .backward = BACKWARD_FUSED,
        .training.optimizer = true,
        .machine.threads = 2, .recomputation.policy = &row->recompute,
        .recomputation.count = 1}};

    if (row->kind == &model_gpt2) {
        request.stage.regular.dropout = 0.1;
        request.stage.regular.z_loss = 0.01;
        request.stage.qk_clip = 0.01;
    }

    t->model = (struct model){
        .kind = row->kind, .vocab = VOCAB, .layers = 3, .heads = 4,
        .kv_heads = row->kind == &model_llama ? 2 : 4, .head_width = 6,
        .width = 24, .feed_forward = 40, .context = LENGTH, .tied = true,
        .rope.base = 10000, .norm_epsilon = 1e-5, .init_std = 0.02,
        .biases.attention = row->kind == &model_gpt2,
        .biases.mlp = row->kind == &model_gpt2,
        .activation = row->kind == &model_gpt2 ? ACTIVATION_GELU_TANH
                                               : ACTIVATION_SILU};
    training_open(t, &request, poisoned ? poison : NULL);
    IS_OK(train_step_refresh(&t->step));
    t->step.update.clip = 1;
}

static void run(struct training *t, int64_t step, double *loss)
{
    struct step_result result = {0};

    IS_OK(train_step_run(&t->step, &source, 1e-3, step, &result));
    CHECK(isfinite(result.loss) && isfinite(result.norm));
    *loss = result.loss;
}

TEST(a_step_allocates_nothing)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct training t = {0};
        double loss, sums[3];
        struct evaluation evaluation = {.sums = sums};

        begin(&t, &rows[i], false);
        const int64_t before = arena_allocations();
        const size_t out = arena_bytes_out();

        for (int step = 1; step <= STEPS; step++) run(&t, step, &loss);
        IS_OK(train_evaluate(&t.step, &source, 3, &evaluation));
        EQUAL_INT(arena_allocations(), before);
        EQUAL_INT(arena_bytes_out(), out);
        training_end(&t);
    }
}

TEST(the_plan_is_what_is_taken_to_the_byte)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct training t = {0};
        size_t sum = 0;
        double loss;

        begin(&t, &rows[i], false);
        for (int j = 0; j < MEMORY_OWNERS; j++)
            sum += t.pipeline.stages[0].memory[j].bytes;
        run(&t, 1, &loss);
        EQUAL_INT(t.pipeline.stages[0].bytes, sum);
        EQUAL_INT(t.pipeline.stages[0].arena.planned, sum);
        EQUAL_INT(t.pipeline.stages[0].arena.used, sum);
        EQUAL_INT(t.pipeline.stages[0].arena.peak, sum);
        training_end(&t);
    }
}

/* A loss that depended on bytes never written would be NaN or another. */
TEST(poisoned_memory_changes_no_bit)
{
    for (int i = 0; i < ROWS(rows); i++) {
        struct training clean = {0}, poisoned = {0};
        double expected, found;

        begin(&clean, &rows[i], false);
        begin(&poisoned, &rows[i], true);
        for (int step = 1; step <= STEPS; step++) {
            run(&clean, step, &expected);
            run(&poisoned, step, &found);
            EQUAL_BYTES(&expected, &found, sizeof found);
            poison(&poisoned.pipeline.stages[0]);
        }
        EQUAL_BYTES(clean.pipeline.stages[0].memory[MEMORY_WEIGHTS].data,
                    poisoned.pipeline.stages[0].memory[MEMORY_WEIGHTS].data,
                    clean.pipeline.stages[0].memory[MEMORY_WEIGHTS].bytes);
        training_end(&clean);
        training_end(&poisoned);
    }
}

/* Share of lines of ARENA_ALIGN bytes that still are all poison. */
static double untouched(const struct memory_row *row)
{
    static unsigned char line[ARENA_ALIGN];
    const size_t lines = row->bytes / ARENA_ALIGN;
    size_t same = 0;

    memset(line, POISON, sizeof line);
    for (size_t i = 0; i < lines; i++)
        same += memcmp((const char *)row->data + i * ARENA_ALIGN, line,
                       ARENA_ALIGN) == 0;
    return lines > 0 ? (double)same / (double)lines : 0;
}

/* Alignment leaves gaps; the batch has room for as many segments as tokens.
 * Kernel scratch is for the largest product of any shape and is left out. */
TEST(what_was_planned_is_used)
{
    static const struct { enum memory_owner owner; double most; } bounds[] = {
        {MEMORY_GRADIENTS, 0.02}, {MEMORY_PARTIALS, 0.02},
        {MEMORY_FRAME, 0.001},    {MEMORY_LAYER_SCRATCH, 0.001},
        {MEMORY_BATCH, 0.75}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct training t = {0};
        double loss;

        begin(&t, &rows[i], true);
        run(&t, 1, &loss);
        for (int j = 0; j < ROWS(bounds); j++) {
            const struct stage *stage = &t.pipeline.stages[0];
            const struct memory_row *row = &stage->memory[bounds[j].owner];
            const double share = untouched(row);

            if (share > bounds[j].most)
                print_error("case %d, %s: %.4f of %zu bytes unused\n", i,
                            row->name, share, row->bytes);
            CHECK(share <= bounds[j].most);
        }
        training_end(&t);
    }
}

TEST_MAIN(a_step_allocates_nothing, the_plan_is_what_is_taken_to_the_byte,
          poisoned_memory_changes_no_bit, what_was_planned_is_used)
