/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums over tokens, over leaves, and of squares. */
#include "kernels/reference/token_sums.h"
#include "kernels/view.h"

/* One column of one accumulator. */
struct column {
    token_term term;
    const void *context;
    int64_t column;
    bool started; /* `sum` holds a number that granules are added to */
    real *sum;
};

/* Adds one sequence's share: tokens [first, last) in granules. */
static void column_add(struct column *c, int64_t first, int64_t last)
{
    for (int64_t granule = first; granule < last; granule += GRANULE) {
        int64_t end = granule + GRANULE < last ? granule + GRANULE : last;
        real chain = 0;

        for (int64_t token = granule; token < end; token++)
            chain = c->term(c->context, token, c->column, chain);
        *c->sum = c->started ? *c->sum + chain : chain;
        c->started = true;
    }
}

void NAME(token_sums)(struct tensor sums, const struct token_order *order,
                      token_term term, const void *context)
{
    const int contexts = token_order_contexts(order);
    const int halves = order->context_chunks > 1 ? 2 : 1; /* of a context
                                                           * leaf */

    CHECK(sums.dtype == REAL_DTYPE && sums.stride[1] == 1);
    CHECK(sums.shape[0] ==
          (int64_t)order->leaves * contexts * order->parts);
    for (int64_t unit = 0; unit < sums.shape[0]; unit++) {
        int64_t leaf = unit / order->parts / contexts;
        int64_t part = unit % order->parts;
        int pair = (int)(unit / order->parts % contexts);
        int64_t first = token_order_part(order, part);
        int64_t last = token_order_part(order, part + 1);

        for (int64_t i = 0; i < sums.shape[1]; i++) {
            struct column column = {
                term, context, i, order->continues,
                (real *)sums.data + unit * sums.stride[0] + i};

            if (!column.started) *column.sum = 0;
            for (int64_t s = 0; s < order->sequences_per_leaf * halves; s++) {
                int64_t base =
                    (leaf * order->sequences_per_leaf + s / halves) *
                        order->length +
                    token_order_first(order, pair, (int)(s % halves));

                column_add(&column, base + first, base + last);
            }
        }
    }
}

static real row_term(const void *context, int64_t token, int64_t column,
                     real chain)
{
    const struct view *dy = context;

    return chain + ((const real *)dy->data)[token * dy->stride + column];
}

status NAME(sum_rows)(struct stream *stream, struct tensor sums,
                      struct tensor dy, const struct token_order *order)
{
    struct view rows = view_of(dy, REAL_DTYPE);

    (void)stream;
    CHECK(rows.width == sums.shape[1]);
    CHECK(rows.rows ==
          order->length * order->sequences_per_leaf * order->leaves);
    NAME(token_sums)(sums, order, row_term, &rows);
    return OK;
}

/* Row 0 of `count` rows, `step` rows apart, becomes their tree: neighbours,
 * then pairs of neighbours and so on; (0 + 1) + 2 for three. */
static void rows_fold(struct view rows, int64_t first, int64_t count,
                      int64_t step)
{
    for (int64_t apart = 1; apart < count; apart *= 2)
        for (int64_t i = 0; i + apart < count; i += 2 * apart) {
            real *left = (real *)rows.data + (first + i * step) * rows.stride;
            const real *right = left + apart * step * rows.stride;

            for (int64_t j = 0; j < rows.width; j++)
                left[j] = left[j] + right[j];
        }
}

status NAME(fold)(struct stream *stream, struct tensor out, struct tensor in,
                  int leaves, int parts)
{
    struct view rows = view_of(in, REAL_DTYPE), to = view_of(out, REAL_DTYPE);

    (void)stream;
    CHECK(rows.rows == (int64_t)leaves * parts && leaves >= 1 && parts >= 1);
    CHECK(to.rows == 1 && to.width == rows.width);
    for (int leaf = 0; leaf < leaves; leaf++)
        rows_fold(rows, (int64_t)leaf * parts, parts, 1);
    rows_fold(rows, 0, leaves, parts);
    for (int64_t j = 0; j < to.width; j++)
        ((real *)to.data)[j] = ((const real *)rows.data)[j];
    return OK;
}

/* Sum of squares of elements [first, last) of the matrix as one run. */
static double block_squares(struct view x, int64_t first, int64_t last)
{
    double lanes[LANES] = {0};

    for (int64_t i = first; i < last; i++) {
        double value = (double)((const real *)x.data)[
            i / x.width * x.stride + i % x.width];
        double *lane = &lanes[(i - first) % LANES];

        *lane = __builtin_fma(value, value, *lane);
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

status NAME(sum_squares)(struct stream *stream, double *sums, struct tensor x,
                         double factor)
{
    struct view view = view_of(x, REAL_DTYPE);
    int64_t count = view.rows * view.width;

    for (int64_t i = 0; factor != 1 && i < count; i++) {
        real *at = (real *)view.data + i / view.width * view.stride +
                   i % view.width;

        *at = *at * (real)factor;
    }
    (void)stream;
    for (int64_t first = 0; first < count; first += SQUARES_BLOCK) {
        int64_t last = first + SQUARES_BLOCK < count ? first + SQUARES_BLOCK
                                                     : count;

        sums[first / SQUARES_BLOCK] = block_squares(view, first, last);
    }
    return OK;
}

status NAME(normalize)(struct stream *stream, struct tensor x, double *sums,
                       double least)
{
    const int64_t blocks =
        (tensor_count(&x) + SQUARES_BLOCK - 1) / SQUARES_BLOCK;

    return NAME(scale)(stream, x, x, squares_factor(sums, blocks, least));
}
