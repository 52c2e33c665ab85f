/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums over tokens, over leaves, and of squares. */
#include <string.h>
#include "kernels/cpu/token_sums.h"
#include "kernels/view.h"

enum { FOLD_GRAIN = 64 /* columns that a thread folds at least */ };

ELEMENTARY void row_term(enum dtype dtype, const void *context,
                         struct token_at at)
{
    const struct view *x = context;
    const void *dy = element_at(x->data, dtype,
                                at.token * x->stride + at.column);
    float *chain = at.chain;

    SIMD for (int j = 0; j < at.count; j++)
        chain[j] = chain[j] + element_get(dy, dtype, j);
}

static void sum_rows_body(void *argument, int index, int count)
{
    const struct token_sums *p = argument;
    const struct view *dy = p->context;

    ELEMENT_CHOOSE(dy->dtype, token_sums, row_term, p, index, count);
}

status CPU(sum_rows)(struct stream *stream, struct tensor sums,
                     struct tensor dy, const struct token_order *order)
{
    const struct view from = view_any(dy);
    struct token_sums p = {sums, order, &from};

    CHECK(dtype_real(from.dtype) == DTYPE_F32);
    token_sums_check(sums, from.rows, from.width, order);
    cpu_run(stream, from.rows * from.width, sum_rows_body, &p);
    return OK;
}

struct fold {
    struct view rows;
    float *out;
    int leaves, parts;
};

/* Rows first, first + step, ... (`count` of them) become their tree, in the
 * first one: neighbours, then pairs of neighbours and so on. */
static void rows_fold(float *first, int64_t stride, int count, int64_t width)
{
    for (int apart = 1; apart < count; apart *= 2)
        for (int i = 0; i + apart < count; i += 2 * apart) {
            float *left = first + i * stride;
            const float *right = left + apart * stride;

            SIMD for (int64_t j = 0; j < width; j++)
                left[j] = left[j] + right[j];
        }
}

static void fold_body(void *argument, int index, int count)
{
    const struct fold *p = argument;
    int64_t first, last, stride = p->rows.stride;
    float *rows;

    threads_split(p->rows.width, FOLD_GRAIN, index, count, &first, &last);
    rows = (float *)p->rows.data + first;
    for (int leaf = 0; leaf < p->leaves; leaf++)
        rows_fold(rows + leaf * p->parts * stride, stride, p->parts,
                  last - first);
    rows_fold(rows, p->parts * stride, p->leaves, last - first);
    for (int64_t j = 0; j < last - first; j++) p->out[first + j] = rows[j];
}

status CPU(fold)(struct stream *stream, struct tensor out, struct tensor in,
                 int leaves, int parts)
{
    struct fold p = {view_of(in, DTYPE_F32), out.data, leaves, parts};
    struct view to = view_of(out, DTYPE_F32);

    CHECK(p.rows.rows == (int64_t)leaves * parts && leaves >= 1 && parts >= 1);
    CHECK(to.rows == 1 && to.width == p.rows.width);
    cpu_run(stream, p.rows.rows * p.rows.width, fold_body, &p);
    return OK;
}

struct squares {
    struct view x;
    int64_t count; /* elements */
    float factor;
    double *sums;  /* [blocks] */
};

static double block_squares(const float *x, int64_t count)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        SIMD for (int j = 0; j < LANES; j++) {
            double value = (double)x[i + j];

            lanes[j] = __builtin_fma(value, value, lanes[j]);
        }
    }
    for (int j = 0; i + j < count; j++) {
        double value = (double)x[i + j];

        lanes[j] = __builtin_fma(value, value, lanes[j]);
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

static void run_scale(float *x, int64_t count, float factor)
{
    SIMD for (int64_t i = 0; i < count; i++) x[i] = x[i] * factor;
}

/* Elements [first, last) of the matrix as one run, scaled where they lie;
 * copied if rows are apart. */
static const float *block_of(const struct squares *p, int64_t first,
                             int64_t last, float copy[SQUARES_BLOCK])
{
    const struct view *x = &p->x;
    const bool dense = x->stride == x->width || x->rows == 1;
    int64_t count;

    for (int64_t i = first; i < last; i += count) {
        const int64_t column = dense ? 0 : i % x->width;
        float *at = (float *)x->data +
                    (dense ? i : i / x->width * x->stride + column);

        count = dense || x->width - column > last - i ? last - i
                                                      : x->width - column;
        if (p->factor != 1) run_scale(at, count, p->factor);
        if (dense) return at;
        memcpy(copy + i - first, at, sizeof(float) * (size_t)count);
    }
    return copy;
}

static void squares_body(void *argument, int index, int count)
{
    const struct squares *p = argument;
    const int64_t blocks = (p->count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    float copy[SQUARES_BLOCK];
    int64_t first, last;

    threads_split(blocks, 1, index, count, &first, &last);
    for (int64_t block = first; block < last; block++) {
        const int64_t begin = block * SQUARES_BLOCK;
        const int64_t end = begin + SQUARES_BLOCK < p->count
                                ? begin + SQUARES_BLOCK : p->count;

        p->sums[block] = block_squares(block_of(p, begin, end, copy),
                                       end - begin);
    }
}

status CPU(sum_squares)(struct stream *stream, double *sums, struct tensor x,
                        double factor)
{
    struct squares p = {.x = view_of(x, DTYPE_F32), .factor = (float)factor,
                        .sums = sums};

    p.count = p.x.rows * p.x.width;
    cpu_run(stream, p.count, squares_body, &p);
    return OK;
}

status CPU(normalize)(struct stream *stream, struct tensor x, double *sums,
                      double least)
{
    const int64_t blocks =
        (tensor_count(&x) + SQUARES_BLOCK - 1) / SQUARES_BLOCK;

    return CPU(scale)(stream, x, x, squares_factor(sums, blocks, least));
}
