/* SPDX-License-Identifier: Apache-2.0 */
/* test_stage.c - the memory plan of a stage, before it takes memory. */
#include "plan/stage.h"
#include "tests/test.h"

/* 134,515,008 parameters. */
static const struct model large = {
    .kind = &model_llama, .vocab = 49152, .layers = 30, .heads = 9,
    .kv_heads = 3, .head_width = 64, .width = 576, .feed_forward = 1536,
    .context = 2048, .tied = true, .rope.base = 10000, .norm_epsilon = 1e-5,
    .activation = ACTIVATION_SILU};
static const double limit = 3e9 - 60e6; /* bytes; the rest is the program */

static struct stage_request training(void)
{
    return (struct stage_request){
        .model = &large, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {4, 3, 1, 1}, .size.batch = 4, .size.micro_batch = 4,
        .size.length = 512,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads = 2,
        .recomputation.fits = limit};
}

TEST(a_model_of_135M_trains_within_3_GB)
{
    struct stage_request request = training();
    struct stage stage = {0};

    IS_OK(stage_plan(&stage, &request));
    EQUAL_INT(stage.program.params.parameters, 134515008);
    CHECK((double)stage.bytes <= limit);
    stage_free(&stage);
}

TEST(a_model_of_135M_generates_within_1_GB)
{
    struct stage_request request = training();
    struct stage stage = {0};

    request.mode = PROGRAM_GENERATE;
    request.backward = BACKWARD_NONE;
    request.training.optimizer = false;
    request.layout.grid.data = 1;
    request.size.batch = request.size.micro_batch = 1;
    request.size.length = 256;
    request.size.context = 2048;
    IS_OK(stage_plan(&stage, &request));
    CHECK(stage.bytes <= 1000000000u);
    stage_free(&stage);
}

/* Auto takes the least recomputation that fits, and says which. */
TEST(auto_recomputes_no_more_than_it_must)
{
    static const struct { double bytes; const char *policy; } rows[] = {
        {64e9, "none"}, {2.95e9, "block"}, {1e9, "block"}};
    double last = 0;

    for (int i = 0; i < ROWS(rows); i++) {
        struct stage_request request = training();
        struct stage stage = {0};

        request.recomputation.fits = rows[i].bytes;
        IS_OK(stage_plan(&stage, &request));
        EQUAL_TEXT(stage.recompute, rows[i].policy);
        CHECK(i == 0 || (double)stage.bytes <= last);
        last = (double)stage.bytes;
        stage_free(&stage);
    }
}

/* Plans print the whole list, each word once. */
TEST(a_list_of_recomputation_is_named_whole)
{
    static const char *const list[] = {"norm", "attention", "norm", "linear"};
    static const char *const words[] = {"none", "block", "latent", "norm",
                                        "activation", "attention", "linear"};
    struct stage_request request = training();
    struct stage stage = {0};

    request.recomputation.policy = list;
    request.recomputation.count = ROWS(list);
    IS_OK(stage_plan(&stage, &request));
    EQUAL_TEXT(stage.recompute, "norm, attention, linear");
    IS_OK(stage_plan_again(&stage, words, ROWS(words), BACKWARD_FUSED));
    EQUAL_TEXT(stage.recompute, "none, block, latent, norm, activation, "
                                "attention, linear");
    stage_free(&stage);
}

TEST(sizes_that_cannot_be_are_refused)
{
    struct stage_request request = training();
    struct stage stage = {0};

    request.size.micro_batch = 3;
    FAILS(stage_plan(&stage, &request), ERR_CONFIG,
          "3 does not divide a batch of 4 sequences; 2 does");
    stage_free(&stage);
    request = training();
    request.size.length = 2;
    FAILS(stage_plan(&stage, &request), ERR_CONFIG, "fewer than the 3");
    stage_free(&stage);
    status_clear();
}

/* A rank with several stages has one device, opened for the first of them. */
TEST(a_device_has_room_for_the_launches_of_all_its_stages)
{
    struct stage_request request = training();
    struct stage first = {0}, other = {0};
    size_t most;

    request.recomputation.fits = 64e9;
    request.size.micro_batch = 2;
    IS_OK(stage_plan(&first, &request));
    request.size.micro_batch = 4;
    IS_OK(stage_plan(&other, &request));
    most = stage_device(&other, other.memory).launch_bytes;
    CHECK(stage_device(&first, first.memory).launch_bytes < most);
    stage_share(&first, &other, false);
    EQUAL_INT(stage_device(&first, first.memory).launch_bytes, most);
    stage_free(&other);
    stage_free(&first);
}

/* Two sums of a block are followed by a norm: in Gemma 2, which has norms
 * before them, too, and where tensor ranks add what they computed. One kernel
 * makes both where no rank gathers weights, and the norm has its memory with
 * the sum. */
TEST(norms_are_made_with_the_sums_before_them)
{
    static const struct model gemma = {
        .kind = &model_gemma2, .vocab = 61, .layers = 3, .heads = 2,
        .kv_heads = 1, .head_width = 8, .width = 16, .feed_forward = 24,
        .context = 32, .tied = true, .rope.base = 10000, .norm_epsilon = 1e-6,
        .activation = ACTIVATION_GELU_TANH};
    static const struct {
        const struct model *model;
        int tensor;
        bool divides;
        int joined;
    } rows[] = {{&gemma, 1, false, 6}, {&gemma, 1, true, 0},
                {&large, 1, false, 0}, {&large, 3, false, 60},
                {&large, 3, true, 0}};
    struct stage_request request = training();

    request.size.length = 32;
    for (int r = 0; r < ROWS(rows); r++) {
        struct stage stage = {0};
        int joined = 0;

        request.model = rows[r].model;
        request.layout.mesh = mesh_alone();
        request.layout.mesh.size[AXIS_TENSOR] = rows[r].tensor;
        request.layout.grid.tensor = rows[r].tensor;
        request.divided.division.weights =
            rows[r].divides ? 1u << AXIS_SHARD : 0;
        IS_OK(stage_plan(&stage, &request));
        for (int i = 0; i < stage.frame.forward_end; i++) {
            const struct event *event = &stage.frame.events[i];
            const struct step *norm = &stage.program.steps[event->norm];

            if (event->norm == 0) continue;
            joined++;
            CHECK(event[1].is_made && event[1].step == event->norm);
            EQUAL_INT(norm->input, norm[-1].output);
            EQUAL_INT(stage.frame.buffers[stage.frame.activation[norm->output]]
                          .first, i);
        }
        EQUAL_INT(joined, rows[r].joined);
        stage_free(&stage);
    }
}

TEST_MAIN(a_model_of_135M_trains_within_3_GB,
          a_model_of_135M_generates_within_1_GB,
          auto_recomputes_no_more_than_it_must,
          a_list_of_recomputation_is_named_whole,
          norms_are_made_with_the_sums_before_them,
          sizes_that_cannot_be_are_refused,
          a_device_has_room_for_the_launches_of_all_its_stages)
