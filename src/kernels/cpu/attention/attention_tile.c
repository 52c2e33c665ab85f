/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tile.c - small products, copies and transpositions of blocks of
 * attention. */
#include "kernels/cpu/attention/attention.h"

/* Accumulators of a tile: as many as leave registers for a row of b. */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { VECTORS = 2 };
#else
enum { VECTORS = 4 };
#endif
enum { ROWS_WIDE = 6, ROWS_NARROW = 8, ROWS_REST = 4 };
enum { STEPS = 4 }; /* of a chain, from one line asked for to the next */

/* Kinds of tiles: rows of a are adjacent; lines of memory are asked for. */
enum { ADJACENT = 1, ASKS = 2 };

/* One element of each of the tile's chains. */
INLINE void tile_step(const int rows, const int vectors,
                      vector sum[ROWS_NARROW][VECTORS], const float *a,
                      const int64_t *row, const float *b)
{
    vector right[VECTORS];

    UNROLL for (int v = 0; v < vectors; v++)
        right[v] = vector_load(b + v * WIDTH);
    UNROLL for (int r = 0; r < rows; r++) {
        vector left = vector_fill(a[row[r]]);

        UNROLL for (int v = 0; v < vectors; v++)
            sum[r][v] = vector_fma(left, right[v], sum[r][v]);
    }
}

/* The tile at row i and column j; `present` of its rows exist. */
INLINE void tile(const int rows, const int vectors, const int kind,
                 const struct chains *x, const int at[3])
{
    const bool adjacent = kind & ADJACENT, asks = kind & ASKS;
    const int i = at[0], j = at[1], present = at[2];
    const int needed = x->lag + i + present;
    const int length = needed < x->length ? needed : x->length;
    const int64_t step = adjacent ? x->a_step : 1, b_step = x->b_step;
    const float *a = x->a + (adjacent ? i : i * x->a_row);
    const float *b = x->b + j;
    float *c = x->c + i * x->c_row + j;
    vector sum[ROWS_NARROW][VECTORS];
    int64_t row[ROWS_NARROW];
    int e = 0;

    UNROLL for (int r = 0; r < rows; r++) {
        /* absent rows repeat the last */
        const bool there = (asks && rows > ROWS_REST) || r < present;

        row[r] = adjacent ? r : (there ? r : present - 1) * x->a_row;
        UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = vector_fill(0);
    }
    for (; asks && e + STEPS <= length; e += STEPS) {
        ahead_step(x->ahead);
        UNROLL for (int n = 0; n < STEPS; n++) {
            tile_step(rows, vectors, sum, a, row, b);
            a += step;
            b += b_step;
        }
    }
    for (; e < length; e++) {
        tile_step(rows, vectors, sum, a, row, b);
        a += step;
        b += b_step;
    }
    UNROLL for (int r = 0; r < rows; r++) {
        if (r >= present) break;
        UNROLL for (int v = 0; v < vectors; v++)
            vector_store(c + v * WIDTH, sum[r][v] + vector_fill(0));
        c += x->c_row;
    }
}

/* All rows of `vectors` columns of vectors from column j. */
INLINE void strip(const int vectors, const int kind, const struct chains *x,
                  int j)
{
    const int full = vectors == VECTORS ? ROWS_WIDE : ROWS_NARROW;
    int i = 0;

    for (int left = x->rows; left > 0; left = x->rows - i) {
        if (x->ahead) ahead_tile(x->ahead);
        /* 7 is 4 + 3, 8 is 4 + 4 */
        if (left >= full && (full != ROWS_WIDE || left == full ||
                             left > 2 * ROWS_REST)) {
            const int at[3] = {i, j, full};

            tile(full, vectors, kind, x, at);
            i += full;
        } else {
            const int at[3] = {i, j, left < ROWS_REST ? left : ROWS_REST};

            tile(ROWS_REST, vectors, kind, x, at);
            i += ROWS_REST;
        }
    }
}

#define STRIP(vectors)                                              \
    static void strip_##vectors(const struct chains *x, int column) \
    {                                                               \
        const bool asks = x->ahead && x->ahead->tile_rows == 0;     \
                                                                    \
        if (x->a_row == 1 && asks)                                  \
            strip(vectors, ADJACENT | ASKS, x, column);             \
        else if (x->a_row == 1)                                     \
            strip(vectors, ADJACENT, x, column);                    \
        else if (asks)                                              \
            strip(vectors, ASKS, x, column);                        \
        else                                                        \
            strip(vectors, 0, x, column);                           \
    }
STRIP(1)
STRIP(2)
#if !defined(__AVX2__) || defined(__AVX512F__)
STRIP(3)
STRIP(4)
#endif

void CPU(attention_chains)(const struct chains *x)
{
    for (int j = 0, left; j < x->columns;) {
        left = (x->columns - j) / WIDTH;
#if !defined(__AVX2__) || defined(__AVX512F__)
        if (left == 4 || left > 6) { /* 5 is 3 + 2, 6 is 3 + 3 */
            strip_4(x, j);
            j += 4 * WIDTH;
            continue;
        }
        if (left > 2) {
            strip_3(x, j);
            j += 3 * WIDTH;
            continue;
        }
#endif
        if (left > 1)
            strip_2(x, j);
        else
            strip_1(x, j);
        j += left > 1 ? 2 * WIDTH : WIDTH;
    }
}

