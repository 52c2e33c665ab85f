/* SPDX-License-Identifier: Apache-2.0 */
/* test_exact_sum.c - mirrors src/step/exact_sum.c. */
#include <math.h>
#include "step/exact_sum.h"
#include "tests/test.h"

enum { COUNT = 4000 };

/* Numbers of many sizes and both signs. */
static double number(int i)
{
    const double spread = ldexp(1, (i * 37) % 90 - 45);

    return ((i * 7919) % 2003 - 1001) / 1001.0 * spread;
}

static void add_all(struct exact_sum *sum, int first, int step)
{
    for (int i = first; i < COUNT; i += step) exact_add(sum, number(i));
}

TEST(the_order_does_not_show)
{
    struct exact_sum forward = {.bad = 0}, backward = {.bad = 0},
                     parts[3] = {{.bad = 0}};

    add_all(&forward, 0, 1);
    for (int i = COUNT - 1; i >= 0; i--) exact_add(&backward, number(i));
    for (int i = 0; i < 3; i++) add_all(&parts[i], i, 3);
    exact_join(&parts[2], &parts[0]);
    exact_join(&parts[2], &parts[1]);
    CHECK(exact_value(&forward) == exact_value(&backward));
    CHECK(exact_value(&forward) == exact_value(&parts[2]));
}

TEST(sums_are_right_to_24_bits)
{
    struct exact_sum sum = {.bad = 0};
    double plain = 0, sizes = 0;

    add_all(&sum, 0, 1);
    for (int i = 0; i < COUNT; i++) {
        plain += number(i);
        sizes += fabs(number(i));
    }
    CHECK(fabs(exact_value(&sum) - plain) <= ldexp(sizes, -24));
    CHECK(plain != 0);
}

TEST(what_24_bits_hold_is_exact)
{
    struct exact_sum sum = {.bad = 0};

    exact_add(&sum, 16777215);
    exact_add(&sum, -0.25);
    exact_add(&sum, ldexp(1, -60));
    CHECK(exact_value(&sum) == 16777215 - 0.25);
    exact_add(&sum, -16777215);
    exact_add(&sum, 0.25);
    CHECK(exact_value(&sum) == ldexp(1, -60)); /* nothing was lost */
}

/* As ranks join: packed, added as float64, unpacked. */
TEST(packed_sums_add_up_exactly)
{
    struct exact_sum whole = {.bad = 0}, parts[2] = {{.bad = 0}};
    double values[2][EXACT_VALUES];

    add_all(&whole, 0, 1);
    for (int i = 0; i < 2; i++) {
        add_all(&parts[i], i, 2);
        exact_pack(&parts[i], values[i]);
    }
    for (int i = 0; i < EXACT_VALUES; i++) values[0][i] += values[1][i];
    exact_unpack(&parts[0], values[0]);
    EQUAL_BYTES(&parts[0], &whole, sizeof whole);
}

TEST(what_is_not_finite_spoils_the_sum)
{
    const double bad[] = {(double)INFINITY, (double)NAN, 1e300};

    for (int i = 0; i < ROWS(bad); i++) {
        struct exact_sum sum = {.bad = 0};

        exact_add(&sum, 1);
        exact_add(&sum, bad[i]);
        CHECK(isnan(exact_value(&sum)));
    }
}

TEST_MAIN(the_order_does_not_show, sums_are_right_to_24_bits,
          what_24_bits_hold_is_exact, packed_sums_add_up_exactly,
          what_is_not_finite_spoils_the_sum)
