/* SPDX-License-Identifier: Apache-2.0 */
/* adafactor.c - second moments of rows and columns instead of elements. Shazeer
 * and Stern 2018, arXiv:1804.04235, algorithms 4 and 5, as in PyTorch's
 * Adafactor: steps relative to the size of the weights, decay 1 - t^-0.8,
 * updates clipped to a root mean square of 1, no first moment. */
#include <math.h>

#include "kernels/math.h"
#include "optimizer/newton_schulz.h"
#include "optimizer/whole_tensors.h"

static const double DECAY_POWER = -0.8;
static const double LEAST_SCALE = 1e-3;   /* of weights: epsilon 2 */
static const double LARGEST_UPDATE = 1.0; /* root mean square: d */

enum { STRIP = 64 }; /* columns of a thread, at least */

/* A vector, and whatever has one row or column: a moment of each element. */
static bool is_flat(int64_t rows, int64_t cols)
{
    return rows == 1 || cols == 1;
}

static int64_t row_elements(int64_t rows, int64_t cols)
{
    return is_flat(rows, cols) ? rows * cols : rows;
}

static int64_t col_elements(int64_t rows, int64_t cols)
{
    return is_flat(rows, cols) ? 0 : cols;
}

/* Sums of rows and columns in float64, and blocks of squares. */
static int64_t scratch(int64_t rows, int64_t cols)
{
    const int64_t blocks = (rows * cols + SQUARES_BLOCK - 1) / SQUARES_BLOCK;

    return 2 * (param_room(rows) + param_room(cols) + param_room(blocks));
}

struct factored {
    struct tensor x;            /* [rows, cols]: gradient, then step */
    double *row_sums, *col_sums; /* [rows], [cols]; then moments */
    double *blocks;
    double least;               /* of a second moment */
    double fresh;               /* share of the new squares */
};

static inline __attribute__((always_inline)) double
get(const void *data, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F32 ? (double)((const float *)data)[i]
                              : ((const double *)data)[i];
}

static inline __attribute__((always_inline)) void
set(void *data, enum dtype dtype, int64_t i, double value)
{
    if (dtype == DTYPE_F32) ((float *)data)[i] = (float)value;
    else ((double *)data)[i] = value;
}

/* ---- sums of squares ---- */

/* Sixteen lanes, folded by 8, 4, 2, 1, as rows of kernels are. */
static inline __attribute__((always_inline)) double
row_sum(const void *x, enum dtype dtype, int64_t first, int64_t count)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const double g = get(x, dtype, first + i + j);

            lanes[j] += g * g;
        }
    for (int j = 0; i + j < count; j++) {
        const double g = get(x, dtype, first + i + j);

        lanes[j] += g * g;
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    return lanes[0];
}

