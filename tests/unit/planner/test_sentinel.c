/* SPDX-License-Identifier: Apache-2.0 */
/* test_sentinel.c - mirrors src/planner/sentinel.c. */
#include "planner/sentinel.h"

#include "tests/test.h"

static bool quiet(double product_s, double cache_s, double memory_s)
{
    const struct sentinel usual = {1e-3, 0.01, 0.1, 0};

    return sentinel_is_quiet(sentinel_slowness(
        (struct sentinel){product_s, cache_s, memory_s, 0}, usual));
}

/* Others that only stream memory are noise, although products stay fast. */
TEST(memory_that_is_slow_is_noise)
{
    CHECK(quiet(1e-3, 0.01, 0.1) && quiet(1.04e-3, 0.0095, 0.109));
    CHECK(!quiet(1e-3, 0.01, 0.12) && !quiet(1e-3, 0.01, 0.085));
    CHECK(!quiet(1.06e-3, 0.01, 0.1) && !quiet(0.94e-3, 0.01, 0.1));
}

/* Others that fill the cache that cores share. */
TEST(a_shared_cache_that_is_slow_is_noise)
{
    CHECK(quiet(1e-3, 0.0114, 0.1));
    CHECK(!quiet(1e-3, 0.0116, 0.1) && !quiet(1e-3, 0.0086, 0.1));
}

/* Profiles of earlier versions have no passes. */
TEST(what_was_not_measured_is_not_noise)
{
    CHECK(quiet(1e-3, 0, 0) && !quiet(1.1e-3, 0, 0) && quiet(0, 0, 0));
}

/* A host that moved the cores apart: threads of a rank wait for each other. */
TEST(cores_that_are_far_from_each_other_are_noise)
{
    const struct sentinel near = {1e-3, 0.01, 0.1, 1e-7};
    const struct sentinel far = {1e-3, 0.01, 0.1, 5e-7};
    const struct sentinel no = {1e-3, 0.01, 0.1, 0}; /* of older profiles */
    struct moments m = {.before = near, .after = far};

    CHECK(!sentinel_is_quiet(sentinel_slowness(far, near)));
    CHECK(!sentinel_is_quiet(sentinel_slowness(near, far)));
    CHECK(sentinel_is_quiet(sentinel_slowness(far, far)));
    CHECK(sentinel_is_quiet(sentinel_slowness(far, no)));
    CHECK(!moments_are_quiet(&m));
    m.pace = (struct pace){1e-3, 1, 1, 0.01, 1.2e-7};
    CHECK(moments_are_quiet(&m)); /* each row has a round of near cores */
    CHECK(moments_usual(&m).exchange_s == 1.2e-7);
    m.pace.exchange_s = 4e-7;
    CHECK(!moments_are_quiet(&m));
    m.before = far; /* all the time */
    CHECK(moments_are_quiet(&m));
}

TEST(the_mean_is_of_what_there_is)
{
    const struct moments m = {.before = {1, 5, 2, 0}, .after = {3, 7, 0, 0}};
    const struct sentinel mean = moments_usual(&m);
    char text[SENTINEL_TEXT];

    CHECK(mean.product_s == 2 && mean.cache_s == 6 && mean.memory_s == 2);
    EQUAL_TEXT(sentinel_text((struct slowness){0.97, 1.08, 1.31, 4.9}, text),
                 "products 3% faster, shared cache 8% slower, "
                 "memory 31% slower, exchange between cores 390% slower");
}

/* A profile may say that anything took any time. */
TEST(times_of_a_file_do_not_leave_the_text)
{
    const struct moments m = {.before = {1e-300, 1e-300, 1e-300, 1e-300},
                              .after = {1, 1, 1, 1}};
    char text[SENTINEL_NOISE + 8];

    memset(text, '#', sizeof text);
    moments_noise(&m, text);
    CHECK(memchr(text, '\0', SENTINEL_NOISE) != NULL);
    CHECK(memcmp(text + SENTINEL_NOISE, "########", 8) == 0);
    CHECK(strstr(text, "cores 1000000000% slower") != NULL);
}

/* Products of a profile whose rows were brought to one pace may be timed while
 * it wanders, but not so that rounds differ. */
TEST(a_pace_that_is_known_is_no_noise)
{
    struct moments m = {.before = {1e-3, 0.01, 0.1, 0},
                        .after = {1.44e-3, 0.012, 0.1, 0}};
    char text[SENTINEL_NOISE];

    CHECK(!moments_are_quiet(&m));
    m.pace = (struct pace){1.2e-3, 0.9, 0.5, 0.04, 0};
    CHECK(moments_are_quiet(&m));
    CHECK(moments_usual(&m).product_s == 1.2e-3);
    m.after.cache_s = 0.014; /* 1.2 would be the pace's */
    CHECK(!moments_are_quiet(&m));
    m.after.cache_s = 0.012;
    m.pace.rest = 0.2;
    CHECK(!moments_are_quiet(&m));
    moments_noise(&m, text);
    EQUAL_TEXT(text, "the machine was measured in a noisy minute: products "
                     "measured again differed by 20%");
    m.after.memory_s = 0.2;
    moments_noise(&m, text);
    CHECK(strstr(text, "memory 100% slower") != NULL);
}

TEST_MAIN(times_of_a_file_do_not_leave_the_text,
          a_shared_cache_that_is_slow_is_noise,
          a_pace_that_is_known_is_no_noise, memory_that_is_slow_is_noise,
          what_was_not_measured_is_not_noise,
          cores_that_are_far_from_each_other_are_noise,
          the_mean_is_of_what_there_is)
