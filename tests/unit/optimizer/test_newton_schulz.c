/* SPDX-License-Identifier: Apache-2.0 */
/* test_newton_schulz.c - mirrors src/optimizer/newton_schulz.c: the iteration
 * is that of its formula, written here with loops; a tall matrix gives what its
 * transpose gives; instruction sets and threads do not show.
 *
 * Against torch.optim.Muon: tests/unit/step/test_golden_whole.c. */
#include "optimizer/newton_schulz.h"

#include <math.h>

#include "tests/test.h"

enum { MOST = 80, STEPS = 5, ELEMENTS = 80 * 300 };

static double value(int64_t i)
{
    const uint32_t mixed = (uint32_t)(i * 7919 + 5) * 2654435761u;

    return ((double)mixed - 2147483648.0) / 2147483648.0;
}

/* out [n, m] = a [n, k] b [k, m], long double on the way. */
static void product(double *out, const double *a, const double *b, int n,
                    int k, int m)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            long double sum = 0;

            for (int l = 0; l < k; l++)
                sum += (long double)a[i * k + l] * b[l * m + j];
            out[i * m + j] = (double)sum;
        }
}

/* x [n, m], n at most m. */
static void by_loops(double *x, int n, int m)
{
    static double turned[ELEMENTS], gram[MOST * MOST], square[MOST * MOST];
    static double more[ELEMENTS];
    double norm = 0;

    for (int i = 0; i < n * m; i++) norm += x[i] * x[i];
    norm = sqrt(norm) > 1e-7 ? sqrt(norm) : 1e-7;
    for (int i = 0; i < n * m; i++) x[i] /= norm;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++) turned[j * n + i] = x[i * m + j];
        product(gram, x, turned, n, m, n);
        product(square, gram, gram, n, n, n);
        for (int i = 0; i < n * n; i++)
            square[i] = -4.7750 * gram[i] + 2.0315 * square[i];
        product(more, square, x, n, n, m);
        for (int i = 0; i < n * m; i++) x[i] = 3.4445 * x[i] + more[i];
    }
}

static struct stream stream;

static void run(enum dtype dtype, enum isa isa, void *data, int64_t rows,
                int64_t cols)
{
    struct kernels kernels;
    struct newton_schulz call = {.stream = &stream, .steps = STEPS};

    IS_OK(kernels_get(&kernels, dtype, isa));
    call.kernels = &kernels;
    call.x = tensor_2d(data, dtype, rows, cols);
    stream.scratch_bytes = kernels_scratch_bytes(&kernels, 1, 512, 512);
    IS_OK(memory_take(stream.scratch_bytes, 1, &stream.scratch));
    IS_OK(memory_take((size_t)newton_schulz_elements(rows, cols),
                      (size_t)dtype_bytes(dtype), &call.scratch));
    IS_OK(newton_schulz(&call));
    memory_free(call.scratch);
    memory_free(stream.scratch);
}

TEST(the_iteration_is_that_of_the_formula)
{
    static const int sizes[][2] = {{1, 1}, {1, 40}, {3, 3}, {7, 30},
                                   {64, 64}, {70, 290}};
    static double wanted[ELEMENTS], wide[ELEMENTS], tall[ELEMENTS];

    for (int s = 0; s < ROWS(sizes); s++) {
        const int n = sizes[s][0], m = sizes[s][1];

        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++)
                wanted[i * m + j] = wide[i * m + j] = tall[j * n + i] =
                    1e-3 * value(i * m + j);
        by_loops(wanted, n, m);
        run(DTYPE_F64, ISA_AUTO, wide, n, m);
        run(DTYPE_F64, ISA_AUTO, tall, m, n);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++) {
                CHECK(fabs(wide[i * m + j] - wanted[i * m + j]) < 1e-12);
                CHECK(fabs(tall[j * n + i] - wanted[i * m + j]) < 1e-12);
            }
    }
}

TEST(zeros_stay_zeros)
{
    double x[12] = {0};

    run(DTYPE_F64, ISA_AUTO, x, 3, 4);
    for (int i = 0; i < 12; i++) CHECK(x[i] == 0);
}

TEST(instruction_sets_do_not_show)
{
    static float first[ELEMENTS], x[ELEMENTS];
    const int n = 70, m = 290;

    for (int isa = ISA_PLAIN; isa < ISA_COUNT; isa++) {
        struct kernels kernels;

        if (kernels_get(&kernels, DTYPE_F32, (enum isa)isa) != OK) {
            status_clear();
            continue;
        }
        for (int i = 0; i < n * m; i++) x[i] = (float)value(i);
        run(DTYPE_F32, (enum isa)isa, x, n, m);
        if (isa == ISA_PLAIN) memcpy(first, x, sizeof x);
        EQUAL_BYTES(first, x, sizeof x);
    }
}

TEST_MAIN(the_iteration_is_that_of_the_formula, zeros_stay_zeros,
          instruction_sets_do_not_show)