static inline __attribute__((always_inline)) void
add_sums(const struct factored *f, enum dtype dtype, int index, int count)
{
    const int64_t rows = f->x.shape[0], cols = f->x.shape[1];
    int64_t first, last;

    threads_split(rows, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        f->row_sums[i] = row_sum(f->x.data, dtype, i * cols, cols);
    threads_split(cols, STRIP, index, count, &first, &last);
    for (int64_t j = first; j < last; j++) f->col_sums[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = first; j < last; j++) {
            const double g = get(f->x.data, dtype, i * cols + j);

            f->col_sums[j] += g * g;
        }
}

static void sums_body(void *argument, int index, int count)
{
    const struct factored *f = argument;

    if (f->x.dtype == DTYPE_F32) add_sums(f, DTYPE_F32, index, count);
    else add_sums(f, DTYPE_F64, index, count);
}

/* moment += (sum / count - moment) fresh; returns the sum of the moments. */
static double average(const struct factored *f, void *moment, double *sums,
                      int64_t n, int64_t count)
{
    const enum dtype dtype = f->x.dtype;
    double total = 0;

    for (int64_t i = 0; i < n; i++) {
        const double old = get(moment, dtype, i);

        set(moment, dtype, i,
            old + (sums[i] / (double)count - old) * f->fresh);
        sums[i] = get(moment, dtype, i);
        total += sums[i];
    }
    return total;
}

/* ---- the update ---- */

static inline __attribute__((always_inline)) void
divide_rows(const struct factored *f, enum dtype dtype, int index, int count)
{
    const int64_t rows = f->x.shape[0], cols = f->x.shape[1];
    int64_t first, last;

    threads_split(rows, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < cols; j++) {
            const int64_t at = i * cols + j;
            const double v = f->row_sums[i] * f->col_sums[j];

            set(f->x.data, dtype, at,
                get(f->x.data, dtype, at) /
                    sqrt(v > f->least ? v : f->least));
        }
}

static void divide_body(void *argument, int index, int count)
{
    const struct factored *f = argument;

    if (f->x.dtype == DTYPE_F32) divide_rows(f, DTYPE_F32, index, count);
    else divide_rows(f, DTYPE_F64, index, count);
}

static void step_matrix(const struct update *u, const struct whole_tensor *t,
                        struct factored *f)
{
    const int64_t rows = t->x.shape[0], cols = t->x.shape[1];
    const double floor = t->item->epsilon;
    double mean;

    threads_run(u->stream->threads, sums_body, f);
    mean = average(f, t->states[0], f->row_sums, rows, cols) / (double)rows;
    average(f, t->states[1], f->col_sums, cols, rows);
    if (!(mean > floor)) mean = floor;
    for (int64_t j = 0; j < cols; j++) f->col_sums[j] /= mean;
    threads_run(u->stream->threads, divide_body, f);
}

static void step_vector(const struct whole_tensor *t,
                        const struct factored *f)
{
    const enum dtype dtype = t->x.dtype;
    const int64_t n = tensor_count(&t->x);

    for (int64_t i = 0; i < n; i++) {
        const double g = get(t->x.data, dtype, i);
        const double old = get(t->states[0], dtype, i);
        double v;

        set(t->states[0], dtype, i, old + (g * g - old) * f->fresh);
        v = get(t->states[0], dtype, i);
        set(t->x.data, dtype, i, g / sqrt(v > f->least ? v : f->least));
    }
}

/* Root of the mean square. */
static status mean_square(const struct update *u, struct tensor x,
                          double *blocks, double *out)
{
    double sum;

    TRY(matrix_squares(u->real, u->stream, x, blocks, &sum));
    *out = sqrt(sum / (double)tensor_count(&x));
    return OK;
}

static status compute(const struct update *u, const struct whole_tensor *t)
{
    const int64_t rows = t->x.shape[0], cols = t->x.shape[1];
    const double root = 1 / sqrt((double)t->item->t);
    struct factored f = {
        .x = t->x, .row_sums = t->scratch,
        .least = t->item->epsilon * t->item->epsilon,
        .fresh = math_pow((double)t->item->t, DECAY_POWER)};
    const struct tensor flat =
        tensor_1d(t->x.data, t->x.dtype, tensor_count(&t->x));
    double size, update;

    f.col_sums = f.row_sums + param_room(rows);
    f.blocks = f.col_sums + param_room(cols);
    if (is_flat(rows, cols)) step_vector(t, &f);
    else step_matrix(u, t, &f);
    TRY(mean_square(u, t->weights, f.blocks, &size));
    TRY(mean_square(u, t->x, f.blocks, &update));
    if (!(size > LEAST_SCALE)) size = LEAST_SCALE;
    size *= t->item->lr < root ? t->item->lr : root;
    update /= LARGEST_UPDATE;
    return u->real->scale(u->stream, flat, flat,
                          update > 1 ? size / update : size);
}

/* The step has its rate already. */
static void finish(const struct update *u, const struct update_item *item,
                   const struct matrix *matrix, struct descent *out)
{
    (void)u;
    (void)item;
    (void)matrix;
    out->rate = 1;
}

static const struct whole_kind whole = {
    .weights = true, .host = true, .scratch = scratch, .compute = compute,
    .finish = finish};

const struct optimizer_kind optimizer_adafactor = {
    .name = "adafactor",
    .doc = "second moments of rows and columns; no first moment",
    .states = {{.name = "row", .title = "second moments of rows",
                .shape = STATE_WHOLE, .elements = row_elements},
               {.name = "col", .title = "second moments of columns",
                .shape = STATE_WHOLE, .elements = col_elements}},
    .rates = RATES_NONE, .whole = &whole};
