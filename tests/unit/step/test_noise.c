/* SPDX-License-Identifier: Apache-2.0 */
/* test_noise.c - mirrors src/step/noise.c: against gradients of single leaves
 * that were made without the other leaves, added up here in float64. */
#include "step/noise.h"

#include <math.h>

#include "tests/unit/small_run.h"

enum { LENGTH = 32, BATCH = 4, VOCAB = 75, LEAVES = 4 };

/* Sequences have something in common, and each another number of targets. */
static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int64_t first = *(const int64_t *)argument;
    const int64_t sequence = first + index;

    for (int64_t i = 0; i < LENGTH; i++) {
        const int64_t own = i % 4 == 0 ? 13 * sequence : 0;

        inputs[i] = (int32_t)((i * 7 + own) % VOCAB);
        targets[i] = i < 3 * sequence ? -1
                                      : (int32_t)((i * 5 + 7 + own) % VOCAB);
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}

static void begin(struct training *t, int64_t batch, int64_t micro_batch)
{
    static const char *const recompute = "none";
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F64,
        .layout.grid = {(int)batch, 2, 1, 0}, .size.batch = batch,
        .size.micro_batch = micro_batch, .size.length = LENGTH,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads = 2,
        .recomputation.policy = &recompute, .recomputation.count = 1}};

    t->model = (struct model){
        .kind = &model_llama, .vocab = VOCAB, .layers = 2, .heads = 4,
        .kv_heads = 2, .head_width = 6, .width = 24, .feed_forward = 40,
        .context = LENGTH, .rope.base = 10000, .norm_epsilon = 1e-5,
        .init_std = 0.02, .activation = ACTIVATION_SILU};
    training_open(t, &request, NULL);
}

/* Mean |G|^2 and mean 1 / targets of leaves, |G|^2 and 1 / targets of all. */
struct sizes { double small, inverse_small, big, inverse_big; };

/* One leaf alone: adds its gradient, times its targets, to sum. */
static void add_leaf(int64_t leaf, double **sum, int64_t *elements,
                     struct sizes *out)
{
    struct training t;
    const struct sample_source source = {.fill = fill, .argument = &leaf};
    struct step_result result;
    double squares = 0;

    begin(&t, 1, 1);
    IS_OK(train_step_probe(&t.step, &source, &result));
    const struct param_table *params = &t.pipeline.stages[0].program.params;
    const double *gradient = t.pipeline.stages[0].memory[MEMORY_GRADIENTS].data;

    *elements = params->elements;
    if (*sum == NULL) *sum = calloc((size_t)*elements, sizeof(double));
    for (int i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];

        for (int64_t e = p->offset; e < p->offset + p->elements; e++) {
            squares += gradient[e] * gradient[e];
            (*sum)[e] += gradient[e] * (double)result.targets;
        }
    }
    out->small += squares / LEAVES;
    out->inverse_small += 1 / (double)result.targets / LEAVES;
    out->inverse_big += (double)result.targets;
    training_end(&t);
}

static struct sizes oracle(void)
{
    struct sizes out = {0};
    double *sum = NULL;
    int64_t elements = 0;

    for (int64_t i = 0; i < LEAVES; i++) add_leaf(i, &sum, &elements, &out);
    out.inverse_big = 1 / out.inverse_big;
    for (int64_t e = 0; e < elements; e++) {
        const double g = sum[e] * out.inverse_big;

        out.big += g * g;
    }
    free(sum);
    return out;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-10 * fabs(b);
}

TEST(a_measurement_is_that_of_single_leaves)
{
    const struct sizes sizes = oracle();
    double wanted[2];

    /* McCandlish et al., equations A.1 and A.2, as they stand there. */
    const double small = 1 / sizes.inverse_small, big = 1 / sizes.inverse_big;

    wanted[1] = (big * sizes.big - small * sizes.small) / (big - small);
    wanted[0] = (sizes.small - sizes.big) / (1 / small - 1 / big);
    for (int64_t micro_batch = 1; micro_batch <= BATCH; micro_batch *= 2) {
        int64_t first = 0;
        const struct sample_source source = {.fill = fill,
                                            .argument = &first};
        struct noise noise = {.every = 3, .leaves = LEAVES,
                              .data_leaves = LEAVES};
        struct training t;
        struct step_result result;
        double now, average;

        begin(&t, BATCH, micro_batch);
        IS_OK(noise_begin(&noise, &t.step, &source, 0, BATCH));
        IS_OK(train_step_run(&t.step, &source, 1e-3, 1, &result));
        noise_end(&noise, &result, &now, &average);
        CHECK(near(now, wanted[0] / wanted[1]));
        CHECK(near(average, now));
        CHECK(near(noise.trace, 0.1 * wanted[0]));
        CHECK(near(noise.gradient, 0.1 * wanted[1]));
        IS_OK(noise_begin(&noise, &t.step, &source, 1, BATCH));
        noise_end(&noise, &result, &now, &average);
        CHECK(isnan(now) && isnan(average)); /* every third step */
        training_end(&t);
    }
}

/* A probe leaves weights, moments and what the next step computes alone. */
TEST(a_measurement_changes_nothing)
{
    int64_t first = 0;
    const struct sample_source source = {.fill = fill,
                                        .argument = &first};
    double losses[2][3];

    for (int on = 0; on < 2; on++) {
        struct noise noise = {.every = on, .leaves = 2, .data_leaves = LEAVES};
        struct training t;

        begin(&t, BATCH, 2);
        for (int64_t step = 0; step < 3; step++) {
            struct step_result result;

            IS_OK(noise_begin(&noise, &t.step, &source, step, BATCH));
            IS_OK(train_step_run(&t.step, &source, 1e-2, step + 1, &result));
            losses[on][step] = result.loss;
        }
        training_end(&t);
    }
    EQUAL_BYTES(losses[0], losses[1], sizeof losses[0]);
    CHECK(losses[0][2] != losses[0][0]);
}

/* Gradient 3 with a trace of 20, at batches of 2 and of 10: |G|^2 13 and 5. */
TEST(two_sizes_give_two_unknowns)
{
    double out[2];

    noise_solve(13, 0.5, 5, 0.1, out);
    CHECK(near(out[0], 20) && near(out[1], 3));
}

TEST(averages_come_back)
{
    struct noise noise = {.every = 5, .count = 7, .trace = 1.0 / 3,
                          .gradient = 0.1};
    struct noise other = {.every = 5}, none = {0};
    struct json_writer writer = {0};
    struct arena arena = {0};
    const struct json *root;

    json_write_begin(&writer, 0);
    json_write_object(&writer);
    noise_write(&none, &writer);
    noise_write(&noise, &writer);
    json_write_object_end(&writer);
    IS_OK(json_write_end(&writer));
    arena_init(&arena, "test", 0);
    IS_OK(json_read(&root, &arena, writer.out.bytes, writer.out.length, "x"));
    IS_OK(noise_read(&other, root, "x"));
    EQUAL_INT(other.count, 7);
    CHECK(other.trace == noise.trace && other.gradient == noise.gradient);
    IS_OK(noise_read(&none, root, "x"));
    EQUAL_INT(none.count, 0);
    arena_free(&arena);
    json_writer_free(&writer);
}

TEST_MAIN(a_measurement_is_that_of_single_leaves,
          a_measurement_changes_nothing, two_sizes_give_two_unknowns,
          averages_come_back)
