/* SPDX-License-Identifier: Apache-2.0 */
/* factored.cu - a step by second moments of rows and columns. */
#include "kernels/cuda/lanes.h"
#include "kernels/factored.h"

/* LANES threads have a row; in the blocks behind those a thread has a column,
 * whose elements are added from the first row on. */
CUDA_KERNEL(factored_sums)
{
    const int64_t row = BLOCK * BLOCK_ROWS + THREAD / LANES;
    const int64_t column = (BLOCK - p->row_blocks) * BLOCK_THREADS + THREAD;
    double sum = 0;
    SHARED(struct lanes64_shared, s);

    if (BLOCK >= p->row_blocks) {
        for (int64_t i = 0; column < p->cols && i < p->rows; i++) {
            const double g = (double)p->x[i * p->cols + column];

            sum = sum + g * g;
        }
        if (column < p->cols) p->col_sums[column] = sum;
        return;
    }
    for (int64_t j = THREAD % LANES; row < p->rows && j < p->cols; j += LANES) {
        const double g = (double)p->x[row * p->cols + j];

        sum = sum + g * g;
    }
    sum = lanes64_of_row(s, sum);
    if (row < p->rows && THREAD % LANES == 0) p->row_sums[row] = sum;
}

DEVICE void move_moments(float *moments, double *sums, int64_t n,
                         double count, double fresh)
{
    for (int64_t i = THREAD; i < n; i += BLOCK_THREADS) {
        moments[i] = (float)factored_moment((double)moments[i],
                                            sums[i] / count, fresh);
        sums[i] = (double)moments[i];
    }
}

struct mean_shared { double mean; };

/* One block. One thread adds the moments of rows in order. */
CUDA_KERNEL(factored_moments)
{
    SHARED(struct mean_shared, s);

    move_moments(p->row, p->row_sums, p->rows, (double)p->cols, p->fresh);
    move_moments(p->col, p->col_sums, p->cols, (double)p->rows, p->fresh);
    BARRIER;
    if (THREAD == 0) {
        double mean = 0;

        for (int64_t i = 0; i < p->rows; i++) mean = mean + p->row_sums[i];
        mean = mean / (double)p->rows;
        s->mean = mean > p->epsilon ? mean : p->epsilon;
    }
    BARRIER;
    for (int64_t j = THREAD; j < p->cols; j += BLOCK_THREADS)
        p->col_sums[j] = p->col_sums[j] / s->mean;
}

CUDA_KERNEL(factored_matrix)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    p->x[i] = (float)factored_step(
        (double)p->x[i], p->row_sums[i / p->cols] * p->col_sums[i % p->cols],
        p->least);
}

CUDA_KERNEL(factored_elements)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i >= p->count) return;
    const double g = (double)p->x[i];
    const float v = (float)factored_moment((double)p->moments[i], g * g,
                                           p->fresh);

    p->moments[i] = v;
    p->x[i] = (float)factored_step(g, (double)v, p->least);
}

/* One block: the size of the weights, then the factor of the step in the place
 * of the first block. */
CUDA_KERNEL(factored_rate)
{
    squares_fold(p->blocks, p->count);
    if (THREAD != 0) return;
    const double root = factored_mean_root(p->blocks[0], p->elements);

    if (p->ends) p->blocks[0] = factored_factor(*p->size, root, p->rate);
    else *p->size = root;
}
