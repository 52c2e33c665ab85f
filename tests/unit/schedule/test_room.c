/* SPDX-License-Identifier: Apache-2.0 */
/* test_room.c - frames and buffers that schedules need, against the numbers
 * that their orders imply. */
#include "schedule/build.h"
#include "schedule/lower.h"
#include "schedule/room.h"
#include "tests/test.h"

static const struct {
    const char *name;
    int ranks, microbatches, stage, direction, held;
} frames[] = {
    {"gpipe", 4, 8, 0, 0, 8},   {"gpipe", 4, 8, 3, 0, 8},
    {"1f1b", 4, 8, 0, 0, 4},    {"1f1b", 4, 8, 1, 0, 3},
    {"1f1b", 4, 8, 3, 0, 1},    {"1f1b", 4, 2, 0, 0, 2},
    {"zb-h1", 4, 8, 0, 0, 4},   {"zb-h1", 4, 8, 3, 0, 4},
    {"zb-h2", 4, 16, 0, 0, 7},  {"zb-h2", 4, 16, 3, 0, 7},
    {"breadth-first", 2, 6, 0, 0, 6}, {"breadth-first", 2, 6, 3, 0, 6},
};

TEST(frames_are_micro_batches_between_f_and_w)
{
    for (int i = 0; i < ROWS(frames); i++) {
        struct schedule s;

        IS_OK(schedule_build(&s, frames[i].name, frames[i].ranks,
                             frames[i].microbatches));
        EQUAL_INT(schedule_held_stage(&s, frames[i].stage,
                                      frames[i].direction), frames[i].held);
        schedule_free(&s);
    }
}

TEST(a_stage_on_two_ranks_is_counted_for_each)
{
    struct schedule s;
    int both[2] = {0, 0};

    IS_OK(schedule_build(&s, "dualpipe", 4, 8));
    for (int d = 0; d < 2; d++)
        for (int stage = 0; stage < 4; stage++) {
            const int held = schedule_held_stage(&s, stage, d);

            CHECK(held >= 1 && held <= 4);
            both[d] += held;
        }
    EQUAL_INT(both[0], both[1]); /* the directions mirror each other */
    CHECK(schedule_held(&s) <= 5); /* p + 1 of both together */
    schedule_free(&s);
}

/* Breadth first, the last rank makes the gradients of one chunk for many
 * micro-batches before the rank that needs them comes to its own B. All others
 * take a gradient before the next one is made. */
TEST(buffers_are_as_many_as_it_takes)
{
    for (int i = 0; i < schedule_row_count; i++)
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            const bool wide = strcmp(schedule_rows[i].name,
                                     "breadth-first") == 0;
            struct schedule s;
            int buffers = 0;

            IS_OK(schedule_build(&s, schedule_rows[i].name, ranks, 16));
            IS_OK(schedule_lower(&s));
            IS_OK(schedule_returns(&s, &buffers));
            EQUAL_INT(buffers, wide ? 16 / ranks : 1);
            schedule_free(&s);
        }
}

TEST(a_copy_is_the_same_text)
{
    for (int i = 0; i < schedule_row_count; i++) {
        struct schedule s, copy;
        struct text a = {0}, b = {0};

        IS_OK(schedule_build(&s, schedule_rows[i].name, 4, 8));
        IS_OK(schedule_copy(&copy, &s));
        IS_OK(schedule_verify(&copy));
        IS_OK(schedule_write(&s, &a));
        IS_OK(schedule_write(&copy, &b));
        EQUAL_TEXT(a.bytes, b.bytes);
        text_free(&a);
        text_free(&b);
        schedule_free(&s);
        schedule_free(&copy);
    }
}

TEST_MAIN(frames_are_micro_batches_between_f_and_w,
          a_stage_on_two_ranks_is_counted_for_each,
          buffers_are_as_many_as_it_takes, a_copy_is_the_same_text)
