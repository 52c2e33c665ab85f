/* SPDX-License-Identifier: Apache-2.0 */
/* test_rotate.c - fast rotations equal the reference in every bit; a rotation
 * keeps lengths and products, and is its own inverse without signs. */
#include <math.h>
#include <string.h>
#include "kernels/kernels.h"
#include "tests/test.h"
#include "tests/unit/kernels/room.h"

enum { ROWS_MAX = 150, COLS_MAX = 300, ELEMENTS = ROWS_MAX * COLS_MAX };

static uint16_t x[ELEMENTS];
static float wide[ELEMENTS], want[ELEMENTS], have[ELEMENTS];
static uint16_t want16[ELEMENTS], have16[ELEMENTS];

static const struct quantize_span row_spans[] = {
    {0, 50, 0, false}, {50, 32, 0, false}, {82, 68, 0, false}};
static const struct quantize_span col_spans[] = {
    {0, 72, 0, false}, {72, 33, 0, false}, {105, 195, 0, false}};

static void numbers_fill(void)
{
    uint64_t state = 20261124;

    for (int i = 0; i < ELEMENTS; i++) {
        state = state * UINT64_C(6364136223846793005) +
                UINT64_C(1442695040888963407);
        wide[i] = ldexpf((float)(int32_t)(state >> 32) * 0x1p-31f,
                         i / 1000 % 20 - 10);
        if (i % 601 == 7) wide[i] = -0.0f;
        if (i % 6011 == 8) wide[i] = INFINITY;
        x[i] = bf16_from_f32(wide[i]);
    }
}

static struct tensor matrix(void *data, enum dtype dtype)
{
    return tensor_2d(data, dtype, ROWS_MAX, COLS_MAX);
}

/* The number of the first element that differs; NaNs are alike; -1: none. */
static int64_t first_apart(const struct tensor *a, const struct tensor *b)
{
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const double have_one = tensor_get(a, i), want_one = tensor_get(b, i);

        if (isnan(have_one) && isnan(want_one)) continue;
        if (memcmp(&have_one, &want_one, sizeof have_one) != 0) return i;
    }
    return -1;
}

static void compare_rotations(const struct kernels *table,
                              struct stream *stream)
{
    struct stream plain = {0};

    for (int k = 0; k < 8; k++) {
        struct rotate call = {
            .out = matrix(want, DTYPE_F32),
            .in = k & 1 ? matrix(wide, DTYPE_F32) : matrix(x, DTYPE_BF16),
            .rows = row_spans, .cols = col_spans, .row_spans = ROWS(row_spans),
            .col_spans = ROWS(col_spans), .columns = (k & 2) != 0,
            .signs = k & 4 ? 0x9E3779B9u : 0};
        struct tensor first = call.out, second = matrix(have, DTYPE_F32);

        IS_OK(kernels_reference_f32.rotate(&plain, &call));
        call.out = second;
        IS_OK(table->rotate(stream, &call));
        EQUAL_INT(first_apart(&second, &first), -1);
    }
}

static void compare_ways_back(const struct kernels *table,
                              struct stream *stream)
{
    static const enum scale_rule rules[] = {SCALE_GAUSS, SCALE_CEIL,
                                            SCALE_FLOOR, SCALE_NONE};
    struct stream plain = {0};

    for (int k = 0; k < 32; k++) {
        const bool narrow = (k & 1) != 0;
        const enum dtype dtype = narrow ? DTYPE_BF16 : DTYPE_F32;
        struct tensor first = matrix(narrow ? (void *)want16 : want, dtype),
                      second = matrix(narrow ? (void *)have16 : have, dtype);
        const struct tensor left =
            narrow ? matrix(x, dtype) : matrix(wide, dtype);
        struct unrotate call = {
            .out = first, .gradient = left, .x = matrix(x, DTYPE_BF16),
            .left = k & 2 ? &left : NULL, .cols = col_spans,
            .col_spans = ROWS(col_spans), .turn = (k & 4) != 0,
            .trust = (k & 8) != 0, .format = FORMAT_E2M1,
            .scale = rules[k / 8 % 4], .factor = 1.7777778f};

        IS_OK(kernels_reference_f32.unrotate(&plain, &call));
        call.out = second;
        IS_OK(table->unrotate(stream, &call));
        EQUAL_INT(first_apart(&second, &first), -1);
    }
}

TEST(fast_rows_equal_the_reference)
{
    struct threads *threads = NULL;
    struct stream stream = {0};

    IS_OK(threads_build(&threads, 3));
    stream.threads = threads;
    numbers_fill();
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels table;

        if (!room_table(&table, isa)) continue;
        compare_rotations(&table, &stream);
        compare_ways_back(&table, &stream);
    }
    threads_free(threads);
}

/* |H x| = |x|, H x . H y = x . y, and H (H x) = x, to float32. */
TEST(rotations_are_orthogonal)
{
    struct stream plain = {0};
    const struct quantize_span rows = {0, 2, 0, false},
                               cols = {0, 64, 0, false};
    float from[2 * 64], to[2 * 64];
    double dots[2] = {0}, squares[2] = {0};
    struct rotate call = {
        .out = tensor_2d(to, DTYPE_F32, 2, 64),
        .in = tensor_2d(from, DTYPE_F32, 2, 64), .rows = &rows, .cols = &cols,
        .row_spans = 1, .col_spans = 1, .signs = 0x5A9C1234u};

    numbers_fill();
    for (int i = 0; i < 2 * 64; i++) from[i] = wide[20 + i];
    for (int k = 0; k < 2; k++) {
        call.signs = k ? 0x5A9C1234u : 0;
        IS_OK(kernels_reference_f32.rotate(&plain, &call));
        dots[0] = dots[1] = squares[0] = squares[1] = 0;
        for (int i = 0; i < 64; i++) {
            dots[0] += (double)from[i] * (double)from[64 + i];
            dots[1] += (double)to[i] * (double)to[64 + i];
            squares[0] += (double)from[i] * (double)from[i];
            squares[1] += (double)to[i] * (double)to[i];
        }
        CHECK(fabs(dots[0] - dots[1]) < 1e-6 * squares[0]);
        CHECK(fabs(squares[0] - squares[1]) < 1e-6 * squares[0]);
        CHECK(fabsf(to[5] - from[5]) > 0);
    }
    float again[2 * 64];

    call.signs = 0;
    IS_OK(kernels_reference_f32.rotate(&plain, &call));
    call.in.data = to;
    call.out.data = again;
    IS_OK(kernels_reference_f32.rotate(&plain, &call));
    for (int i = 0; i < 2 * 64; i++)
        CHECK(fabsf(again[i] - from[i]) <= 4e-7f * sqrtf((float)squares[0]));
}

TEST_MAIN(fast_rows_equal_the_reference, rotations_are_orthogonal)
