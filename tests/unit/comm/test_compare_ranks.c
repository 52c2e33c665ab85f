/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare_ranks.c - mirrors src/comm/compare_ranks.c: numbers and texts
 * that must be alike on all ranks. */
#include "comm/compare_ranks.h"
#include "tests/test.h"

static status same_body(void *argument, struct group *world)
{
    const uint64_t number = world->rank == *(int *)argument ? 6 : 5;

    return comm_same(world, "plan", number);
}

TEST(ranks_with_another_plan_are_named)
{
    int other = -1;

    IS_OK(ranks_run(5, same_body, &other));
    other = 3;
    FAILS(ranks_run(5, same_body, &other), ERR_CONFIG,
          "another plan (0000000000000006) than rank 0 (0000000000000005)");
    CHECK(strstr(status_message(), "rank 3:") != NULL);
}

struct texts {
    const char *common, *other;
    int rank; /* that has the other */
};

static status texts_body(void *argument, struct group *world)
{
    const struct texts *t = argument;
    const char *mine = world->rank == t->rank ? t->other : t->common;

    return comm_same_text(world, "recipe", mine, strlen(mine));
}

TEST(the_first_line_that_differs_is_shown)
{
    static const char lines[] = "flour=1\nmilk=2\neggs=3\n";
    static const struct {
        struct texts texts;
        const char *words;
    } rows[] = {
        {{lines, "flour=1\nmilk=5\neggs=4\n", 2},
         "rank 2: another recipe than rank 0: \"milk=5\" here, \"milk=2\" "
         "there"},
        {{lines, "flour=1\nmilk=2", 1}, "\"milk=2\" here, \"milk=2\" there"},
        {{lines, "flour=1\n", 1}, "\"\" here, \"milk=2\" there"},
        {{lines, "", 3}, "\"\" here, \"flour=1\" there"},
        {{"", "x", 1}, "\"x\" here, \"\" there"},
    };
    struct texts same = {lines, NULL, -1};

    IS_OK(ranks_run(4, texts_body, &same));
    IS_OK(ranks_run(1, texts_body, &same));
    for (int i = 0; i < ROWS(rows); i++) {
        struct texts t = rows[i].texts;

        FAILS(ranks_run(4, texts_body, &t), ERR_CONFIG, rows[i].words);
    }
}

TEST_MAIN(ranks_with_another_plan_are_named,
          the_first_line_that_differs_is_shown)
