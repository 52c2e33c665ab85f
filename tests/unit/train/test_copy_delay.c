/* SPDX-License-Identifier: Apache-2.0 */
/* test_copy_delay.c - mirrors src/train/copy_delay.c. */
#include "train/copy_delay.h"

#include "tests/test.h"

/* Steps of a second, give or take a tenth; each other one `more` longer. */
static double found(double more, int pairs)
{
    struct copy_delay delay = {0};
    uint64_t draw = 1;

    for (int i = 0; i < 2 * pairs; i++) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        const double noise = (double)(draw >> 40) / (double)(1 << 24) - 0.5;

        copy_delay_add(&delay, 1 + 0.2 * noise + (i % 2 == 1 ? more : 0),
                       i % 2 == 1);
    }
    return copy_delay_s(&delay);
}

TEST(a_delay_is_the_median_of_pairs)
{
    CHECK(found(0.3, 16) > 0.2 && found(0.3, 16) < 0.4);
    CHECK(found(0.3, 1000) > 0.2 && found(0.3, 1000) < 0.4);
}

TEST(noise_and_few_pairs_are_no_delay)
{
    CHECK(found(0, 16) == 0);
    CHECK(found(0.3, DELAY_KNOWN - 1) == 0);
    CHECK(found(0.3, DELAY_KNOWN) > 0);
}

/* Guards against old steps: a run whose batch grows has longer ones. */
TEST(a_pair_is_of_neighbours)
{
    struct copy_delay delay = {0};

    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 9; k++)
            copy_delay_add(&delay, 1 + i, false);
        copy_delay_add(&delay, 1.5 + i, true);
    }
    CHECK(copy_delay_s(&delay) == 0.5);
    copy_delay_add(&delay, 100, true); /* without a step before it */
    CHECK(copy_delay_s(&delay) == 0.5);
}

TEST_MAIN(a_delay_is_the_median_of_pairs, noise_and_few_pairs_are_no_delay,
          a_pair_is_of_neighbours)
