/* SPDX-License-Identifier: Apache-2.0 */
/* test_calibrate.c - mirrors src/bench/calibrate.c: when a sweep ends. */
#include <unistd.h>

#include "bench/calibrate_parts.h"
#include "bench/probe.h"
#include "tests/test.h"

enum { ROWS_MOST = 16 };
static int measured[ROWS_MOST];

/* Takes a millisecond, of whatever the machine is. */
static status take_one(struct calibration *c, int row)
{
    const double before = probe_now_s();

    CHECK(c->limit > 0);
    measured[row]++;
    while (probe_now_s() - before < 1e-3) continue;
    return OK;
}

static int sweep(int rows, int least, int asked, double most, int *left)
{
    static struct calibration c;
    int count = rows;
    struct sweep s = {.rows = &count, .least = least, .asked = asked,
                      .seconds = 1, .most = most, .measure = take_one};

    memset(measured, 0, sizeof measured);
    IS_OK(calibrate_sweep(&c, &s));
    *left = s.left;
    for (int i = 0; i < ROWS_MOST; i++)
        CHECK(measured[i] == (i < count ? c.rounds : 0));
    EQUAL_INT(count + s.left, rows);
    return c.rounds;
}

/* Three rounds where there is time; else one, of the rows that nobody may leave
 * out, and none that was not measured stays in the table. */
TEST(a_sweep_ends_when_its_time_is_over)
{
    int left;

    EQUAL_INT(sweep(16, 2, 2, 3600, &left), CALIBRATE_ROUNDS);
    EQUAL_INT(left, 0);
    EQUAL_INT(sweep(16, 5, 5, 0, &left), 1);
    EQUAL_INT(left, 11);
    EQUAL_INT(sweep(4, 5, 5, 0, &left), 1);
    EQUAL_INT(left, 0);
    EQUAL_INT(sweep(16, 1, 16, 4e-3, &left), 1);
    CHECK(left >= 16 - 10 && left < 16);
}

/* All ranks together leave the last cache, but not the memory. */
TEST(a_pass_through_memory_does_not_fit_the_cache)
{
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) *
                          (size_t)sysconf(_SC_PAGESIZE);
    const long known = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t cache = known > 0 ? (size_t)known : 0;

    for (int ranks = 1; ranks <= CALIBRATE_WORKERS; ranks *= 2) {
        const size_t bytes = calibrate_stream_bytes(ranks);

        CHECK(bytes * (size_t)ranks > cache || bytes >= memory / 8 /
                                                            (size_t)ranks);
        CHECK(bytes >= CALIBRATE_FLOATS * sizeof(float));
        CHECK(bytes <= CALIBRATE_FLOATS * sizeof(float) ||
              bytes * (size_t)ranks <= memory / 8);
    }
}

TEST_MAIN(a_sweep_ends_when_its_time_is_over,
          a_pass_through_memory_does_not_fit_the_cache)
