/* SPDX-License-Identifier: Apache-2.0 */
/* test_routing.c - statistics from the counts of experts' tokens. */
#include <math.h>

#include "step/routing.h"
#include "tests/test.h"

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

TEST(even_counts_are_balanced)
{
    const double table[] = {5, 5, 5, 5};
    struct routing_result r;

    routing_judge(table, 1, 4, &r);
    CHECK(r.busiest == 1 && r.mean == 1 && r.idle == 0);
    CHECK(near(r.entropy, 1));
}

/* The worst block and the mean; dense blocks count for nothing. */
TEST(skewed_counts_are_seen)
{
    const double table[] = {6, 2, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2};
    struct routing_result r;

    routing_judge(table, 3, 4, &r);
    CHECK(r.busiest == 3 && r.mean == 2 && r.idle == 2);
    const double skewed = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(4);

    CHECK(near(r.entropy, (skewed + 1) / 2));
}

TEST_MAIN(even_counts_are_balanced, skewed_counts_are_seen)
