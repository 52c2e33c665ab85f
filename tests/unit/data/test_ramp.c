/* SPDX-License-Identifier: Apache-2.0 */
/* test_ramp.c - mirrors src/data/ramp.c. */
#include "data/ramp.h"

#include "tests/test.h"

/* Walks step by step and compares the closed formulas. */
static void check_walk(const struct ramp *ramp, int64_t steps)
{
    int64_t samples = 0;

    for (int64_t step = 0; step < steps; step++) {
        EQUAL_INT(ramp_samples(ramp, step), samples);
        EQUAL_INT(ramp_steps(ramp, samples), step);
        EQUAL_INT(ramp_steps(ramp, samples + 1), step + 1);
        samples += ramp_batch(ramp, step);
    }
}

TEST(without_rows_the_batch_stays)
{
    struct ramp ramp;

    IS_OK(ramp_read(&ramp, NULL, 0, 24));
    CHECK(!ramp_changes(&ramp));
    EQUAL_INT(ramp_divisor(&ramp), 24);
    check_walk(&ramp, 9);
    ramp_free(&ramp);
}

TEST(rows_of_steps)
{
    const char *rows[] = {"0=8", "3 = 16", "10=20"};
    struct ramp ramp;

    IS_OK(ramp_read(&ramp, rows, 3, 20));
    EQUAL_INT(ramp.count, 3);
    EQUAL_INT(ramp_batch(&ramp, 2), 8);
    EQUAL_INT(ramp_batch(&ramp, 3), 16);
    EQUAL_INT(ramp_batch(&ramp, 99), 20);
    EQUAL_INT(ramp_samples(&ramp, 10), 3 * 8 + 7 * 16);
    EQUAL_INT(ramp_divisor(&ramp), 4);
    check_walk(&ramp, 20);
    ramp_free(&ramp);
}

/* What Megatron-LM computes before each step from the samples that it has
 * consumed. */
static int64_t level_batch(int64_t consumed, int64_t start, int64_t increment,
                           int64_t samples, int64_t last)
{
    const int64_t levels = (last - start) / increment;

    return consumed >= samples
               ? last : start + consumed * levels / samples * increment;
}

TEST(levels_are_those_of_the_samples_read)
{
    static const struct {
        const char *rows[3];
        int64_t start, increment, samples, last;
    } cases[] = {{{"16", "16", "600"}, 16, 16, 600, 64},
                 {{"8", "8", "1"}, 8, 8, 1, 80},
                 {{"2", "2", "1000"}, 2, 2, 1000, 40},
                 {{"3", "1", "7"}, 3, 1, 7, 12},
                 {{"4", "1", "100"}, 4, 1, 100, 4}};

    for (int i = 0; i < ROWS(cases); i++) {
        struct ramp ramp;
        int64_t consumed = 0;

        IS_OK(ramp_read(&ramp, (const char *const *)cases[i].rows, 3,
                        cases[i].last));
        for (int64_t step = 0; step < 200; step++) {
            EQUAL_INT(ramp_batch(&ramp, step),
                      level_batch(consumed, cases[i].start,
                                  cases[i].increment, cases[i].samples,
                                  cases[i].last));
            consumed += ramp_batch(&ramp, step);
        }
        check_walk(&ramp, 200);
        ramp_free(&ramp);
    }
}

/* What a few steps do not reach, each batch once. */
TEST(further_batches)
{
    static const char *const rows[] = {"0=4", "2=8", "5=4", "6=16", "9=8",
                                       "10=2"};
    static const struct { int64_t steps; int count; int64_t batches[4]; }
    cases[] = {{0, 4, {4, 8, 16, 2}}, {1, 3, {8, 16, 2}},
               {2, 3, {8, 16, 2}},    {3, 2, {16, 2}},
               {6, 2, {16, 2}},       {7, 1, {2}},
               {10, 1, {2}},          {11, 0, {0}}};
    struct ramp ramp;

    IS_OK(ramp_read(&ramp, rows, ROWS(rows), 2));
    for (int i = 0; i < ROWS(cases); i++) {
        EQUAL_INT(ramp_further(&ramp, cases[i].steps), cases[i].count);
        for (int j = 0; j < cases[i].count; j++)
            EQUAL_INT(ramp_further_batch(&ramp, cases[i].steps, j),
                      cases[i].batches[j]);
    }
    ramp_free(&ramp);
}

TEST(rows_that_make_no_ramp_are_refused)
{
    static const struct { const char *rows[3], *words; int count; } cases[] = {
        {{"1=8", "3=16"}, "the first row is of step 0", 2},
        {{"0=8", "3=16", "3=20"}, "steps ascend", 3},
        {{"0=8", "3"}, "row 2: '3' is not STEP=BATCH", 2},
        {{"0=8", "3=12"}, "train.batch is 20", 2},
        {{"16", "16"}, "'16' is not STEP=BATCH", 2},
        {{"8", "5", "100"}, "18 does", 3},
        {{"24", "8", "100"}, "never comes to train.batch, 20", 3},
        {{"8", "x", "100"}, "'x' is no number from 1", 3}};

    for (int i = 0; i < ROWS(cases); i++) {
        struct ramp ramp;

        FAILS(ramp_read(&ramp, (const char *const *)cases[i].rows,
                        cases[i].count, 20), ERR_CONFIG, cases[i].words);
        ramp_free(&ramp);
        status_clear();
    }
}

TEST_MAIN(without_rows_the_batch_stays, rows_of_steps,
          levels_are_those_of_the_samples_read, further_batches,
          rows_that_make_no_ramp_are_refused)
