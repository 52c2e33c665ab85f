/* SPDX-License-Identifier: Apache-2.0 */
/* test_dropout.c - the fast row equals the reference in every bit; masks keep
 * the right share, and those of other seeds, sequences, positions and layers
 * have nothing to do with each other. */
#include <math.h>
#include "kernels/kernels.h"
#include "tests/test.h"

enum { ROWS_MAX = 257, WIDTH_MAX = 300, ELEMENTS = ROWS_MAX * WIDTH_MAX };

static struct dropout_row rows[ROWS_MAX];
static float x[ELEMENTS], left[ELEMENTS], want[ELEMENTS], have[ELEMENTS];
static uint16_t narrow[4][ELEMENTS];

static void rows_fill(uint64_t sequence, uint64_t site)
{
    for (uint64_t i = 0; i < ROWS_MAX; i++)
        rows[i] = (struct dropout_row){sequence + i / 16,
                                       i % 16 << 40 | site << 20};
}

static struct tensor matrix(void *data, enum dtype dtype, int64_t count,
                            int64_t width)
{
    return tensor_2d(data, dtype, count, width);
}

static struct dropout call_of(float *y, int64_t count, int64_t width,
                              double rate)
{
    return (struct dropout){
        .y = matrix(y, DTYPE_F32, count, width),
        .x = matrix(x, DTYPE_F32, count, width),
        .key = random_key_make(3, "dropout"), .rows = rows, .rate = rate};
}

static void numbers_fill(void)
{
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = 1.0f + (float)(i % 97) / 64.0f;
        left[i] = (float)(i % 31) - 15.0f;
    }
}

TEST(fast_rows_equal_the_reference)
{
    static const int64_t widths[] = {1, 15, 16, 17, 63, 64, 65, 128, 300};
    static const double rates[] = {0, 0.1, 0.5, 0.999};
    struct threads *threads = NULL;
    struct stream plain = {0}, stream = {0};

    IS_OK(threads_build(&threads, 3));
    stream.threads = threads;
    numbers_fill();
    rows_fill(40, 7);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (kernels_get(&table, DTYPE_F32, isa) != OK) {
            status_clear();
            continue;
        }
        for (int i = 0; i < 2 * ROWS(widths) * ROWS(rates); i++) {
            const int64_t width = widths[i / 2 % ROWS(widths)];
            const double rate = rates[i / 2 / ROWS(widths)];
            struct dropout call = call_of(want, ROWS_MAX, width, rate);

            if (i % 2 == 1)
                call.left = matrix(left, DTYPE_F32, ROWS_MAX, width);
            IS_OK(kernels_reference_f32.dropout(&plain, &call));
            call.y.data = have;
            IS_OK(table.dropout(&stream, &call));
            EQUAL_BYTES(want, have, (size_t)(ROWS_MAX * width) * sizeof *x);
        }
    }
    threads_free(threads);
}

/* narrow[2] is `of` rounded once. */
static void narrow_same(enum dtype dtype, const float *of)
{
    const struct tensor y = tensor_1d(narrow[2], dtype, ELEMENTS);
    const struct tensor rounded = tensor_1d(narrow[3], dtype, ELEMENTS);

    for (int64_t i = 0; i < ELEMENTS; i++)
        tensor_set(&rounded, i, (double)of[i]);
    EQUAL_BYTES(y.data, rounded.data, sizeof narrow[2]);
}

/* Rows of 16 bits are the float32 row on widened operands, rounded once. */
static void narrow_compare(enum dtype dtype)
{
    const int64_t count = ROWS_MAX * WIDTH_MAX;
    const struct tensor all[] = {tensor_1d(narrow[0], dtype, count),
                                 tensor_1d(narrow[1], dtype, count)};
    struct dropout call = call_of(want, ROWS_MAX, WIDTH_MAX, 0.2);
    struct jitter jitter = {matrix(have, DTYPE_F32, ROWS_MAX, WIDTH_MAX),
                            call.x, call.key, rows, 0.3};
    struct stream plain = {0};

    call.left = matrix(left, DTYPE_F32, ROWS_MAX, WIDTH_MAX);
    for (int64_t i = 0; i < count; i++) {
        tensor_set(&all[0], i, (double)x[i]);
        tensor_set(&all[1], i, (double)left[i]);
        x[i] = (float)tensor_get(&all[0], i);
        left[i] = (float)tensor_get(&all[1], i);
    }
    IS_OK(kernels_reference_f32.dropout(&plain, &call));
    IS_OK(kernels_reference_f32.jitter(&plain, &jitter));
    jitter.x = call.x = matrix(narrow[0], dtype, ROWS_MAX, WIDTH_MAX);
    call.left = matrix(narrow[1], dtype, ROWS_MAX, WIDTH_MAX);
    jitter.y = call.y = matrix(narrow[2], dtype, ROWS_MAX, WIDTH_MAX);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++, status_clear()) {
        struct kernels table;

        if (kernels_get(&table, dtype, isa) != OK) continue;
        IS_OK(table.dropout(&plain, &call));
        narrow_same(dtype, want);
        IS_OK(table.jitter(&plain, &jitter));
        narrow_same(dtype, have);
    }
}

