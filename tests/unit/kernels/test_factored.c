/* SPDX-License-Identifier: Apache-2.0 */
/* test_factored.c - mirrors src/kernels/factored.h: every instruction set gives
 * the bits of the reference, and the reference what the formulas say. */
#include "kernels/factored.h"

#include <math.h>

#include "kernels/kernels.h"
#include "tests/test.h"

enum { MOST = 40000, SIDE = 5000, THREADS = 3 };

struct arrays {
    float x[MOST], weights[MOST], row[MOST], col[SIDE];
    double row_sums[SIDE], col_sums[SIDE], blocks[SIDE];
};

static float value(int array, int i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + array * 104729 + 5) *
                           2654435761u;

    return (float)(((double)mixed - 2147483648.0) / 2147483648.0) /
           (float)(1 + mixed % 97);
}

static void fill(struct arrays *a, double scale)
{
    for (int i = 0; i < MOST; i++) {
        a->x[i] = i % 11 == 0 ? 0 : value(0, i);
        a->weights[i] = (float)scale * value(1, i);
        a->row[i] = value(2, i) * value(2, i);
    }
    for (int i = 0; i < SIDE; i++) a->col[i] = value(3, i) * value(3, i);
}

/* Two steps, of which the second finds the moments of the first. */
static void run(const struct kernels *k, struct stream *stream,
                struct arrays *a, const int64_t shape[2])
{
    const int64_t rows = shape[0], cols = shape[1];
    const bool flat = rows == 1 || cols == 1;
    struct factored p = {
        .x = tensor_2d(a->x, DTYPE_F32, rows, cols),
        .weights = tensor_2d(a->weights, DTYPE_F32, rows, cols),
        .row = tensor_1d(a->row, DTYPE_F32, flat ? rows * cols : rows),
        .row_sums = a->row_sums, .col_sums = a->col_sums,
        .blocks = a->blocks, .epsilon = 1e-8, .fresh = 0.57, .rate = 0.01};

    if (!flat) p.col = tensor_1d(a->col, DTYPE_F32, cols);
    for (int i = 0; i < 2; i++) IS_OK(k->factored(stream, &p));
}

static void compare(enum isa isa, double scale)
{
    static const int64_t shapes[][2] = {
        {1, 1},   {1, 1500}, {700, 1},   {2, 2},    {3, 4999}, {4999, 3},
        {17, 33}, {64, 300}, {129, 257}, {200, 200}};
    static struct arrays wanted, found;
    struct kernels table;
    struct stream alone = {0}, stream = {0};

    if (kernels_get(&table, DTYPE_F32, isa) != OK) {
        status_clear();
        return;
    }
    IS_OK(threads_build(&stream.threads, THREADS));
    for (int s = 0; s < ROWS(shapes); s++) {
        fill(&wanted, scale);
        fill(&found, scale);
        run(&kernels_reference_f32, &alone, &wanted, shapes[s]);
        run(&table, &stream, &found, shapes[s]);
        EQUAL_BYTES(wanted.x, found.x, sizeof wanted.x);
        EQUAL_BYTES(wanted.weights, found.weights, sizeof wanted.weights);
        EQUAL_BYTES(wanted.row, found.row, sizeof wanted.row);
        EQUAL_BYTES(wanted.col, found.col, sizeof wanted.col);
    }
    threads_free(stream.threads);
}

/* Weights count as they are, or as the least size. */
TEST(instruction_sets_have_the_bits_of_the_reference)
{
    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        compare((enum isa)isa, 1);
        compare((enum isa)isa, 1e-6);
    }
}

/* From moments of zero with fresh 1: r and c are means of squares. */
TEST(formula)
{
    double x[4] = {3, -4, 1, 2}, weights[4] = {0.5, 0.5, -0.5, 0.5};
    double row[2] = {0, 0}, col[2] = {0, 0}, sums[2][2], blocks[1];
    const double r[2] = {12.5, 2.5}, c[2] = {5, 10}, mean = 7.5;
    struct stream stream = {0};
    const struct factored p = {
        .x = tensor_2d(x, DTYPE_F64, 2, 2),
        .weights = tensor_2d(weights, DTYPE_F64, 2, 2),
        .row = tensor_1d(row, DTYPE_F64, 2),
        .col = tensor_1d(col, DTYPE_F64, 2), .row_sums = sums[0],
        .col_sums = sums[1], .blocks = blocks, .epsilon = 1e-8, .fresh = 1,
        .rate = 0.1};
    double step[4], squares = 0;

    for (int i = 0; i < 4; i++) {
        step[i] = x[i] / sqrt(r[i / 2] * c[i % 2] / mean);
        squares += step[i] * step[i];
    }
    IS_OK(kernels_reference_f64.factored(&stream, &p));
    for (int i = 0; i < 2; i++)
        CHECK(fabs(row[i] - r[i]) < 1e-12 && fabs(col[i] - c[i]) < 1e-12);
    for (int i = 0; i < 4; i++) {
        const double root = sqrt(squares / 4);
        const double factor = 0.5 * 0.1 / (root > 1 ? root : 1);

        CHECK(fabs(x[i] - step[i] * factor) < 1e-12);
    }
}

TEST_MAIN(instruction_sets_have_the_bits_of_the_reference, formula)
