/* SPDX-License-Identifier: Apache-2.0 */
/* factored.h - second moments of rows and columns (Adafactor): the numbers that
 * every back end computes alike. Shazeer and Stern 2018, arXiv:1804.04235,
 * algorithms 4 and 5. */
#ifndef LOCKSTEP_KERNELS_FACTORED_H
#define LOCKSTEP_KERNELS_FACTORED_H

#include <stdint.h>

#include "tensor/tensor.h"

/* x, a gradient, becomes the step with its rate. docs/numerics.md. */
struct factored {
    struct tensor x, weights;    /* [rows, cols] real, dense */
    struct tensor row, col;      /* moments, [rows] and [cols] real; col.data
                                  * NULL: row has one of each element */
    double *row_sums, *col_sums; /* scratch, [rows] and [cols] */
    double *blocks;              /* scratch, [SQUARES_BLOCKs of x] */
    double epsilon;              /* a mean of moments is this at least, a
                                  * moment its square */
    double fresh;                /* share of the new squares */
    double rate;                 /* relative to the weights */
};

/* A moment moves towards the mean of new squares. */
static inline double factored_moment(double old, double mean, double fresh)
{
    return old + (mean - old) * fresh;
}

/* g over the root of its second moment v. */
static inline double factored_step(double g, double v, double least)
{
    return g / __builtin_sqrt(v > least ? v : least);
}

static inline double factored_mean_root(double squares, int64_t count)
{
    return __builtin_sqrt(squares / (double)count);
}

/* A step whose root mean square is `update`, for weights whose one is `size`,
 * is multiplied by it: updates are cut at 1, weights count as 1e-3 at least. */
static inline double factored_factor(double size, double update, double rate)
{
    size = (size > 1e-3 ? size : 1e-3) * rate;
    return update > 1 ? size / update : size;
}

#endif
