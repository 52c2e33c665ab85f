/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums over tokens, over leaves, and of squares. */
#include "kernels/cpu/token_sums.h"
#include "kernels/view.h"

enum { FOLD_GRAIN = 64 /* columns that a thread folds at least */ };

struct row_sums {
    struct view dy;
    struct tensor sums;
    const struct token_order *order;
};

ELEMENTARY void row_term(const void *context, int64_t token, int64_t column,
                         int count, float *chain)
{
    const struct row_sums *p = context;
    const float *dy = (const float *)p->dy.data + token * p->dy.stride +
                      column;

    SIMD for (int j = 0; j < count; j++) chain[j] = chain[j] + dy[j];
}

static void sum_rows_body(void *argument, int index, int count)
{
    const struct row_sums *p = argument;

    token_sums(p->sums, p->order, row_term, p, index, count);
}

status CPU(sum_rows)(struct stream *stream, struct tensor sums,
                     struct tensor dy, const struct token_order *order)
{
    struct row_sums p = {view_of(dy, DTYPE_F32), sums, order};

    token_sums_check(sums, p.dy.rows, p.dy.width, order);
    cpu_run(stream, p.dy.rows * p.dy.width, sum_rows_body, &p);
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
    double *sums;  /* [blocks] */
};

static double block_squares(const float *x, int64_t count)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        SIMD for (int j = 0; j < LANES; j++)
            lanes[j] = __builtin_fma((double)x[i + j], (double)x[i + j],
                                     lanes[j]);
    }
    for (int j = 0; i + j < count; j++)
        lanes[j] = __builtin_fma((double)x[i + j], (double)x[i + j], lanes[j]);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

/* Elements [first, last) of the matrix as one run, copied if rows are apart. */
static const float *block_of(const struct view *x, int64_t first, int64_t last,
                             float *copy)
{
    const float *data = x->data;

    if (x->stride == x->width || x->rows == 1) return data + first;
    for (int64_t i = first; i < last; i++)
        copy[i - first] = data[i / x->width * x->stride + i % x->width];
    return copy;
}

static void squares_body(void *argument, int index, int count)
{
    const struct squares *p = argument;
    const int64_t blocks = (p->count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    int64_t first, last;
    float copy[SQUARES_BLOCK];

    threads_split(blocks, 1, index, count, &first, &last);
    for (int64_t block = first; block < last; block++) {
        int64_t begin = block * SQUARES_BLOCK, end = begin + SQUARES_BLOCK;

        if (end > p->count) end = p->count;
        p->sums[block] = block_squares(block_of(&p->x, begin, end, copy),
                                       end - begin);
    }
}

status CPU(sum_squares)(struct stream *stream, double *sums, struct tensor x)
{
    struct squares p = {.x = view_of(x, DTYPE_F32), .sums = sums};

    p.count = p.x.rows * p.x.width;
    cpu_run(stream, p.count, squares_body, &p);
    return OK;
}
