/* SPDX-License-Identifier: Apache-2.0 */
/* test_read_ahead.c - mirrors src/step/read_ahead.c: the batch of the next step
 * is read by another thread while this step computes, changes no bit, and a
 * failure to read it belongs to the step that needs it. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/check.h"
#include "tests/unit/small_run.h"

enum { LENGTH = 16, BATCH = 4, MICRO = 2, VOCAB = 29, STEPS = 4,
       PATIENCE_S = 60 };

/* Sequences that steps asked for, and the threads that did. */
struct asked {
    pthread_mutex_t lock;
    pthread_cond_t change;
    pthread_t rank;     /* the thread that computes */
    int64_t entered;    /* sequences of the step whose losses were added */
    int64_t aside;      /* sequences that another thread read */
    int64_t direct;     /* ... that the rank read itself */
    int64_t late;       /* ... that waited for losses in vain */
    int64_t bad;        /* step of which nothing can be read; -1: none */
    bool waits;         /* another thread reads after the first losses */
};
static struct asked asked;

struct part { int64_t step; };

static void wait_for_losses(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    while (asked.waits && asked.entered == 0)
        if (pthread_cond_timedwait(&asked.change, &asked.lock, &until) ==
            ETIMEDOUT) {
            asked.late++;
            return;
        }
}

static status fill(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents)
{
    const int64_t step = ((const struct part *)argument)->step;
    const int64_t at = step * BATCH + index;

    pthread_mutex_lock(&asked.lock);
    if (pthread_equal(pthread_self(), asked.rank)) {
        asked.direct++;
    } else {
        asked.aside++;
        wait_for_losses();
    }
    pthread_mutex_unlock(&asked.lock);
    if (step == asked.bad) FAIL(ERR_FORMAT, "sequence %d is torn", (int)index);
    for (int64_t i = 0; i < LENGTH; i++) {
        inputs[i] = (int32_t)((i * 7 + at * 13) % VOCAB);
        targets[i] = (int32_t)((i * 7 + 7 + at * 13) % VOCAB);
        positions[i] = (int32_t)i;
        documents[i] = 0;
    }
    return OK;
}

static void count_losses(void *argument, int64_t first, int64_t count)
{
    (void)argument;
    (void)first;
    pthread_mutex_lock(&asked.lock);
    asked.entered += count;
    pthread_cond_broadcast(&asked.change);
    pthread_mutex_unlock(&asked.lock);
}

static void begin(struct training *t)
{
    static const char *const none[] = {"none"};
    struct pipeline_request request = {.stage = {
        .model = &t->model, .mode = PROGRAM_TRAIN, .dtype = DTYPE_F32,
        .layout.grid = {2, 1, 1, 1}, .layout.mesh = mesh_alone(),
        .size.batch = BATCH,
        .size.micro_batch = MICRO, .size.length = LENGTH,
        .backward = BACKWARD_FUSED,
        .training.optimizer = true, .machine.threads = 1,
        .recomputation.policy = none,
        .recomputation.count = 1}};

    t->model = (struct model){
        .kind = &model_llama, .vocab = VOCAB, .layers = 1, .heads = 2,
        .kv_heads = 2, .head_width = 8, .width = 16, .feed_forward = 24,
        .context = LENGTH, .tied = true, .rope.base = 10000,
        .norm_epsilon = 1e-5, .init_std = 0.02,
        .activation = ACTIVATION_SILU};
    IS_OK(pipeline_plan(&t->pipeline, &request));
    pipeline_reserve_ahead(&t->pipeline);
    EQUAL_INT(t->pipeline.memory[MEMORY_AHEAD].bytes,
              4 * (BATCH + MICRO) * LENGTH * sizeof(int32_t));
    IS_OK(pipeline_open(&t->pipeline));
    EQUAL_INT(t->pipeline.stages[0].arena.peak, t->pipeline.bytes);
    IS_OK(stage_init_weights(&t->pipeline.stages[0], &t->model, 11));
    IS_OK(train_step_build(&t->step, &t->pipeline, NULL));
    t->step.update.beta1 = 0.9;
    t->step.update.beta2 = 0.95;
    t->step.update.epsilon = 1e-8;
    t->step.executor.used = count_losses;
    asked = (struct asked){.rank = pthread_self(), .bad = -1};
    pthread_mutex_init(&asked.lock, NULL);
    pthread_cond_init(&asked.change, NULL);
}

/* content: of step 0; those of the steps after it follow. 0: none. */
static struct sample_source source_of(struct part *part, int64_t step,
                                      uint64_t content)
{
    part->step = step;
    return (struct sample_source){
        .fill = fill, .argument = part, .first = step * BATCH,
        .content = content > 0 ? content + (uint64_t)step : 0};
}

/* Step `step`, while the batch of the one after it, if any, is read. */
static status one(struct training *t, int64_t step, uint64_t content,
                  struct step_result *result)
{
    static struct part parts[STEPS + 1];
    const struct sample_source source =
        source_of(&parts[step], step, content);

    asked.entered = 0;
    t->step.next = step + 1 < STEPS
                       ? source_of(&parts[step + 1], step + 1, content)
                       : (struct sample_source){0};
    return train_step_run(&t->step, &source, 1e-2, step + 1, result);
}

static void run_all(uint64_t content, bool waits, double losses[STEPS])
{
    struct training t = {0};

    begin(&t);
    asked.waits = waits;
    for (int i = 0; i < STEPS; i++) {
        struct step_result result;

        IS_OK(one(&t, i, content, &result));
        losses[i] = result.loss;
    }
    training_end(&t);
}

