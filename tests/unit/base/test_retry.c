/* SPDX-License-Identifier: Apache-2.0 */
/* test_retry.c - mirrors src/base/retry.c. */
#include "base/clock.h"
#include "base/retry.h"
#include "tests/test.h"

TEST(waits_double_and_differ)
{
    int64_t sum = 0;

    for (int tries = 1; tries <= 4; tries++) {
        int different = 0;

        for (uint64_t seed = 1; seed <= 100; seed++) {
            const int64_t wait = retry_wait_ms(tries, seed);

            CHECK(wait <= 100 << tries && wait >= 50 << tries);
            EQUAL_INT(wait, retry_wait_ms(tries, seed));
            different += wait != retry_wait_ms(tries, seed + 1);
        }
        CHECK(different > 90);
        sum += 100 << tries;
    }
    EQUAL_INT(sum, 3000);
}

static status refuse(void)
{
    FAIL(ERR_IO, "the disk is away");
}

TEST(what_fails_for_a_moment_is_tried_five_times)
{
    struct retry retry = {.seed = 7};
    const int64_t began = clock_ns();
    int64_t waits = 0;
    int tries = 1;

    while (retry_again(&retry, refuse())) {
        EQUAL_TEXT(status_message(), "");
        waits += retry_wait_ms(tries++, 7);
    }
    EQUAL_INT(tries, 5);
    EQUAL_TEXT(status_message(), "the disk is away");
    CHECK((clock_ns() - began) / 1000000 >= waits);
    status_clear();
}

TEST(other_failures_stand)
{
    struct retry retry = {0};

    CHECK(!retry_again(&retry, OK) && !retry_again(&retry, ERR_FORMAT));
    EQUAL_INT(retry.tries, 0);
}

TEST_MAIN(waits_double_and_differ, what_fails_for_a_moment_is_tried_five_times,
          other_failures_stand)
