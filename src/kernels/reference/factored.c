/* SPDX-License-Identifier: Apache-2.0 */
/* factored.c - a step by second moments of rows and columns. */
#include "kernels/factored.h"
#include "kernels/reference/real.h"

static void sum_all(const struct factored *p, int64_t rows, int64_t cols)
{
    const real *x = p->x.data;

    for (int64_t j = 0; j < cols; j++) p->col_sums[j] = 0;
    for (int64_t i = 0; i < rows; i++) {
        double lanes[LANES] = {0};

        for (int64_t j = 0; j < cols; j++) {
            const double g = (double)x[i * cols + j];

            lanes[j % LANES] += g * g;
            p->col_sums[j] += g * g;
        }
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
        p->row_sums[i] = lanes[0];
    }
}

/* Sums of squares of `count` elements each become moments. */
static void move_moments(real *moments, double *sums, int64_t n, int64_t count,
                         double fresh)
{
    for (int64_t i = 0; i < n; i++) {
        moments[i] = (real)factored_moment((double)moments[i],
                                           sums[i] / (double)count, fresh);
        sums[i] = (double)moments[i];
    }
}

static void step_matrix(const struct factored *p, int64_t rows, int64_t cols)
{
    real *x = p->x.data;
    double mean = 0;

    sum_all(p, rows, cols);
    move_moments(p->row.data, p->row_sums, rows, cols, p->fresh);
    move_moments(p->col.data, p->col_sums, cols, rows, p->fresh);
    for (int64_t i = 0; i < rows; i++) mean += p->row_sums[i];
    mean /= (double)rows;
    if (!(mean > p->epsilon)) mean = p->epsilon;
    for (int64_t j = 0; j < cols; j++) p->col_sums[j] /= mean;
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (real)factored_step(
            (double)x[i], p->row_sums[i / cols] * p->col_sums[i % cols],
            p->epsilon * p->epsilon);
}

static void step_elements(const struct factored *p, int64_t count)
{
    real *x = p->x.data, *moments = p->row.data;

    for (int64_t i = 0; i < count; i++) {
        const double g = (double)x[i];

        moments[i] =
            (real)factored_moment((double)moments[i], g * g, p->fresh);
        x[i] = (real)factored_step(g, (double)moments[i],
                                   p->epsilon * p->epsilon);
    }
}

static status mean_root(struct stream *stream, const struct factored *p,
                        struct tensor x, double *out)
{
    const int64_t count = tensor_count(&x);

    TRY(NAME(sum_squares)(stream, p->blocks, x, 1));
    *out = factored_mean_root(
        squares_sum(p->blocks, (count + SQUARES_BLOCK - 1) / SQUARES_BLOCK),
        count);
    return OK;
}

status NAME(factored)(struct stream *stream, const struct factored *p)
{
    const int64_t rows = p->x.shape[0], cols = p->x.shape[1];
    double size, update;

    CHECK(p->x.dtype == REAL_DTYPE && p->weights.dtype == REAL_DTYPE);
    if (p->col.data != NULL) step_matrix(p, rows, cols);
    else step_elements(p, rows * cols);
    TRY(mean_root(stream, p, p->weights, &size));
    TRY(mean_root(stream, p, p->x, &update));
    return NAME(scale)(stream, p->x, p->x,
                       factored_factor(size, update, p->rate));
}
