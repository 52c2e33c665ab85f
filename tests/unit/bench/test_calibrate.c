/* SPDX-License-Identifier: Apache-2.0 */
/* test_calibrate.c - mirrors src/bench/calibrate.c: when a sweep ends, and
 * calibrate_pace.c: rows brought to one pace; calibrate_turns.c. */
#include <math.h>
#include <unistd.h>

#include "bench/calibrate_parts.h"
#include "bench/draw.h"
#include "bench/probe.h"
#include "kernels/math.h"
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
    arena_init(&c.arena, "a sweep", 0);
    IS_OK(calibrate_sweep(&c, &s));
    arena_free(&c.arena);
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

/* A machine that is up to twice as slow as at its best, from one row to the
 * next: rows take as long as at the mean pace, whichever moments they met. */
TEST(rows_are_brought_to_one_pace)
{
    enum { ROWS = 40 };
    const double power = 0.8;
    struct calibration c = {0};
    uint32_t state = 12345;

    arena_init(&c.arena, "paced rows", 0);
    IS_OK(pace_begin(&c, ROWS));
    for (int round = 0; round < CALIBRATE_ROUNDS; round++)
        for (int row = 0; row < ROWS; row++) {
            const double seconds = math_log(1e-3 * (1 + row));
            double pace;

            pace = math_log(2e-4) + 0.7 * (double)draw_share(&state);
            c.pace.samples[c.pace.count++] = (struct paced){
                seconds + power * (pace - math_log(3e-4)), pace, 0, false,
                false};
        }
    c.pace.usual = math_log(3e-4);
    pace_settle(&c, ROWS);
    CHECK(fabs(c.pace.follows - power) < 1e-6);
    CHECK(c.pace.rest < 1e-6);
    for (int row = 0; row < ROWS; row++)
        CHECK(fabs(pace_row(&c, row) / (1e-3 * (1 + row)) - 1) < 1e-6);
    arena_free(&c.arena);
}

/* Rounds of several threads while their cores were far from each other do not
 * count, except in a row that has no others; one thread does not mind. */
TEST(rounds_of_far_cores_do_not_count)
{
    enum { ROWS = 6, ALONE = 4, WITHOUT = 2 };
    const double near = 1e-7, far = 5e-7;
    struct calibration c = {0};

    arena_init(&c.arena, "paced rows", 0);
    IS_OK(pace_begin(&c, ROWS));
    for (int round = 0; round < CALIBRATE_ROUNDS; round++)
        for (int row = 0; row < ROWS; row++) {
            const bool is_far = row == ALONE || round > 0;
            const bool slow = is_far && row != WITHOUT;

            c.pace.samples[c.pace.count++] = (struct paced){
                math_log((slow ? 1.3e-3 : 1e-3) * (1 + row)), 0,
                is_far ? far : near, row != WITHOUT, false};
        }
    CHECK(!pace_is_far(&c, 0, ROWS)); /* nobody has seen near cores yet */
    c.pace.near_s = near;
    for (int row = 0; row < ROWS; row++)
        CHECK(pace_is_far(&c, row, ROWS) == (row == ALONE));
    pace_settle(&c, ROWS);
    CHECK(c.pace.rest < 1e-6 && c.pace.middle_s == near);
    for (int row = 0; row < ROWS; row++) {
        const double seconds = (row == ALONE ? 1.3e-3 : 1e-3) * (1 + row);

        CHECK(fabs(pace_row(&c, row) / seconds - 1) < 1e-6);
    }
    arena_free(&c.arena);
}

/* Cold operands take more places than others, with the same numbers in each. */
TEST(cold_operands_take_their_turns_far_away)
{
    enum { EACH = 96, PLACES = 9, NEAR_PLACES = 2 };
    static float data[EACH * (PLACES + 1)];
    static struct operands o;
    const struct calibration c = {
        .turning = {NEAR_PLACES * EACH + 5, PLACES * EACH, 1u << 1}};
    struct turns turns;

    o.data = data;
    o.capacity = EACH * PLACES;
    o.used = EACH;
    for (int i = 0; i < EACH; i++) data[i] = (float)i;
    o.t[0] = tensor_2d(data, DTYPE_F32, 4, 16);
    o.t[1] = tensor_2d(data + 64, DTYPE_F32, 2, 16);
    turns_begin(&c, &turns, &o);
    for (int call = 0; call < 3 * PLACES; call++) {
        const float *near = o.t[0].data, *cold = o.t[1].data;

        CHECK(near == data + call % NEAR_PLACES * EACH);
        CHECK(cold == data + call % PLACES * EACH + 64);
        CHECK(near[63] == 63 && cold[31] == 95 && o.t[2].data == NULL);
        turns_next(&turns, &o);
    }
    CHECK(data[2 * EACH] == 0 && data[PLACES * EACH] == 0); /* not written */
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

/* More than a core's own caches; all ranks together fit the last one. */
TEST(a_pass_through_the_shared_cache_stays_there)
{
    const long own = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const long last = sysconf(_SC_LEVEL3_CACHE_SIZE);

    for (int ranks = 1; ranks <= CALIBRATE_WORKERS; ranks *= 2) {
        const size_t bytes = calibrate_cache_bytes(ranks);

        CHECK(bytes == 0 || bytes > 2 * (size_t)own);
        CHECK(bytes * (size_t)ranks <= (last > 0 ? (size_t)last : 0));
    }
    if (own > 0 && last > 8 * own) CHECK(calibrate_cache_bytes(1) > 0);
}

TEST_MAIN(a_sweep_ends_when_its_time_is_over, rows_are_brought_to_one_pace,
          rounds_of_far_cores_do_not_count,
          cold_operands_take_their_turns_far_away,
          a_pass_through_the_shared_cache_stays_there,
          a_pass_through_memory_does_not_fit_the_cache)
