/* SPDX-License-Identifier: Apache-2.0 */
/* test_room.c - mirrors src/base/room.c. */
#include "base/room.h"

#include <stdint.h>
#include <sys/resource.h>
#include "tests/sanitized.h"
#include "tests/test.h"

/* A limit that lies far above what any build of this test has mapped. */
static const rlim_t most = (rlim_t)1 << 46;

TEST(a_plan_beyond_the_limit_is_refused_with_both_numbers)
{
    struct rlimit before, now;

    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    /* Nothing can be tried here; the thread sanitizer has mapped more. */
    if (before.rlim_max < most || SANITIZED_THREADS) return;
    now = (struct rlimit){most, before.rlim_max};
    CHECK(setrlimit(RLIMIT_AS, &now) == 0);
    IS_OK(room_check(1 << 20));
    FAILS(room_check(most), ERR_MEMORY,
          "the plan takes 64.0 TiB beside the");
    FAILS(room_check(SIZE_MAX), ERR_MEMORY, "(ulimit -v)");
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    if (before.rlim_cur == RLIM_INFINITY) IS_OK(room_check(SIZE_MAX));
}

TEST(too_few_open_files_are_refused_with_both_numbers)
{
    struct rlimit before, now;

    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    if (before.rlim_max < 32 || before.rlim_max == RLIM_INFINITY) return;
    now = (struct rlimit){16, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
    IS_OK(room_for_files(20, "this test"));
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0);
    CHECK(now.rlim_cur == before.rlim_max); /* raised */
    FAILS(room_for_files((int64_t)before.rlim_max + 1, "this test"), ERR_IO,
          "; this test needs ");
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_MAIN(too_few_open_files_are_refused_with_both_numbers,
          a_plan_beyond_the_limit_is_refused_with_both_numbers)
