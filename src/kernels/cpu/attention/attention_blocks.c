/* SPDX-License-Identifier: Apache-2.0 */
/* attention_blocks.c - products of attention in tiles where the processor has
 * none: of each block of PRODUCT_BLOCK elements the even and the odd ones are
 * float32 chains that flush. And the choice among products. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/flushing.h"
#include "kernels/features.h"
#include "kernels/flush.h"
#include "kernels/narrow_product.h"

enum { FEW = 8 }; /* queries for which packing keys does not pay */

/* The size of a tile: two chains and their sum for each of its elements fill
 * the registers. */
#if defined(__AVX512F__)
enum { ROWS = 4, VECTORS = 2 };
#else
enum { ROWS = 2, VECTORS = 2 };
#endif

INLINE vector flushing_fma(vector a, vector b, vector c)
{
#if MODE_FLUSHES
    return vector_fma(a, b, c);
#else
    vector sum;

    UNROLL for (int j = 0; j < WIDTH; j++)
        sum[j] = flushed_fma(a[j], b[j], c[j]);
    return sum;
#endif
}

INLINE vector flushing_add(vector a, vector b)
{
#if MODE_FLUSHES
    return a + b;
#else
    vector sum;

    UNROLL for (int j = 0; j < WIDTH; j++) sum[j] = flushed_add(a[j], b[j]);
    return sum;
#endif
}

/* Operands of a tile, and how far apart rows of a are. */
struct operands {
    const float *a, *b;
    int64_t row[ROWS], a_step, b_step;
};

/* One element of each of the tile's chains. */
INLINE void step(const int vectors, vector sum[ROWS][VECTORS],
                 const struct operands *o, int e)
{
    vector right[VECTORS];

    UNROLL for (int v = 0; v < vectors; v++)
        right[v] = vector_load(o->b + e * o->b_step + v * WIDTH);
    UNROLL for (int r = 0; r < ROWS; r++) {
        const vector left = vector_fill(o->a[o->row[r] + e * o->a_step]);

        UNROLL for (int v = 0; v < vectors; v++)
            sum[r][v] = flushing_fma(left, right[v], sum[r][v]);
    }
}

INLINE void sums_clear(const int vectors, vector sum[ROWS][VECTORS])
{
    UNROLL for (int r = 0; r < ROWS; r++)
        UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = vector_fill(0);
}

/* sum += elements [from, to), which one block has. */
INLINE void block_add(const int vectors, vector sum[ROWS][VECTORS],
                      const struct operands *o, int first, const int range[2])
{
    vector even[ROWS][VECTORS], odd[ROWS][VECTORS];
    int e = range[0];

    sums_clear(vectors, even);
    sums_clear(vectors, odd);
    if ((first + e) % 2 != 0) step(vectors, odd, o, e++);
    for (; e + 1 < range[1]; e += 2) {
        step(vectors, even, o, e);
        step(vectors, odd, o, e + 1);
    }
    if (e < range[1]) step(vectors, even, o, e);
    UNROLL for (int r = 0; r < ROWS; r++)
        UNROLL for (int v = 0; v < vectors; v++)
            sum[r][v] = flushing_add(sum[r][v],
                                     flushing_add(even[r][v], odd[r][v]));
}

/* The tile at row i and column j. */
INLINE void tile(const int vectors, const struct chains *x, int i, int j)
{
    const int present = x->rows - i < ROWS ? x->rows - i : ROWS;
    const int needed = x->lag + i + present;
    const int length = needed < x->length ? needed : x->length;
    struct operands o = {.a = x->a + i * x->a_row, .b = x->b + j,
                         .a_step = x->a_step, .b_step = x->b_step};
    float *c = x->c + i * x->c_row + j;
    vector sum[ROWS][VECTORS];

    for (int r = 0; r < ROWS; r++) /* absent rows repeat the last */
        o.row[r] = (r < present ? r : present - 1) * x->a_row;
    sums_clear(vectors, sum);
    for (int e = 0, end; e < length; e = end) {
        end = e + PRODUCT_BLOCK - (x->first + e) % PRODUCT_BLOCK;
        if (end > length) end = length;
        block_add(vectors, sum, &o, x->first, (const int[]){e, end});
    }
    for (int r = 0; r < present; r++, c += x->c_row)
        UNROLL for (int v = 0; v < vectors; v++)
            vector_store(c + v * WIDTH, sum[r][v] + vector_fill(0));
}

__attribute__((noinline)) static void tiles_run(const struct chains *x)
{
    for (int i = 0; i < x->rows; i += ROWS) {
        int j = 0;

        if (x->ahead) ahead_tile(x->ahead);
        for (; j + VECTORS * WIDTH <= x->columns; j += VECTORS * WIDTH)
            tile(VECTORS, x, i, j);
        if (j < x->columns) tile(1, x, i, j);
    }
}

static void blocks_run(const struct chains *x)
{
    const unsigned before = flushing_begin();

    tiles_run(x);
    flushing_end(before);
}

const struct attention_products *
CPU(attention_products)(const struct attention *p)
{
    static const struct attention_products plain = {
        .run = CPU(attention_chains)};
    static const struct attention_products blocks = {.run = blocks_run};
#if defined(__AVX512F__)
    static const struct attention_products tiles = {
        .run = CPU(attention_tiles), .begin = CPU(tiles_begin),
        .end = CPU(tiles_end)};
    static const struct attention_products packed = {
        .run = CPU(attention_tiles), .begin = CPU(tiles_begin),
        .end = CPU(tiles_end), .panels_pack = CPU(attention_panels_pack),
        .strips_pack = CPU(attention_strips_pack)};

    if (p->tiles && features_tiles() && p->queries >= FEW)
        return p->head_width % PRODUCT_BLOCK == 0 ? &packed : &tiles;
#endif
    return p->tiles ? &blocks : &plain;
}