TEST(narrow_rows_are_rounded_float32)
{
    numbers_fill();
    rows_fill(1, 1);
    narrow_compare(DTYPE_BF16);
    narrow_compare(DTYPE_F16);
}

/* Kept elements are 1 / (1 - rate) times what they were. */
TEST(in_place_and_scaled)
{
    struct stream plain = {0};
    struct dropout call = call_of(have, ROWS_MAX, WIDTH_MAX, 0.25);
    int kept = 0;

    numbers_fill();
    rows_fill(0, 0);
    IS_OK(kernels_reference_f32.dropout(&plain, &call));
    for (int i = 0; i < ELEMENTS; i++) {
        CHECK(have[i] == 0 || have[i] == x[i] * (float)(1 / 0.75));
        kept += have[i] != 0;
    }
    CHECK(kept > 0 && kept < ELEMENTS);
    memcpy(want, x, sizeof x);
    call.x.data = call.y.data = want;
    IS_OK(kernels_reference_f32.dropout(&plain, &call));
    EQUAL_BYTES(want, have, sizeof x);
}

/* A mask as numbers 0 and 1. */
static void mask_make(float *out, const char *name, uint64_t seed,
                      double rate)
{
    struct stream plain = {0};
    struct dropout call = call_of(out, ROWS_MAX, WIDTH_MAX, rate);

    call.key = random_key_make(seed, name);
    IS_OK(kernels_reference_f32.dropout(&plain, &call));
    for (int i = 0; i < ELEMENTS; i++) out[i] = out[i] != 0;
}

/* `count` of n draws with probability p is not six deviations off. */
static void likely(const char *what, double count, double n, double p)
{
    const double off = (count - n * p) / sqrt(n * p * (1 - p));

    if (!(fabs(off) < 6))
        print_error("%s: %g of %g, expected a share of %g\n", what, count, n,
                    p);
    CHECK(fabs(off) < 6);
}

TEST(the_share_that_is_kept)
{
    static const double rates[] = {0.001, 0.1, 0.5, 0.9};

    numbers_fill();
    rows_fill(0, 3);
    for (int r = 0; r < ROWS(rates); r++) {
        double columns[64] = {0}, sum = 0;

        mask_make(have, "dropout", 11, rates[r]);
        for (int i = 0; i < ELEMENTS; i++) {
            sum += (double)have[i];
            columns[i % WIDTH_MAX % 64] += (double)have[i];
        }
        likely("elements kept", sum, ELEMENTS, 1 - rates[r]);
        for (int c = 0; c < WIDTH_MAX % 64; c++) /* five elements a row */
            likely("kept in a lane", columns[c],
                   ROWS_MAX * (WIDTH_MAX / 64 + 1), 1 - rates[r]);
    }
    mask_make(have, "dropout", 11, 0);
    for (int i = 0; i < ELEMENTS; i++) CHECK(have[i] == 1);
}

/* Two masks agree as often as two coins do. */
static void independent(const char *what)
{
    double same = 0;

    for (int i = 0; i < ELEMENTS; i++) same += want[i] == have[i];
    likely(what, same, ELEMENTS, 0.3 * 0.3 + 0.7 * 0.7);
}

TEST(masks_of_other_places_are_independent)
{
    numbers_fill();
    rows_fill(5, 3);
    mask_make(want, "dropout", 11, 0.3);
    mask_make(have, "dropout", 12, 0.3);
    independent("another seed");
    rows_fill(5, 4);
    mask_make(have, "dropout", 11, 0.3);
    independent("another layer");
    rows_fill(5 + ROWS_MAX, 3);
    mask_make(have, "dropout", 11, 0.3);
    independent("other sequences");
    rows_fill(5 + (1ull << 32), 3);
    mask_make(have, "dropout", 11, 0.3);
    independent("sequences 2^32 later");
    rows_fill(5, 3);
    for (int i = 0; i < ROWS_MAX; i++) rows[i].high += 16ull << 40;
    mask_make(have, "dropout", 11, 0.3);
    independent("other positions");
    rows_fill(6, 3); /* what row r had, row r - 16 has now */
    mask_make(have, "dropout", 11, 0.3);
    EQUAL_BYTES(want + 16 * WIDTH_MAX, have,
                (size_t)((ROWS_MAX - 16) * WIDTH_MAX) * sizeof *have);
}

TEST_MAIN(fast_rows_equal_the_reference, narrow_rows_are_rounded_float32,
          in_place_and_scaled, the_share_that_is_kept,
          masks_of_other_places_are_independent)
