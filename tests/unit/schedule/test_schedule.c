/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule.c - mirrors src/schedule/schedule.c. */
#include "schedule/schedule.h"

#include "tests/test.h"

/* Qi et al. 2023, arXiv:2401.10241, section 2: most micro-batches between F
 * and W on any rank. */
TEST(held_memory_matches_theory)
{
    static const struct { const char *name; int ranks, count, held; } rows[] =
        {{"gpipe", 4, 8, 8}, {"1f1b", 4, 8, 4}, {"zb-h1", 4, 8, 4},
         {"zb-h1", 8, 16, 8}, {"zb-h2", 4, 16, 7}, {"1f1b", 1, 5, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule s = {0};

        IS_OK(schedule_build(&s, rows[i].name, rows[i].ranks,
                                        rows[i].count));
        IS_OK(schedule_verify(&s));
        EQUAL_INT(schedule_held(&s), rows[i].held);
        schedule_free(&s);
    }
}

TEST(every_small_schedule_verifies)
{
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2"};

    for (int n = 0; n < 4; n++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int count = 1; count <= 3 * ranks; count++) {
                struct schedule s = {0};

                IS_OK(schedule_build(&s, names[n], ranks, count));
                IS_OK(schedule_verify(&s));
                schedule_free(&s);
            }
}

TEST(a_broken_schedule_is_named)
{
    struct schedule s = {0};
    struct action first;

    IS_OK(schedule_build(&s, "1f1b", 2, 3));
    first = s.lists[1].items[0];
    s.lists[1].items[0] = s.lists[1].items[1]; /* B before F */
    s.lists[1].items[1] = first;
    FAILS(schedule_verify(&s), ERR_CONFIG, "waits forever at B1.0");
    s.lists[1].items[1] = s.lists[1].items[0];
    s.lists[1].items[0] = first;
    s.lists[0].count--;
    FAILS(schedule_verify(&s), ERR_CONFIG, "W0.2 is missing");
    schedule_free(&s);
}

TEST(one_rank_fuses_b_and_w)
{
    struct schedule s = {0};
    struct text text = {0};

    IS_OK(schedule_build(&s, "1f1b", 1, 2));
    CHECK(schedule_fused(&s, 0));
    IS_OK(schedule_write(&s, &text));
    EQUAL_TEXT(text.bytes, "F0.0 B0.0+W0.0 F0.1 B0.1+W0.1\n");
    text_free(&text);
    schedule_free(&s);
    IS_OK(schedule_build(&s, "zb-h1", 2, 4));
    CHECK(!schedule_fused(&s, 1));
    schedule_free(&s);
    FAILS(schedule_build(&s, "1f2b", 1, 2), ERR_CONFIG, "nearest: 1f1b");
    schedule_free(&s);
}

TEST(a_backward_needs_its_forward_and_the_next_stage)
{
    const struct action forward = {.kind = ACTION_FORWARD, .microbatch = 1};
    const struct action backward = {.kind = ACTION_BACKWARD_INPUT,
                                    .stage = 1, .microbatch = 1};
    struct schedule s = {0};
    struct action needs[2];

    IS_OK(schedule_build(&s, "1f1b", 3, 2));
    EQUAL_INT(schedule_needs(&s, forward, needs), 0);
    EQUAL_INT(schedule_needs(&s, backward, needs), 2);
    EQUAL_INT(needs[0].kind, ACTION_FORWARD);
    EQUAL_INT(needs[1].stage, 2);
    schedule_free(&s);
}

TEST_MAIN(a_backward_needs_its_forward_and_the_next_stage,
          held_memory_matches_theory,
          every_small_schedule_verifies,
          a_broken_schedule_is_named,
          one_rank_fuses_b_and_w)
