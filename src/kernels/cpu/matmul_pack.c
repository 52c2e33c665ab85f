/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_pack.c - copies operands into the order in which tiles read them.
 *
 * Where rows of the copy are contiguous in memory they are copied; else
 * squares of WIDTH are transposed in registers. Panels that are narrower than a
 * vector are written with whole vectors in ascending order: what spills into
 * the next row is overwritten by it. */
#include "kernels/cpu/matmul.h"

/* Row `row` of the copy, elements [column, column + WIDTH). */
INLINE void pack_store(float *out, const int width, int row, int column,
                       vector x)
{
    float *to = out + row * width + column;

    if (column + WIDTH <= width || width < WIDTH)
        vector_store(to, x);
    else
        memcpy(to, &x, sizeof(float) * (size_t)(width % WIDTH));
}

/* The contracted dimension is contiguous in memory. */
INLINE void pack_transposed(float *out, const int width, const float *from,
                            int64_t stride, int count, int length)
{
    for (int column = 0; column < width; column += WIDTH) {
        const float *source = from + column * stride;
        int present = count - column, e = 0;

        for (; e + WIDTH <= length; e += WIDTH) {
            vector square[WIDTH];

            if (present >= WIDTH) {
                UNROLL for (int j = 0; j < WIDTH; j++)
                    square[j] = vector_load(source + j * stride + e);
            } else {
                UNROLL for (int j = 0; j < WIDTH; j++)
                    square[j] = j < present
                                    ? vector_load(source + j * stride + e)
                                    : vector_fill(0);
            }
            vector_transpose(square);
            UNROLL for (int j = 0; j < WIDTH; j++)
                pack_store(out, width, e + j, column, square[j]);
        }
        for (; e < length; e++)
            for (int j = column; j < width && j < column + WIDTH; j++)
                out[e * width + j] = j < count ? from[j * stride + e] : 0;
    }
}

/* A row of the copy is contiguous in memory. */
INLINE void pack_straight(float *out, const int width, const float *from,
                          int64_t step, int count, int length)
{
    if (count == width) {
        for (int e = 0; e < length; e++)
            memcpy(out + e * width, from + e * step,
                   sizeof(float) * (size_t)width);
        return;
    }
    for (int e = 0; e < length; e++)
        for (int j = 0; j < width; j++)
            out[e * width + j] = j < count ? from[e * step + j] : 0;
}

INLINE void pack(float *out, const int width, const float *from,
                 int64_t stride, int64_t step, int count,
                 const struct matmul_chunk *chunk)
{
    for (int i = 0; i < chunk->count; i++) {
        const struct matmul_step *s = &chunk->steps[i];
        float *to = out + (int64_t)s->offset * width;

        if (stride == 1)
            pack_straight(to, width, from + s->first * step, step, count,
                          s->length);
        else
            pack_transposed(to, width, from + s->first, stride, count,
                            s->length);
    }
}

/* TILE_ROWS elements of one panel, `count` of them from memory. */
static void column_straight(float *to, const float *source, int count)
{
    if (count >= TILE_ROWS) {
        memcpy(to, source, sizeof(float) * TILE_ROWS);
        return;
    }
    for (int j = 0; j < TILE_ROWS; j++) to[j] = j < count ? source[j] : 0;
}

/* Rows of a that are contiguous in memory, several panels at a time: a line of
 * memory is then read once. Whole vectors are stored where what spills over is
 * written again later. */
static void panels_straight(float *out, const float *from, int64_t step,
                            int count, const struct matmul_chunk *chunk)
{
    int64_t size = (int64_t)TILE_ROWS * chunk->elements;

    for (int i = 0; i < chunk->count; i++) {
        const struct matmul_step *s = &chunk->steps[i];

        for (int e = 0; e < s->length; e++) {
            const float *source = from + (s->first + e) * step;
            float *to = out + (int64_t)(s->offset + e) * TILE_ROWS;
            bool spill = s->offset + e + 1 < chunk->elements;

            for (int row = 0; row < count; row += TILE_ROWS, to += size) {
                if (TILE_ROWS < WIDTH && spill && row + WIDTH <= count)
                    vector_store(to, vector_load(source + row));
                else
                    column_straight(to, source + row, count - row);
            }
        }
    }
}

void CPU(matmul_pack_rows)(float *out, const float *from, int64_t stride,
                           int64_t step, int count,
                           const struct matmul_chunk *chunk)
{
    int64_t size = (int64_t)TILE_ROWS * chunk->elements;

    if (stride == 1) {
        panels_straight(out, from, step, count, chunk);
        return;
    }
    for (int row = 0; row < count; row += TILE_ROWS, out += size)
        pack(out, TILE_ROWS, from + row * stride, stride, step,
             count - row < TILE_ROWS ? count - row : TILE_ROWS, chunk);
}

void CPU(matmul_pack_columns)(float *out, const float *from, int64_t stride,
                              int64_t step, int count,
                              const struct matmul_chunk *chunk)
{
    pack(out, TILE_COLUMNS, from, stride, step, count, chunk);
}
