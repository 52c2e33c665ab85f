/* SPDX-License-Identifier: Apache-2.0 */
/* test_expert_travel.c - two resources: what is waited for, and what is
 * slower. */
#include "planner/expert_travel.h"

#include <math.h>

#include "tests/test.h"

static struct machine machine;

static struct expert_travel begin(void)
{
    machine.value[M_COMPUTE_BESIDE] = 1.25;
    machine.value[M_COMM_BESIDE] = 1.5;
    return (struct expert_travel){.machine = &machine};
}

static bool near(double a, double b) { return fabs(a - b) < 1e-12; }

TEST(rows_with_nothing_beside_them_are_waited_for)
{
    struct expert_travel t = begin();
    struct under_way rows;

    expert_travel_start(&t, &rows, 0, 2);
    expert_travel_start(&t, &rows, 1, 3);
    CHECK(near(expert_travel_await(&t, &rows, 0), 2));
    CHECK(near(expert_travel_await(&t, &rows, 1), 3));
    CHECK(near(expert_travel_await(&t, &rows, 1), 0));
    CHECK(near(expert_travel_compute(&t, 7), 0));
    CHECK(near(t.now, 12));
}

/* Rows of layers travel for less than a millisecond. */
TEST(a_short_wait_counts)
{
    struct expert_travel t = begin();
    struct under_way rows;

    expert_travel_start(&t, &rows, 0, 2e-4);
    expert_travel_start(&t, &rows, 1, 1e-4);
    CHECK(near(expert_travel_await(&t, &rows, 0), 2e-4));
    CHECK(near(expert_travel_await(&t, &rows, 1), 1e-4));
    CHECK(near(t.now, 3e-4));
}

/* 2 s of messages take 3 beside work, which makes 2.4 s of 4 then. */
TEST(long_work_hides_rows_and_is_slower_beside_them)
{
    struct expert_travel t = begin();
    struct under_way rows;

    expert_travel_start(&t, &rows, 0, 2);
    CHECK(near(expert_travel_compute(&t, 4), 3 - 3 / 1.25));
    CHECK(near(expert_travel_await(&t, &rows, 0), 0));
}

/* 2 s of work take 2.5, in which 5 / 3 s of messages are sent. */
TEST(short_work_leaves_the_rest_to_wait_for)
{
    struct expert_travel t = begin();
    struct under_way rows;

    expert_travel_start(&t, &rows, 0, 4);
    CHECK(near(expert_travel_compute(&t, 2), 0.5));
    CHECK(near(expert_travel_await(&t, &rows, 0), 4 - 5 / 3.0));
}

TEST_MAIN(rows_with_nothing_beside_them_are_waited_for, a_short_wait_counts,
          long_work_hides_rows_and_is_slower_beside_them,
          short_work_leaves_the_rest_to_wait_for)
