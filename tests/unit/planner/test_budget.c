/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c - mirrors src/planner/budget.c. */
#include "planner/budget.h"

#include <math.h>

#include "tests/test.h"

/* The overhead in percent of models of a share of the size, as the closed form
 * over the fit of arXiv:2203.15556 gives it. */
TEST(smaller_and_longer)
{
    static const double rows[][2] = {{0.8, 1.7}, {0.7, 4.5}, {0.6, 10.0},
                                     {0.5, 20.8}, {0.4, 43.7}, {0.3, 105.5},
                                     {0.25, 189}};

    for (int i = 0; i < ROWS(rows); i++) {
        double tokens, compute;

        budget_smaller(rows[i][0], &tokens, &compute);
        CHECK(fabs(100 * compute - rows[i][1]) < 0.5);
    }
    double tokens, compute;

    budget_smaller(0.05, &tokens, &compute);
    CHECK(isinf(tokens) && isinf(compute));
}

/* 5.76e23 FLOP buy 67e9 parameters and 1.4e12 tokens (Chinchilla itself). */
TEST(chinchilla)
{
    struct budget b;

    budget_from_flops(&b, 5.76e23);
    CHECK(fabs(b.parameters / 69e9 - 1) < 0.03);
    CHECK(fabs(b.tokens / 1.39e12 - 1) < 0.03);
}

TEST(repetition_is_worth_less_and_less)
{
    CHECK(budget_repeated_worth(1, 1) == 1);
    CHECK(budget_repeated_worth(1, 4) > 3.5);
    CHECK(budget_repeated_worth(1, 100) < 1 + 15.4 + 1e-9);
}

TEST_MAIN(smaller_and_longer, chinchilla, repetition_is_worth_less_and_less)
