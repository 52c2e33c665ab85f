/* SPDX-License-Identifier: Apache-2.0 */
/* test_sentinel.c - mirrors src/planner/sentinel.c. */
#include "planner/sentinel.h"

#include "tests/test.h"

static bool quiet(double product_s, double memory_s)
{
    const struct sentinel usual = {1e-3, 0.1};

    return sentinel_is_quiet(sentinel_slowness(
        (struct sentinel){product_s, memory_s}, usual));
}

/* Others that only stream memory are noise, although products stay fast. */
TEST(memory_that_is_slow_is_noise)
{
    CHECK(quiet(1e-3, 0.1) && quiet(1.04e-3, 0.109));
    CHECK(!quiet(1e-3, 0.12) && !quiet(1e-3, 0.085));
    CHECK(!quiet(1.06e-3, 0.1) && !quiet(0.94e-3, 0.1));
}

/* Profiles of earlier versions have no pass through memory. */
TEST(what_was_not_measured_is_not_noise)
{
    CHECK(quiet(1e-3, 0) && !quiet(1.1e-3, 0) && quiet(0, 0));
}

TEST(the_mean_is_of_what_there_is)
{
    const struct sentinel mean = sentinel_mean((struct sentinel){1, 2},
                                               (struct sentinel){3, 0});
    char text[SENTINEL_TEXT];

    CHECK(mean.product_s == 2 && mean.memory_s == 2);
    EQUAL_TEXT(sentinel_text((struct slowness){0.97, 1.31}, text),
                 "products 3% faster, memory 31% slower");
}

TEST_MAIN(memory_that_is_slow_is_noise, what_was_not_measured_is_not_noise,
          the_mean_is_of_what_there_is)
