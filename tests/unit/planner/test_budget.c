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

/* The same paper, table 3: FLOPs, parameters and tokens of best models, with
 * two or three digits. */
TEST(chinchilla_of_every_size)
{
    static const double rows[][3] = {
        {1.92e19, 4e8, 8.0e9},     {1.21e20, 1e9, 20.2e9},
        {1.23e22, 1e10, 205.1e9},  {5.76e23, 67e9, 1.5e12},
        {3.85e24, 175e9, 3.7e12},  {9.90e24, 280e9, 5.9e12},
        {3.43e25, 520e9, 11.0e12}, {1.27e26, 1e12, 21.2e12},
        {1.30e28, 1e13, 216.2e12}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct budget b;

        budget_from_flops(&b, rows[i][0]);
        CHECK(fabs(b.parameters / rows[i][1] - 1) < 0.05);
        CHECK(fabs(b.tokens / rows[i][2] - 1) < 0.08);
        budget_from_tokens(&b, rows[i][2]);
        CHECK(fabs(b.parameters / rows[i][1] - 1) < 0.12);
    }
}

TEST(repetition_is_worth_less_and_less)
{
    CHECK(budget_repeated_worth(1, 1) == 1);
    CHECK(budget_repeated_worth(1, 4) > 3.5);
    CHECK(budget_repeated_worth(1, 100) < 1 + 15.4 + 1e-9);
}

TEST_MAIN(smaller_and_longer, chinchilla, chinchilla_of_every_size,
          repetition_is_worth_less_and_less)
