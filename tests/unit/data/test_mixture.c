/* SPDX-License-Identifier: Apache-2.0 */
/* test_mixture.c - mirrors src/data/mixture.c: every sample of a source exactly
 * once and in order, shares that are kept at any time, phases. */
#include "data/mixture.h"

#include <math.h>
#include "tests/test.h"

enum { SOURCES = 5, SAMPLES = 30000 };

TEST(each_source_counts_on_without_a_gap)
{
    static const double weights[2][SOURCES] = {{0.5, 0, 0.3, 0.2, 1e-4},
                                               {0, 3, 1, 0, 4}};
    static const int64_t from[] = {0, 12345};
    int64_t next[SOURCES] = {0};
    struct mixture mixture;

    for (uint64_t seed = 1; seed <= 3; seed++) {
        memset(next, 0, sizeof next);
        IS_OK(mixture_build(&mixture, SOURCES, 2, &weights[0][0], from, seed));
        for (int64_t i = 0; i < SAMPLES; i++) {
            int64_t index;
            int source;

            if (i % 1000 == 7)
                for (int s = 0; s < SOURCES; s++)
                    EQUAL_INT(mixture_taken(&mixture, s, i), next[s]);
            mixture_at(&mixture, i, &source, &index);
            CHECK(weights[i >= from[1]][source] > 0);
            EQUAL_INT(index, next[source]);
            next[source]++;
        }
        mixture_free(&mixture);
    }
}

TEST(shares_are_kept_at_any_time)
{
    enum { MANY = 1000 };
    static double weights[MANY];
    const int64_t from = 0;
    struct mixture mixture;
    double sum = 0;

    for (int i = 0; i < MANY; i++) sum += weights[i] = 1 + i % 17;
    IS_OK(mixture_build(&mixture, MANY, 1, weights, &from, 9));
    for (int64_t at = 1; at < (int64_t)1 << 50; at *= 3) {
        int64_t total = 0;

        for (int i = 0; i < MANY; i++) {
            const int64_t taken = mixture_taken(&mixture, i, at);

            CHECK(fabs((double)taken - (double)at * weights[i] / sum) <
                  3 + 0.5 * log((double)at)); /* the golden ratio's bound */
            total += taken;
        }
        EQUAL_INT(total, at);
    }
    mixture_free(&mixture);
}

TEST(one_source_is_itself)
{
    const double weight = 0.25;
    const int64_t from = 0;
    struct mixture mixture;
    int64_t index;
    int source;

    IS_OK(mixture_build(&mixture, 1, 1, &weight, &from, 0));
    for (int64_t i = 0; i < 1000; i++) {
        mixture_at(&mixture, i * 977, &source, &index);
        EQUAL_INT(source, 0);
        EQUAL_INT(index, i * 977);
    }
    mixture_free(&mixture);
}

TEST_MAIN(each_source_counts_on_without_a_gap, shares_are_kept_at_any_time,
          one_source_is_itself)
