/* SPDX-License-Identifier: Apache-2.0 */
/* test_ramp.c - mirrors src/optimizer/ramp.c. */
#include "optimizer/ramp.h"

#include "base/json.h"
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

/* Against Megatron-LM's rule, written again and followed step by step in Python
 * (tests/golden/make_ramp.py). */
TEST(levels_are_those_of_the_samples_read)
{
    static const char *const path = "tests/golden/training/ramp.json";
    struct arena arena;
    const struct json *root;

    arena_init(&arena, "ramps", 0);
    IS_OK(json_read_file(&root, &arena, path, 1 << 20));
    CHECK(root->kind == JSON_ARRAY && root->count == 7);
    for (int i = 0; i < root->count; i++) {
        const struct json *of = &root->items[i];
        const struct json *batches = json_get(of, "batches");
        const struct json *numbers = json_get(of, "rows");
        char words[3][24];
        const char *rows[3] = {words[0], words[1], words[2]};
        struct ramp ramp;
        int64_t last;

        for (int j = 0; j < 3; j++)
            snprintf(words[j], sizeof words[j], "%lld",
                     (long long)numbers->items[j].integer);
        IS_OK(json_get_integer(of, path, "last", &last));
        IS_OK(ramp_read(&ramp, rows, 3, last));
        CHECK(batches->count == 200);
        for (int step = 0; step < batches->count; step++)
            EQUAL_INT(ramp_batch(&ramp, step), batches->items[step].integer);
        check_walk(&ramp, batches->count);
        ramp_free(&ramp);
    }
    arena_free(&arena);
}

/* Batches that a few steps do not reach, each once. */
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
        {{"8", "x", "100"}, "'x' is not a number from 1", 3}};

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
