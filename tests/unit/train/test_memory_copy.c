/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_copy.c - mirrors src/train/memory_copy.c: what an earlier start
 * left in the slots, and copies whose weights are lent. */
#include "train/memory_copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include "control/board.h"
#include "tests/unit/small_run.h"

enum { LENGTH = 16, BATCH = 2, VOCAB = 29 };

/* A rank's process; the file of copies outlives it. */
struct room {
    struct training t;
    struct board *board;
    int board_file;
    struct memory_copy copy;
};

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int64_t step = *(const int64_t *)argument;

    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + (step * BATCH + index) * 13) % VOCAB);
        targets[i] = (inputs[i] + 7) % VOCAB;
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}

/* Up to its weights, as trainer_open does. */
static void begin(struct room *r, int file)
{
    static const char *const none[] = {"none"};
    struct pipeline_request request = {.stage = {
        .model = &r->t.model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {2, 1, 1, 1}, .layout.mesh = mesh_alone(),
        .size.batch = BATCH, .size.micro_batch = 1, .size.length = LENGTH,
        .backward = BACKWARD_FUSED,
        .training.optimizer = true, .machine.threads = 1,
        .recomputation.policy = none, .recomputation.count = 1}};

    *r = (struct room){.board_file = -1};
    r->t.model = (struct model){
        .kind = &model_llama, .vocab = VOCAB, .layers = 1, .heads = 2,
        .kv_heads = 2, .head_width = 8, .width = 16, .feed_forward = 24,
        .context = LENGTH, .tied = true, .rope.base = 10000,
        .norm_epsilon = 1e-5, .init_std = 0.02,
        .activation = ACTIVATION_SILU};
    IS_OK(board_make(&r->board, 1, &r->board_file));
    atomic_store(&r->board->state_file, file);
    board_sit(r->board, 0);
    IS_OK(pipeline_plan(&r->t.pipeline, &request));
    r->t.pipeline.stages[0].kept.apart = true;
    IS_OK(pipeline_open(&r->t.pipeline));
    IS_OK(train_step_build(&r->t.step, &r->t.pipeline, NULL));
    r->t.step.update.beta1 = 0.9;
    r->t.step.update.beta2 = 0.95;
    r->t.step.update.epsilon = 1e-8;
    r->t.step.turn.act = memory_copy_turn;
    r->t.step.turn.ready = memory_copy_ready;
    r->t.step.turn.argument = &r->copy;
    r->copy.step = &r->t.step;
    r->copy.every.threads = 1;
    IS_OK(memory_copy_open(&r->copy, &r->t.pipeline, r->t.step.team, 1));
    CHECK(r->copy.slots[0] != NULL && r->copy.turns.step != NULL);
}

static void draw_weights(struct room *r)
{
    memory_copy_begin(&r->copy);
    IS_OK(stage_init_weights(&r->t.pipeline.stages[0], &r->t.model, 11));
    IS_OK(train_step_start(&r->t.step));
    IS_OK(train_step_refresh(&r->t.step));
}

static void make_step(struct room *r, int64_t step)
{
    struct sample_source source = {.fill = fill, .argument = &step,
                                   .first = step * BATCH};
    struct step_result result;

    IS_OK(train_step_run(&r->t.step, &source, 1e-2, step + 1, &result));
}

static void copy_step(struct room *r, int64_t step)
{
    bool due;

    IS_OK(memory_copy_due(&r->copy, step, &due));
    CHECK(due);
    IS_OK(memory_copy_make(&r->copy, step, "{}", 3));
}

static int64_t newest(struct room *r)
{
    int64_t step;

    IS_OK(memory_copy_newest(&r->copy, &step));
    return step;
}

static void end(struct room *r)
{
    memory_copy_close(&r->copy);
    board_end(OK, "");
    training_end(&r->t);
    board_close(r->board);
    close(r->board_file);
}

static int file_of_copies(void)
{
    const int file = memfd_create("copies", MFD_CLOEXEC);

    CHECK(file >= 0);
    return file;
}

static struct memory_row *weights(struct room *r)
{
    return &r->t.pipeline.stages[0].memory[MEMORY_WEIGHTS];
}

/* Guards a start whose supervisor had died before its journal had a line, in
 * memory of agents that outlived it: it was a first generation again, and took
 * the moments of the earlier one's first step for zeros. */
