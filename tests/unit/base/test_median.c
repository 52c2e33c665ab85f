/* SPDX-License-Identifier: Apache-2.0 */
/* test_median.c - mirrors src/base/median.c: no value is lost, and each stands
 * where the C library's sort has it. */
#include "base/median.h"

#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "tests/test.h"

enum { MOST = 300 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Values repeat where `kinds` is small. */
TEST(values_are_in_order)
{
    const struct random_key key = random_key_make(9, "median");
    uint64_t at = 0;

    for (int count = 0; count <= MOST; count++)
        for (int kinds = 2; kinds <= 2048; kinds *= 32) {
            double ours[MOST], theirs[MOST];

            for (int i = 0; i < count; i++)
                ours[i] = (int)(kinds * random_uniform(key, at++));
            memcpy(theirs, ours, sizeof ours);
            qsort(theirs, (size_t)count, sizeof *theirs, by_value);
            median_sort(ours, count);
            EQUAL_BYTES(ours, theirs, (size_t)count * sizeof *ours);
        }
}

TEST(the_median_is_in_the_middle)
{
    const double sorted[] = {-2, 1, 4, 10};

    CHECK(median_of(sorted, 0) == 0);
    CHECK(median_of(sorted, 1) == -2);
    CHECK(median_of(sorted, 2) == -0.5);
    CHECK(median_of(sorted, 3) == 1);
    CHECK(median_of(sorted, 4) == 2.5);
}

TEST_MAIN(values_are_in_order, the_median_is_in_the_middle)
