/* SPDX-License-Identifier: Apache-2.0 */
/* factored.c - a step by second moments of rows and columns: threads take rows,
 * and strips of columns. */
#include "kernels/factored.h"

#include "kernels/cpu/cpu.h"

enum { STRIP = 64 }; /* columns of a thread, at least */

static double row_sum(const float *x, int64_t count)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        SIMD for (int j = 0; j < LANES; j++)
            lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < count; j++)
        lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
}

static void sums_body(void *argument, int index, int count)
{
    const struct factored *p = argument;
    const int64_t rows = p->x.shape[0], cols = p->x.shape[1];
    const float *x = p->x.data;
    double *restrict sums = p->col_sums;
    int64_t first, last;

    threads_split(rows, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        p->row_sums[i] = row_sum(x + i * cols, cols);
    threads_split(cols, STRIP, index, count, &first, &last);
    for (int64_t j = first; j < last; j++) sums[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        SIMD for (int64_t j = first; j < last; j++)
            sums[j] += (double)x[i * cols + j] * (double)x[i * cols + j];
}

/* Sums of squares of `count` elements each become moments; their sum. */
static double move_moments(float *moments, double *sums, int64_t n,
                           int64_t count, double fresh)
{
    double total = 0;

    for (int64_t i = 0; i < n; i++) {
        moments[i] = (float)factored_moment(
            (double)moments[i], sums[i] / (double)count, fresh);
        sums[i] = (double)moments[i];
        total += sums[i];
    }
    return total;
}

static void divide_body(void *argument, int index, int count)
{
    const struct factored *p = argument;
    const int64_t cols = p->x.shape[1];
    const double least = p->epsilon * p->epsilon;
    int64_t first, last;

    threads_split(p->x.shape[0], 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        float *restrict x = (float *)p->x.data + i * cols;

        SIMD for (int64_t j = 0; j < cols; j++)
            x[j] = (float)factored_step(
                (double)x[j], p->row_sums[i] * p->col_sums[j], least);
    }
}

static void elements_body(void *argument, int index, int count)
{
    const struct factored *p = argument;
    const double least = p->epsilon * p->epsilon;
    float *restrict x = p->x.data, *restrict moments = p->row.data;
    int64_t first, last;

    threads_split(tensor_count(&p->x), LANES, index, count, &first, &last);
    SIMD for (int64_t i = first; i < last; i++) {
        const double g = (double)x[i];

        moments[i] =
            (float)factored_moment((double)moments[i], g * g, p->fresh);
        x[i] = (float)factored_step(g, (double)moments[i], least);
    }
}

static void step_matrix(struct stream *stream, struct factored *p)
{
    const int64_t rows = p->x.shape[0], cols = p->x.shape[1];
    double mean;

    cpu_run(stream, rows * cols, sums_body, p);
    mean = move_moments(p->row.data, p->row_sums, rows, cols, p->fresh) /
           (double)rows;
    (void)move_moments(p->col.data, p->col_sums, cols, rows, p->fresh);
    if (!(mean > p->epsilon)) mean = p->epsilon;
    for (int64_t j = 0; j < cols; j++) p->col_sums[j] /= mean;
    cpu_run(stream, rows * cols, divide_body, p);
}

static status mean_root(struct stream *stream, const struct factored *p,
                        struct tensor x, double *out)
{
    const int64_t count = tensor_count(&x);

    TRY(CPU(sum_squares)(stream, p->blocks, x, 1));
    *out = factored_mean_root(
        squares_sum(p->blocks, (count + SQUARES_BLOCK - 1) / SQUARES_BLOCK),
        count);
    return OK;
}

status CPU(factored)(struct stream *stream, const struct factored *p)
{
    struct factored job = *p;
    double size, update;

    CHECK(p->x.dtype == DTYPE_F32 && p->weights.dtype == DTYPE_F32);
    if (p->col.data != NULL) step_matrix(stream, &job);
    else cpu_run(stream, tensor_count(&p->x), elements_body, &job);
    TRY(mean_root(stream, p, p->weights, &size));
    TRY(mean_root(stream, p, p->x, &update));
    return CPU(scale)(stream, p->x, p->x,
                      factored_factor(size, update, p->rate));
}
