/* SPDX-License-Identifier: Apache-2.0 */
/* adafactor.c - second moments of rows and columns instead of elements. Shazeer
 * and Stern 2018, arXiv:1804.04235, algorithms 4 and 5, as in PyTorch's
 * Adafactor: steps relative to the size of the weights, decay 1 - t^-0.8,
 * updates clipped to a root mean square of 1, no first moment. */
#include <math.h>

#include "kernels/factored.h"
#include "kernels/math.h"
#include "optimizer/whole_tensors.h"

static const double DECAY_POWER = -0.8;

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

static status compute(const struct update *u, const struct whole_tensor *t)
{
    const int64_t rows = t->x.shape[0], cols = t->x.shape[1];
    const double root = 1 / sqrt((double)t->item->t), lr = t->item->lr;
    struct factored call = {
        .x = t->x, .weights = t->weights, .row_sums = t->scratch,
        .row = tensor_1d(t->states[0], t->x.dtype, row_elements(rows, cols)),
        .epsilon = t->item->epsilon, .rate = lr < root ? lr : root,
        .fresh = math_pow((double)t->item->t, DECAY_POWER)};

    if (!is_flat(rows, cols))
        call.col = tensor_1d(t->states[1], t->x.dtype, cols);
    call.col_sums = call.row_sums + param_room(rows);
    call.blocks = call.col_sums + param_room(cols);
    return u->real->factored(u->stream, &call);
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
    .weights = true, .scratch = scratch, .compute = compute, .finish = finish};

const struct optimizer_kind optimizer_adafactor = {
    .name = "adafactor",
    .doc = "second moments of rows and columns; no first moment",
    .states = {{.name = "row", .title = "second moments of rows",
                .shape = STATE_WHOLE, .elements = row_elements},
               {.name = "col", .title = "second moments of columns",
                .shape = STATE_WHOLE, .elements = col_elements}},
    .rates = RATES_NONE, .whole = &whole};
