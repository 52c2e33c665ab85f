/* SPDX-License-Identifier: Apache-2.0 */
/* test_tally.c - mirrors src/step/tally.c. */
#include <math.h>
#include "tests/test.h"
#include "step/tally.h"

enum { COUNT = 70000, THREADS = 5 };

static float values[COUNT], before[COUNT];
static struct tally tally, other, room[THREADS];

static void fill(void)
{
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)((i * 7919) % 20011 - 10005) / 5000.0f;
        before[i] = values[i] - 1e-3f * (float)(i % 7);
    }
}

static void add(struct tally *to, int64_t first, int64_t last,
                struct threads *threads, bool less)
{
    const struct tally_of of = {.dtype = DTYPE_F32, .data = values + first,
                                .less = less ? before + first : NULL,
                                .count = last - first, .histogram = true};

    tally_add(to, &of, threads, room);
}

TEST(neither_threads_nor_parts_show)
{
    struct threads *threads;

    fill();
    tally_reset(&tally);
    tally_reset(&other);
    IS_OK(threads_build(&threads, THREADS));
    add(&tally, 0, COUNT, threads, false);
    add(&other, 40001, COUNT, NULL, false);
    add(&other, 0, 40001, threads, false);
    EQUAL_BYTES(&tally, &other, sizeof tally);
    EQUAL_INT(tally.count, COUNT);
    threads_free(threads);
}

TEST(norms_extremes_and_buckets_are_right)
{
    double squares = 0, sum = 0;
    int64_t counted = 0, small = 0;

    fill();
    values[5] = 0;
    tally_reset(&tally);
    add(&tally, 0, COUNT, NULL, false);
    for (int i = 0; i < COUNT; i++) {
        squares += (double)values[i] * (double)values[i];
        sum += (double)values[i];
        small += values[i] == 0;
    }
    CHECK(fabs(tally_norm(&tally) - sqrt(squares)) < 1e-6 * sqrt(squares));
    CHECK(fabs(exact_value(&tally.sum) - sum) < 1e-6 * COUNT);
    CHECK(tally.least == (double)-2.001f && tally.greatest == (double)2.001f);
    for (int i = 0; i < TALLY_BUCKETS; i++) counted += tally.buckets[i];
    EQUAL_INT(counted, COUNT);
    EQUAL_INT(tally.buckets[TALLY_SIDE], small);
}

/* Each value lies in the bucket whose edges are around it. */
TEST(edges_are_around_their_values)
{
    const double probes[] = {1, 1.25, 1.5, 1.75, -1, -1.4, -1.5, 3e-9, -3e-9,
                             1e-30, 0, 1e30, -1e30, 1023.5};

    for (int i = 1; i < TALLY_BUCKETS; i++)
        CHECK(tally_edge(i - 1) < tally_edge(i));
    for (int i = 0; i < ROWS(probes); i++) {
        const struct tally_of of = {.dtype = DTYPE_F64, .data = &probes[i],
                                    .count = 1, .histogram = true};
        int bucket = 0;

        tally_reset(&tally);
        tally_add(&tally, &of, NULL, room);
        while (tally.buckets[bucket] == 0) bucket++;
        CHECK(probes[i] <= tally_edge(bucket));
        CHECK(bucket == 0 || probes[i] >= tally_edge(bucket - 1));
    }
}

TEST(differences_are_of_the_values)
{
    double squares = 0;

    fill();
    tally_reset(&tally);
    add(&tally, 0, COUNT, NULL, true);
    for (int i = 0; i < COUNT; i++) {
        const double d = (double)values[i] - (double)before[i];

        squares += d * d;
    }
    CHECK(fabs(tally_norm(&tally) - sqrt(squares)) < 1e-6 * sqrt(squares));
}

TEST(narrow_types_are_widened)
{
    const uint16_t half[] = {0x3F80, 0xC000}; /* bfloat16: 1, -2 */
    const struct tally_of of = {.dtype = DTYPE_BF16, .data = half, .count = 2,
                                .histogram = true};

    tally_reset(&tally);
    tally_add(&tally, &of, NULL, room);
    CHECK(tally_norm(&tally) == sqrt(5));
    CHECK(tally.least == -2 && tally.greatest == 1);
}

TEST_MAIN(neither_threads_nor_parts_show, norms_extremes_and_buckets_are_right,
          edges_are_around_their_values, differences_are_of_the_values,
          narrow_types_are_widened)
