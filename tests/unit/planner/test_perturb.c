/* SPDX-License-Identifier: Apache-2.0 */
/* test_perturb.c - mirrors src/planner/perturb.c and reliability.c. */
#include "planner/perturb.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"

/* Kokolis et al. 2024, arXiv:2410.21680: 6.5 failures in 1000 node-days give a
 * mean time between failures of 1.8 h on 16,384 GPUs and 0.23 h on 131,072. */
TEST(published_times_between_failures)
{
    const struct failures f = {0.0065, 180, 300, 1};
    struct reliability r;

    reliability_of(&r, &f, 16384 / 8);
    CHECK(fabs(r.mtbf_s / 3600 - 1.8) < 0.05);
    reliability_of(&r, &f, 131072 / 8);
    CHECK(fabs(r.mtbf_s / 3600 - 0.23) < 0.005);
}

/* The closed form holds where failures are rare beside intervals. */
TEST(played_failures_agree_with_the_closed_form)
{
    const struct failures f = {0.0065, 180, 300, 5};
    struct reliability r;

    reliability_of(&r, &f, 256);
    CHECK(fabs(r.ettr - r.simulated_ettr) < 0.005);
    CHECK(r.best_ettr >= r.ettr);
}

/* The form of first order says 2%, 32%, 0 where a run trains for 32%, 47%, 35%
 * of the time; no interval is better than the best. */
TEST(frequent_failures_are_counted_exactly)
{
    const double day = 86400. / 527;
    const struct failures rows[] = {
        {day, 500, 30, 5}, {day, 60, 600, 1}, {day, 520, 30, 5},
        {day, 20, 600, 300}, {day, 3, 1, 1e-3}, {1e-8, 3, 0, 1e-3}};
    struct reliability r, other;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct failures f = rows[i];

        reliability_of(&r, &f, 1);
        CHECK(fabs(r.exact_ettr - r.simulated_ettr) < 0.005);
        for (double share = 0.5; share < 2; share += 0.1) {
            f.interval_s = share * r.best_interval_s;
            reliability_of(&other, &f, 1);
            CHECK(r.best_ettr >= other.exact_ettr - 1e-9);
        }
    }
}

TEST(a_later_version_is_refused)
{
    static const char text[] =
        "{\"version\": 2, \"slow\": [{\"rank\": 0, \"factor\": 2}]}";
    char path[] = "/tmp/perturb-XXXXXX";
    const int file = mkstemp(path);
    struct perturb perturb;

    CHECK(write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(file);
    FAILS(perturb_read(&perturb, path, 4), ERR_FORMAT,
          "version is 2; this program reads 1");
    unlink(path);
}

TEST_MAIN(published_times_between_failures, a_later_version_is_refused,
          played_failures_agree_with_the_closed_form,
          frequent_failures_are_counted_exactly)
