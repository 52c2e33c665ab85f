/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads_exchange.c - mirrors src/base/threads_exchange.c. */
#include "base/threads_exchange.h"

#include "base/clock.h"
#include "tests/test.h"

TEST(one_thread_exchanges_nothing)
{
    CHECK(threads_exchange(NULL, EXCHANGE_BURSTS) == 0);
}

/* No machine passes a line on in less than a nanosecond; one that is too busy
 * to tell says so. */
TEST(a_line_takes_its_time)
{
    const int counts[] = {2, 3, threads_cores()};

    for (int i = 0; i < 3; i++) {
        struct threads *threads;
        double found;

        IS_OK(threads_build(&threads, counts[i]));
        found = threads_exchange(threads, EXCHANGE_BURSTS);
        CHECK(found == 0 || (found > 1e-9 && found < 0.1));
        threads_free(threads);
    }
}

/* More threads than cores wait for each other's turns on a core. */
TEST(threads_without_cores_give_up)
{
    struct threads *threads;
    double begun, found;

    IS_OK(threads_build(&threads, 4 * threads_cores()));
    begun = clock_s();
    found = threads_exchange(threads, EXCHANGE_BURSTS);
    CHECK(found == 0 || found < 0.1);
    CHECK(clock_s() - begun < 60);
    threads_free(threads);
}

TEST_MAIN(one_thread_exchanges_nothing, a_line_takes_its_time,
          threads_without_cores_give_up)
