/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tile.c - small products between packed blocks of attention. */
#include "kernels/cpu/attention.h"

INLINE void block(const int vectors, const struct chains *x, const float *b,
                  float *c, const bool rows_adjacent)
{
    vector sum[BLOCK_ROWS][BLOCK_VECTORS];
    int64_t row = rows_adjacent ? 1 : x->a_row;
    int64_t step = rows_adjacent ? x->a_step : 1;
    const float *a = x->a;

    UNROLL for (int i = 0; i < BLOCK_ROWS; i++)
        UNROLL for (int v = 0; v < vectors; v++)
            sum[i][v] = vector_fill(0);
    for (int e = 0; e < x->length; e++) {
        vector right[BLOCK_VECTORS];

        UNROLL for (int v = 0; v < vectors; v++)
            right[v] = vector_load(b + v * WIDTH);
        UNROLL for (int i = 0; i < BLOCK_ROWS; i++) {
            vector left = vector_fill(a[i * row]);

            UNROLL for (int v = 0; v < vectors; v++)
                sum[i][v] = vector_fma(left, right[v], sum[i][v]);
        }
        a += step;
        b += x->b_step;
    }
    UNROLL for (int i = 0; i < BLOCK_ROWS; i++)
        UNROLL for (int v = 0; v < vectors; v++)
            vector_store(c + i * x->c_row + v * WIDTH,
                         sum[i][v] + vector_fill(0));
}

void CPU(attention_chains)(const struct chains *x, int columns)
{
    bool adjacent = x->a_row == 1;
    int j = 0;

    for (; j + BLOCK_COLUMNS <= columns; j += BLOCK_COLUMNS) {
        if (adjacent)
            block(BLOCK_VECTORS, x, x->b + j, x->c + j, true);
        else
            block(BLOCK_VECTORS, x, x->b + j, x->c + j, false);
    }
    for (; j < columns; j += WIDTH) {
        if (adjacent)
            block(1, x, x->b + j, x->c + j, true);
        else
            block(1, x, x->b + j, x->c + j, false);
    }
}

/* WIDTH rows become WIDTH columns at out, rows of BLOCK_COLUMNS. */
static void columns_pack(float *out, const float *x, int64_t stride,
                         int present, int width)
{
    int e = 0;

    if (present <= 0) {
        for (; e < width; e++)
            vector_store(out + e * BLOCK_COLUMNS, vector_fill(0));
        return;
    }
    for (; e + WIDTH <= width; e += WIDTH) {
        vector square[WIDTH];

        UNROLL for (int j = 0; j < WIDTH; j++)
            square[j] = j < present ? vector_load(x + j * stride + e)
                                    : vector_fill(0);
        vector_transpose(square);
        UNROLL for (int j = 0; j < WIDTH; j++)
            vector_store(out + (e + j) * BLOCK_COLUMNS, square[j]);
    }
    for (; e < width; e++)
        for (int j = 0; j < WIDTH; j++)
            out[e * BLOCK_COLUMNS + j] = j < present ? x[j * stride + e] : 0;
}

void CPU(attention_pack_columns)(float *out, const float *x, int64_t stride,
                                 int count, int width)
{
    for (int first = 0; first < count; first += BLOCK_COLUMNS)
        for (int j = first; j < first + BLOCK_COLUMNS; j += WIDTH)
            columns_pack(out + first * width + j - first, x + j * stride,
                         stride, count - j, width);
}

void CPU(attention_pack_rows)(float *out, const float *x, int64_t stride,
                              int64_t count, int width)
{
    int padded = attention_padded(width);
    int64_t rows = (count + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;

    for (int64_t row = 0; row < count; row++) {
        const float *from = x + row * stride;
        float *to = out + row * padded;
        int e = 0;

        for (; e + WIDTH <= width; e += WIDTH)
            vector_store(to + e, vector_load(from + e));
        for (; e < width; e++) to[e] = from[e];
        for (; e < padded; e++) to[e] = 0;
    }
    memset(out + count * padded, 0,
           (size_t)((rows - count) * padded) * sizeof(float));
}

/* ---- narrow operands ---- */

ELEMENTARY void row_widen(enum dtype dtype, float *out, const void *x,
                          int64_t count)
{
    SIMD for (int64_t i = 0; i < count; i++)
        out[i] = element_get(x, dtype, i);
}

ELEMENTARY void row_write(enum dtype dtype, void *out, const float *x,
                          int64_t count)
{
    SIMD for (int64_t i = 0; i < count; i++) element_set(out, dtype, i, x[i]);
}

const float *CPU(attention_rows)(const struct tensor *t, int64_t row, int head,
                                 int64_t count, float *copy, int64_t *stride)
{
    const int64_t width = t->shape[2];

    *stride = t->stride[0];
    if (t->dtype == DTYPE_F32) return attention_row(t, row, head);
    for (int64_t i = 0; i < count; i++)
        ELEMENT_CHOOSE(t->dtype, row_widen, copy + i * width,
                       attention_row(t, row + i, head), width);
    *stride = width;
    return copy;
}

void CPU(attention_write)(const struct tensor *t, void *row, const float *from,
                          int width)
{
    ELEMENT_CHOOSE(t->dtype, row_write, row, from, width);
}
