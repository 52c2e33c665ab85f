/* SPDX-License-Identifier: Apache-2.0 */
/* test_loss_scale.c - the values of train.loss_scale, the steps at which the
 * scale moves, and that a step which overflows changes nothing else. */
#include <math.h>
#include "tests/unit/small_run.h"

enum { LENGTH = 32, BATCH = 4, VOCAB = 50 };

TEST(what_the_option_may_say)
{
    static const struct {
        const char *text;
        enum dtype dtype;
        status result;
        double value;
    } rows[] = {
        {"auto", DTYPE_F16, OK, 65536},     {"auto", DTYPE_F32, OK, 0},
        {"auto", DTYPE_BF16, OK, 0},        {"1024", DTYPE_F16, OK, 1024},
        {"0.5", DTYPE_F16, OK, 0.5},        {"1024", DTYPE_F32, ERR_CONFIG, 0},
        {"1024", DTYPE_BF16, ERR_CONFIG, 0}, {"1000", DTYPE_F16, ERR_CONFIG, 0},
        {"-2", DTYPE_F16, ERR_CONFIG, 0},   {"much", DTYPE_F16, ERR_CONFIG, 0},
        {"1e30", DTYPE_F16, ERR_CONFIG, 0}, {"8x", DTYPE_F16, ERR_CONFIG, 0},
        {"nan", DTYPE_F16, ERR_CONFIG, 0},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct loss_scale scale;
        const status result = loss_scale_parse(&scale, rows[i].text,
                                               rows[i].dtype, 1000);

        EQUAL_INT(result, rows[i].result);
        status_clear();
        if (result != OK) continue;
        CHECK(scale.value == rows[i].value);
        CHECK(scale.value == 0 || scale.share == 1.0 / 1024);
        CHECK(loss_scale_factor(&scale) ==
              (scale.value == 0 ? 1 : scale.value / 1024));
    }
}

TEST(overflow_halves_and_patience_doubles)
{
    struct loss_scale scale;

    IS_OK(loss_scale_parse(&scale, "auto", DTYPE_F16, 1));
    IS_OK(loss_scale_after(&scale, false));
    CHECK(scale.value == 32768 && scale.skipped == 1);
    for (int i = 0; i < LOSS_SCALE_GOOD_STEPS - 1; i++)
        IS_OK(loss_scale_after(&scale, true));
    CHECK(scale.value == 32768);
    IS_OK(loss_scale_after(&scale, true));
    CHECK(scale.value == 65536 && scale.good == 0 && scale.skipped == 1);
    while (scale.value > 0x1p-24) IS_OK(loss_scale_after(&scale, false));
    EQUAL_INT(loss_scale_after(&scale, false), ERR_NUMERIC);
    status_clear();
}

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    (void)argument;
    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + index * 13) % VOCAB);
        targets[i] = (int32_t)((i * 7 + 7 + index * 13) % VOCAB);
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}
static const struct sample_source source = {.fill = fill, .argument = NULL};

static void begin(struct training *t)
{
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F16,
        .layout.grid = {2, 1, 1, 1}, .size.batch = BATCH, .size.micro_batch = 2,
        .size.length = LENGTH, .backward = BACKWARD_FUSED,
        .training.optimizer = true,
        .machine.threads = 1}};

    *t = (struct training){.model = {
        .kind = &model_llama, .vocab = VOCAB, .layers = 1, .heads = 2,
        .kv_heads = 1, .head_width = 8, .width = 16, .feed_forward = 24,
        .context = LENGTH, .tied = true, .rope.base = 10000,
        .norm_epsilon = 1e-5, .init_std = 0.02,
        .activation = ACTIVATION_SILU}};
    training_open(t, &request, NULL);
    IS_OK(train_step_refresh(&t->step));
    IS_OK(loss_scale_parse(&t->step.scaling, "auto", DTYPE_F16,
                           BATCH * LENGTH));
    t->step.update.clip = 1;
}

static const enum memory_owner kept[] = {
    MEMORY_WEIGHTS, MEMORY_COMPUTE, MEMORY_STATE_0, MEMORY_STATE_1};

static bool same(const struct training *a, const struct training *b)
{
    for (int i = 0; i < ROWS(kept); i++) {
        const struct memory_row *x = &a->pipeline.stages[0].memory[kept[i]];
        const struct memory_row *y = &b->pipeline.stages[0].memory[kept[i]];

        if (memcmp(x->data, y->data, x->bytes) != 0) return false;
    }
    return true;
}

TEST(a_step_that_overflows_changes_only_the_scale)
{
    struct training a, b;
    struct step_result result;

    begin(&a);
    begin(&b);
    a.step.scaling.value = 0x1p40; /* nothing near it fits float16 */
    IS_OK(train_step_run(&a.step, &source, 1e-2, 1, &result));
    CHECK(result.skipped && !isfinite(result.norm) && isfinite(result.loss));
    CHECK(a.step.scaling.value == 0x1p39);
    CHECK(same(&a, &b));
    while (result.skipped)
        IS_OK(train_step_run(&a.step, &source, 1e-2, 1, &result));
    CHECK(!same(&a, &b));
    training_end(&a);
    training_end(&b);
}

/* Small numbers of float16 have fewer digits, so the bits may differ. */
TEST(scales_in_range_train_alike)
{
    struct training a, b;
    struct step_result x, y;

    begin(&a);
    begin(&b);
    a.step.scaling.value = 0x1p16;
    b.step.scaling.value = 0x1p17;
    for (int step = 1; step <= 3; step++) {
        IS_OK(train_step_run(&a.step, &source, 1e-2, step, &x));
        IS_OK(train_step_run(&b.step, &source, 1e-2, step, &y));
        CHECK(!x.skipped && !y.skipped);
        CHECK(fabs(x.norm - y.norm) <= 1e-3 * x.norm);
        CHECK(fabs(x.loss - y.loss) <= 1e-3);
    }
    training_end(&a);
    training_end(&b);
}

TEST_MAIN(what_the_option_may_say, overflow_halves_and_patience_doubles,
          a_step_that_overflows_changes_only_the_scale,
          scales_in_range_train_alike)