TEST(what_an_earlier_start_left_is_cleared)
{
    const int file = file_of_copies();
    struct room r;

    begin(&r, file);
    CHECK(r.copy.is_new);
    draw_weights(&r);
    CHECK(!r.copy.is_new);
    make_step(&r, 0);

    const size_t bytes = weights(&r)->bytes;
    void *first = test_malloc(bytes), *second = test_malloc(bytes);

    memcpy(first, weights(&r)->data, bytes);
    end(&r); /* it was killed: no copy is whole */

    begin(&r, file);
    CHECK(!r.copy.is_new);
    EQUAL_INT(newest(&r), -1);
    draw_weights(&r);
    for (int row = MEMORY_STATE_0; row <= MEMORY_STATE_4; row++) {
        const struct memory_row *m = &r.t.pipeline.stages[0].memory[row];

        for (size_t i = 0; i < m->bytes; i++)
            if (((const char *)m->data)[i] != 0)
                test_failed(__FILE__, __LINE__, "states are zero");
    }
    make_step(&r, 0);
    memcpy(second, weights(&r)->data, bytes);
    end(&r);
    EQUAL_BYTES(second, first, bytes);
    test_free(first);
    test_free(second);
    close(file);
}

TEST(a_later_process_goes_on_from_the_copy)
{
    const int file = file_of_copies();
    const char *state;
    size_t length;
    struct room r;

    begin(&r, file);
    draw_weights(&r);
    make_step(&r, 0);
    copy_step(&r, 1);
    make_step(&r, 1);
    copy_step(&r, 2);

    const size_t bytes = weights(&r)->bytes;
    void *first = test_malloc(bytes), *second = test_malloc(bytes);

    memcpy(first, weights(&r)->data, bytes);
    make_step(&r, 2); /* and was killed */
    end(&r);
    begin(&r, file);
    EQUAL_INT(newest(&r), 2);
    IS_OK(memory_copy_restore(&r.copy, 2, &state, &length));
    EQUAL_TEXT(state, "{}");
    memcpy(second, weights(&r)->data, bytes);
    end(&r);
    EQUAL_BYTES(second, first, bytes);
    test_free(first);
    test_free(second);
    close(file);
}

/* While averages lie where the weights are, the copy is not whole; afterwards
 * it is, if the weights came back as they were. */
TEST(a_copy_is_lent_and_given_back)
{
    const int file = file_of_copies();
    struct room r;

    begin(&r, file);
    draw_weights(&r);
    make_step(&r, 0);
    copy_step(&r, 1);

    float *values = weights(&r)->data;
    const float kept = values[3];

    memory_copy_lend(&r.copy, false); /* nothing changes */
    EQUAL_INT(newest(&r), 1);
    memory_copy_give_back(&r.copy);
    EQUAL_INT(newest(&r), 1);

    memory_copy_lend(&r.copy, true);
    EQUAL_INT(newest(&r), -1);
    values[3] = 7;
    EQUAL_INT(newest(&r), -1);
    values[3] = kept;
    memory_copy_give_back(&r.copy);
    EQUAL_INT(newest(&r), 1);
    EQUAL_INT(r.copy.newest, 1);

    memory_copy_lend(&r.copy, true);
    values[3] = 7;
    memory_copy_give_back(&r.copy); /* they did not come back */
    EQUAL_INT(newest(&r), -1);
    EQUAL_INT(r.copy.newest, -1);
    values[3] = kept;
    memory_copy_give_back(&r.copy); /* nothing is lent any more */
    EQUAL_INT(newest(&r), -1);

    /* The next step makes a copy again. */
    make_step(&r, 1);
    copy_step(&r, 2);
    EQUAL_INT(newest(&r), 2);
    end(&r);
    close(file);
}

/* A step that is not copied has nothing to lend; the copy of the step before
 * stays. */
TEST(a_state_that_is_no_copy_is_not_lent)
{
    const int file = file_of_copies();
    bool due;
    struct room r;

    begin(&r, file);
    draw_weights(&r);
    make_step(&r, 0);
    copy_step(&r, 1);
    r.copy.every.steps = 4;
    IS_OK(memory_copy_due(&r.copy, 1, &due));
    make_step(&r, 1);
    IS_OK(memory_copy_due(&r.copy, 2, &due));
    CHECK(!due);
    memory_copy_lend(&r.copy, true);
    EQUAL_INT(newest(&r), 1);
    ((float *)weights(&r)->data)[3] += 1;
    memory_copy_give_back(&r.copy);
    EQUAL_INT(newest(&r), 1);
    end(&r);
    close(file);
}

TEST_MAIN(what_an_earlier_start_left_is_cleared,
          a_later_process_goes_on_from_the_copy,
          a_copy_is_lent_and_given_back, a_state_that_is_no_copy_is_not_lent)