/* Columns [j, j + WIDTH) of out. */
static void columns_pack(float *out, int columns, const float *x,
                         int64_t stride, const int range[2], int width)
{
    const int from = range[0], to = range[1];
    int e = 0;

    for (; e + WIDTH <= width; e += WIDTH) {
        vector square[WIDTH];

        if (from == 0 && to >= WIDTH)
            UNROLL for (int j = 0; j < WIDTH; j++)
                square[j] = vector_load(x + j * stride + e);
        else
            UNROLL for (int j = 0; j < WIDTH; j++)
                square[j] = j >= from && j < to
                                ? vector_load(x + (j - from) * stride + e)
                                : vector_fill(0);
        vector_transpose(square);
        UNROLL for (int j = 0; j < WIDTH; j++)
            vector_store(out + (e + j) * columns, square[j]);
    }
    for (; e < width; e++)
        for (int j = 0; j < WIDTH; j++)
            out[e * columns + j] =
                j >= from && j < to ? x[(j - from) * stride + e] : 0;
}

void CPU(attention_pack_columns)(float *out, int columns, const float *x,
                                 int64_t stride, const int range[2], int width)
{
    for (int j = 0; j < columns; j += WIDTH) {
        const int skipped = j > range[0] ? j - range[0] : 0;
        const int part[2] = {range[0] > j ? range[0] - j : 0, range[1] - j};

        if (part[1] <= part[0] || part[0] >= WIDTH) {
            for (int e = 0; e < width; e++)
                vector_store(out + e * columns + j, vector_fill(0));
            continue;
        }
        columns_pack(out + j, columns, x + skipped * stride, stride, part,
                     width);
    }
}

/* ---- rows ---- */

ELEMENTARY void row_widen(enum dtype dtype, float *out, const void *x,
                          int count)
{
    SIMD for (int e = 0; e < count; e++) out[e] = element_get(x, dtype, e);
}

/* Rows of whole vectors and tails. */
static void rows_copy(float *out, const float *x, int64_t stride, int count,
                      int width)
{
    const int padded = attention_padded(width);

    for (int r = 0; r < count; r++, out += padded, x += stride) {
        int e = 0;

        for (; e + WIDTH <= width; e += WIDTH)
            vector_store(out + e, vector_load(x + e));
        for (; e < padded; e++) out[e] = e < width ? x[e] : 0;
    }
}

const float *CPU(attention_rows)(const struct attention_part *part,
                                 float *copy, int64_t *stride)
{
    const struct tensor *t = part->of;
    const int width = (int)t->shape[2], padded = attention_padded(width);

    if (t->dtype == DTYPE_F32 &&
        (!part->vectors || (padded == width && t->stride[0] == padded))) {
        *stride = t->stride[0];
        return attention_row(t, part->row, part->head);
    }
    *stride = padded;
    if (t->dtype == DTYPE_F32) {
        rows_copy(copy, attention_row(t, part->row, part->head), t->stride[0],
                  part->count, width);
        return copy;
    }
    for (int r = 0; r < part->count; r++) {
        float *to = copy + r * padded;

        ELEMENT_CHOOSE(t->dtype, row_widen, to,
                       attention_row(t, part->row + r, part->head), width);
        for (int e = width; e < padded; e++) to[e] = 0;
    }
    return copy;
}

ELEMENTARY void row_write(enum dtype dtype, void *out, const float *x,
                          float factor, int count)
{
    SIMD for (int e = 0; e < count; e++)
        element_set(out, dtype, e, x[e] * factor);
}

static void rows_scale(float *out, int64_t stride, const float *x,
                       const float *factors, const struct attention_part *part)
{
    const int width = (int)part->of->shape[2];
    const int padded = attention_padded(width);

    for (int r = 0; r < part->count; r++, out += stride, x += padded) {
        const float factor = factors ? factors[r] : 1.0f;
        const vector by = vector_fill(factor);
        int e = 0;

        for (; e + WIDTH <= width; e += WIDTH)
            vector_store(out + e, vector_load(x + e) * by);
        for (; e < width; e++) out[e] = x[e] * factor;
    }
}

/* A factor of 1 changes nothing. */
void CPU(attention_write)(const struct attention_part *part,
                          const float *from, const float *factors)
{
    const struct tensor *t = part->of;
    const int width = (int)t->shape[2], padded = attention_padded(width);

    if (t->dtype == DTYPE_F32) {
        rows_scale(attention_row(t, part->row, part->head), t->stride[0], from,
                   factors, part);
        return;
    }
    for (int r = 0; r < part->count; r++)
        ELEMENT_CHOOSE(t->dtype, row_write,
                       attention_row(t, part->row + r, part->head),
                       from + r * padded, factors ? factors[r] : 1.0f, width);
}