/* The reader waits until losses of this step have been added: were batches read
 * before the arithmetic, nobody would ever add them. */
TEST(the_next_batch_is_read_while_a_step_computes)
{
    double plain[STEPS], ahead[STEPS];

    run_all(0, false, plain);
    EQUAL_INT(asked.direct, STEPS * BATCH);
    EQUAL_INT(asked.aside, 0);
    run_all(100, true, ahead);
    EQUAL_INT(asked.direct, BATCH);
    EQUAL_INT(asked.aside, (STEPS - 1) * BATCH);
    EQUAL_INT(asked.late, 0);
    EQUAL_BYTES(plain, ahead, sizeof plain);
}

TEST(whoever_reads_when_gets_the_same_bits)
{
    static const enum check_lives modes[] = {CHECK_LATE, CHECK_EARLY};
    double plain[STEPS], ahead[STEPS];

    run_all(0, false, plain);
    for (int i = 0; i < ROWS(modes); i++) {
        check_choose(modes[i]);
        run_all(100, false, ahead);
        check_choose(CHECK_OFF);
        EQUAL_INT(asked.aside, (STEPS - 1) * BATCH);
        EQUAL_BYTES(plain, ahead, sizeof plain);
    }
}

TEST(a_step_whose_batch_was_not_announced_reads_its_own)
{
    struct training t = {0};
    struct step_result first, again;

    begin(&t);
    IS_OK(one(&t, 0, 100, &first));
    EQUAL_INT(asked.direct, BATCH);
    IS_OK(one(&t, 1, 200, &first)); /* other content under the same number */
    EQUAL_INT(asked.direct, 2 * BATCH);
    t.step.next = (struct sample_source){0};
    IS_OK(train_step_probe(&t.step, &(struct sample_source){
        .fill = fill, .argument = &(struct part){0}}, &again));
    EQUAL_INT(asked.direct, 3 * BATCH);
    IS_OK(one(&t, 2, 200, &again)); /* a probe takes nothing away */
    EQUAL_INT(asked.direct, 3 * BATCH);
    training_end(&t);
}

TEST(a_batch_that_cannot_be_read_fails_the_step_that_needs_it)
{
    struct training t = {0};
    struct step_result result;

    begin(&t);
    asked.bad = 2;
    IS_OK(one(&t, 0, 100, &result));
    IS_OK(one(&t, 1, 100, &result)); /* reads step 2's, and fails silently */
    FAILS(one(&t, 2, 100, &result), ERR_FORMAT, "sequence 0 is torn");
    status_clear();
    EQUAL_INT(asked.direct, BATCH);
    training_end(&t);
}

enum { HELD = 7 }; /* sequences of an evaluation: the last turn is not full */

/* Between two steps: losses of sequences of another step's. */
static status evaluate(struct training *t, struct part *part, uint64_t content,
                       double sums[HELD])
{
    const struct sample_source source = source_of(part, STEPS, content);
    struct evaluation out = {.sums = sums};

    return train_evaluate(&t->step, &source, HELD, &out);
}

/* All but the first turn's are read while F of the turn before is made, and the
 * next step's batch stays where it is. */
TEST(an_evaluation_reads_ahead_and_takes_no_batch_away)
{
    static const enum check_lives modes[] = {CHECK_OFF, CHECK_LATE,
                                             CHECK_EARLY};
    double plain[HELD], ahead[HELD];
    struct part part;

    for (int i = 0; i < ROWS(modes); i++) {
        struct training t = {0};
        struct step_result result;

        check_choose(modes[i]);
        begin(&t);
        IS_OK(one(&t, 0, 100, &result));
        EQUAL_INT(asked.direct, BATCH);
        IS_OK(evaluate(&t, &part, 0, plain));
        EQUAL_INT(asked.direct, BATCH + HELD);
        EQUAL_INT(asked.aside, BATCH);
        for (int again = 1; again <= 2; again++) {
            IS_OK(evaluate(&t, &part, 1, ahead));
            EQUAL_INT(asked.direct, BATCH + HELD + again * MICRO);
            EQUAL_INT(asked.aside, BATCH + again * (HELD - MICRO));
            EQUAL_BYTES(plain, ahead, sizeof plain);
        }
        IS_OK(one(&t, 1, 100, &result));
        EQUAL_INT(asked.direct, BATCH + HELD + 2 * MICRO);
        training_end(&t);
        check_choose(CHECK_OFF);
    }
}

TEST(an_evaluation_that_cannot_be_read_fails)
{
    struct training t = {0};
    struct step_result result;
    struct part part;
    double sums[HELD];

    begin(&t);
    IS_OK(one(&t, 0, 100, &result));
    asked.bad = STEPS;
    FAILS(evaluate(&t, &part, 1, sums), ERR_FORMAT, "is torn");
    status_clear();
    asked.bad = -1;
    IS_OK(evaluate(&t, &part, 1, sums));
    IS_OK(one(&t, 1, 100, &result));
    training_end(&t);
}

TEST_MAIN(an_evaluation_reads_ahead_and_takes_no_batch_away,
          an_evaluation_that_cannot_be_read_fails,
          the_next_batch_is_read_while_a_step_computes,
          whoever_reads_when_gets_the_same_bits,
          a_step_whose_batch_was_not_announced_reads_its_own,
          a_batch_that_cannot_be_read_fails_the_step_that_needs_it)
