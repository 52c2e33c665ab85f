/* SPDX-License-Identifier: Apache-2.0 */
/* test_run_state.c - a trainer's state goes to a checkpoint and comes back,
 * and a checkpoint of something else is refused. */
#include "train/run_state.h"
#include <lockstep.h>
#include "tests/test.h"

struct room {
    char run[PATH_BYTES];
    struct options_set set;
    struct setup setup;
    struct stage stage;
    struct keeper keeper;
};

static void begin(struct room *r)
{
    static const char *const recompute = "none";

    *r = (struct room){0};
    test_directory(r->run);
    IS_OK(options_init(&r->set));
    r->setup.set = &r->set;
    r->setup.grid = (struct grid){2, 1, 1, 1};
    r->setup.ranks = 1;
    r->setup.model = (struct model){
        .kind = &model_llama, .vocab = 20, .layers = 1, .heads = 2,
        .kv_heads = 1, .head_width = 4, .width = 8, .feed_forward = 12,
        .context = 16, .tied = true, .rope.base = 10000, .norm_epsilon = 1e-5,
        .init_std = 0.02, .activation = ACTIVATION_SILU};
    const struct stage_request request = {
        .model = &r->setup.model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {2, 1, 1, 1}, .size.batch = 2, .size.micro_batch = 1,
        .size.length = 16,
        .backward = BACKWARD_FUSED, .training.optimizer = true,
        .machine.threads = 1,
        .recomputation.policy = &recompute, .recomputation.count = 1};

    IS_OK(stage_plan(&r->stage, &request));
    IS_OK(stage_open(&r->stage));
    IS_OK(stage_init_weights(&r->stage, &r->setup.model, 3));
    const struct inventory_of of = {&r->stage, 1, NULL};

    IS_OK(keeper_build(&r->keeper, &r->setup, &of, r->run));
}

static void end(struct room *r)
{
    keeper_free(&r->keeper);
    stage_free(&r->stage);
    options_free(&r->set);
    IS_OK(directory_remove(r->run));
}

static const struct counters counters = {
    .step = 7, .tokens = 224, .samples = 14, .epoch = 1, .data_tokens = 161,
    .data_crc = 0xfedcba98};

TEST(counters_weights_and_moments_come_back)
{
    struct room r;
    struct counters found = {0};
    struct text notice = {0};

    begin(&r);
    struct memory_row *weights = &r.stage.memory[MEMORY_WEIGHTS];
    struct memory_row *moments = &r.stage.memory[MEMORY_STATE_1];
    void *copy = test_malloc(weights->bytes);

    memcpy(copy, weights->data, weights->bytes);
    for (int64_t i = 0; i < r.stage.program.params.elements; i++)
        ((float *)moments->data)[i] = (float)i;
    IS_OK(keeper_save(&r.keeper, &counters));
    memset(weights->data, 0, weights->bytes);
    memset(moments->data, 0, moments->bytes);
    IS_OK(keeper_restore(&r.keeper, &found, &notice));
    EQUAL_BYTES(&found, &counters, sizeof found);
    EQUAL_BYTES(weights->data, copy, weights->bytes);
    CHECK(((float *)moments->data)[5] == 5);
    EQUAL_INT(notice.length, 0);
    test_free(copy);
    text_free(&notice);
    end(&r);
}

TEST(other_numerics_are_refused)
{
    struct room r;
    struct counters found = {0};
    struct text notice = {0};

    begin(&r);
    const struct checkpoint_plan plan = {
        .run = r.run, .step = 7, .tokens = 224, .grid = {2, 1, 1, 1},
        .lockstep = LOCKSTEP_VERSION,
        .numerics = LOCKSTEP_NUMERICS_VERSION + 1,
        .config_json = r.keeper.config.bytes, .state_json = "{}",
        .parts = r.keeper.parts.items, .part_count = r.keeper.parts.count};

    IS_OK(checkpoint_save(&plan));
    FAILS(keeper_restore(&r.keeper, &found, &notice), ERR_CONFIG,
          "was made with numerics version");
    status_clear();
    text_free(&notice);
    end(&r);
}

TEST(a_state_of_another_step_is_refused)
{
    struct room r;
    struct counters found = {0};
    struct text notice = {0};

    begin(&r);
    const struct checkpoint_plan plan = {
        .run = r.run, .step = 7, .tokens = 224, .grid = {2, 1, 1, 1},
        .lockstep = LOCKSTEP_VERSION, .numerics = LOCKSTEP_NUMERICS_VERSION,
        .config_json = r.keeper.config.bytes,
        .state_json = "{\"step\": 8, \"tokens\": 0, \"samples\": 0, "
                      "\"epoch\": 0}",
        .parts = r.keeper.parts.items, .part_count = r.keeper.parts.count};

    IS_OK(checkpoint_save(&plan));
    FAILS(keeper_restore(&r.keeper, &found, &notice), ERR_FORMAT,
          "state.json is of step 8, the manifest of step 7");
    status_clear();
    text_free(&notice);
    end(&r);
}

TEST_MAIN(counters_weights_and_moments_come_back, other_numerics_are_refused,
          a_state_of_another_step_is_refused)
