/* SPDX-License-Identifier: Apache-2.0 */
/* test_ettr.c - mirrors src/planner/ettr.c: the rows of tests/golden/ettr.csv,
 * which a Python program computed, and published figures. */
#include "planner/ettr.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "tests/test.h"

enum { COLUMNS = 8, RANKS = 0, DAY, RESTART, INTERVAL, STALL, CLOSED, EXACT,
       PLAYED };

static const struct failures *failures_of(int row)
{
    if (row < ettr_published_count) return &ettr_published[row].failures;
    return &ettr_ways[(row - ettr_published_count) / ettr_size_count].failures;
}

static int ranks_of(int row)
{
    if (row < ettr_published_count) return ettr_published[row].ranks;
    return ettr_sizes[(row - ettr_published_count) % ettr_size_count];
}

static void check_row(int row, const double v[COLUMNS])
{
    const struct failures *f = failures_of(row);
    struct reliability r;

    CHECK(ranks_of(row) == (int)v[RANKS]);
    CHECK(fabs(f->per_node_day / v[DAY] - 1) < 1e-9);
    CHECK(f->restart_s == v[RESTART] && f->interval_s == v[INTERVAL]);
    CHECK(f->stall_s == v[STALL]);
    ettr_predict(&r, f, ranks_of(row), ETTR_PER_NODE);
    CHECK(fabs(r.ettr - v[CLOSED]) < 1e-9);
    CHECK(fabs(r.exact_ettr - v[EXACT]) < 1e-9);
    CHECK(fabs(r.simulated_ettr - v[PLAYED]) < 0.006);
    CHECK(fabs(r.simulated_ettr - v[EXACT]) < 0.004);
}

TEST(predictions_are_those_of_another_program)
{
    struct text text = {0};
    const char *at;
    int row = 0;

    IS_OK(file_read_regular("tests/golden/ettr.csv", 1 << 16, &text));
    at = strchr(text.bytes, '\n') + 1;
    for (; *at != '\0'; row++) {
        double v[COLUMNS];

        for (int i = 0; i < COLUMNS; i++) {
            char *end;

            v[i] = strtod(at, &end);
            CHECK(*end == (i + 1 < COLUMNS ? ',' : '\n'));
            at = end + 1;
        }
        check_row(row, v);
    }
    CHECK(row == ettr_published_count + ettr_way_count * ettr_size_count);
    text_free(&text);
}

TEST(published_figures_are_met_within_two_points)
{
    for (int i = 0; i < ettr_published_count; i++) {
        const struct ettr_published *p = &ettr_published[i];
        struct reliability r;

        ettr_predict(&r, &p->failures, p->ranks, ETTR_PER_NODE);
        if (!p->at_least) CHECK(fabs(r.simulated_ettr - p->ettr) < 0.02);
        else CHECK(r.simulated_ettr > p->ettr - 0.02);
    }
}

/* Rates without end give no share at all, not NaN. */
TEST(absurd_rates_train_nothing)
{
    const struct failures f = {1000, 1e6, 1e7, 1e6};
    struct reliability r;

    ettr_predict(&r, &f, 131072, 1);
    CHECK(r.ettr == 0 && r.simulated_ettr == 0 && r.exact_ettr == 0);
}

TEST_MAIN(predictions_are_those_of_another_program,
          published_figures_are_met_within_two_points,
          absurd_rates_train_nothing)
