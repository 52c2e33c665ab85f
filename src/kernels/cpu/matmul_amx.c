/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx.c - products of bfloat16 on the processor's tiles (AMX).
 *
 * Registers: four sums of 16 x 16, two tiles of a (16 rows of 32 elements) and
 * two of b (16 pairs of 16 columns). A panel of a is 32 rows in squares of 16
 * words, one after the other; a strip of b is packed in pairs as for
 * VDPBF16PS. */
#include "kernels/cpu/matmul.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include "kernels/cpu/scratch.h"
#include "kernels/element.h"
#include "kernels/narrow_product.h"

#define TILES_TARGET __attribute__((target("amx-tile,amx-bf16")))

enum {
    SIDE = 16,                  /* rows of a register, words of a row */
    ROW_BYTES = SIDE * 4,
    PANEL = 2 * SIDE,           /* rows */
    BLOCK_WORDS = PANEL * SIDE, /* of a panel, for PRODUCT_BLOCK elements */
    AMX_PANELS = 12, AMX_CHUNK = 1536,
    ROWS_AHEAD = 4 /* few: b comes from memory */
};

/* Palette 1; from byte 16 on bytes of a row of each register, two bytes each,
 * from byte 48 on rows. Constant: what the instruction reads is not told to the
 * compiler, which could leave out stores. */
static const uint8_t shapes[64] = {
    1, [16] = ROW_BYTES, [18] = ROW_BYTES, [20] = ROW_BYTES, [22] = ROW_BYTES,
    [24] = ROW_BYTES, [26] = ROW_BYTES, [28] = ROW_BYTES, [30] = ROW_BYTES,
    [48] = SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE
};

TILES_TARGET static void tiles_begin(void)
{
    _tile_loadconfig(shapes);
}

TILES_TARGET static void tiles_end(void)
{
    _tile_release();
}

enum { STRIDE = TILE_COLUMNS * 4 };

/* sums = blocks of the granule: 32 rows. */
TILES_TARGET __attribute__((noinline)) static void
blocks_sum(const struct matmul_granule *g, float *sums)
{
    const uint32_t *a = g->a, *b = g->b;

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int w = 0; w < g->words; w += SIDE) {
        _tile_loadd(6, b, STRIDE);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + SIDE, STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + SIDE * SIDE, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += BLOCK_WORDS;
        b += SIDE * TILE_COLUMNS;
    }
    _tile_stored(0, sums, STRIDE);
    _tile_stored(1, sums + SIDE, STRIDE);
    _tile_stored(2, sums + SIDE * TILE_COLUMNS, STRIDE);
    _tile_stored(3, sums + SIDE * TILE_COLUMNS + SIDE, STRIDE);
}

/* The same for the first 16 rows. */
TILES_TARGET __attribute__((noinline)) static void
half_sum(const struct matmul_granule *g, float *sums)
{
    const uint32_t *a = g->a, *b = g->b;

    _tile_zero(0);
    _tile_zero(1);
    for (int w = 0; w < g->words; w += SIDE) {
        for (int row = 0; row < SIDE && g->rows <= ROWS_AHEAD; row++)
            matmul_ahead(b + row * TILE_COLUMNS);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + SIDE, STRIDE);
        _tile_dpbf16ps(1, 4, 7);
        a += BLOCK_WORDS;
        b += SIDE * TILE_COLUMNS;
    }
    _tile_stored(0, sums, STRIDE);
    _tile_stored(1, sums + SIDE, STRIDE);
}

static void granule_tiles(const struct matmul_granule *g)
{
    float sums[PANEL * TILE_COLUMNS] __attribute__((aligned(64)));
    const float *from = sums;

    if (g->rows > SIDE) blocks_sum(g, sums);
    else half_sum(g, sums);
    for (int i = 0; i < g->rows; i++, from += TILE_COLUMNS) {
        float *to = g->to + i * g->stride;

        UNROLL for (int v = 0; v < TILE_COLUMNS; v += WIDTH) {
            vector x = vector_load(from + v);

            vector_store(to + v, g->assign ? x : vector_load(to + v) + x);
        }
    }
}

/* One row of a step whose pairs are adjacent in memory. */
static void row_straight(uint32_t *out, const uint16_t *from, int length)
{
    for (; length >= PRODUCT_BLOCK; length -= PRODUCT_BLOCK) {
        memcpy(out, from, ROW_BYTES);
        from += PRODUCT_BLOCK;
        out += BLOCK_WORDS;
    }
    if (length == 0) return;
    memset(out, 0, ROW_BYTES);
    memcpy(out, from, 2 * (size_t)length);
}

static void rows_straight(uint32_t *out, const struct matmul_source *s,
                          const struct matmul_chunk *chunk)
{
    for (int row = 0; row < s->count; row++) {
        uint32_t *to = out + (int64_t)(row / PANEL) * PANEL * chunk->words +
                       row % PANEL * SIDE;

        for (int i = 0; i < chunk->count; i++) {
            const struct matmul_step *step = &chunk->steps[i];

            row_straight(to + (int64_t)step->offset * PANEL,
                         element_at(s->from, DTYPE_BF16,
                                    row * s->stride + step->first),
                         step->length);
        }
    }
}

/* 16 rows of one block that are adjacent in memory. */
static void square_turned(uint32_t *out, const struct matmul_source *s,
                          int length)
{
    uint32_t pairs[SIDE * TILE_COLUMNS] __attribute__((aligned(64))) = {0};
    vector square[SIDE];
    int width = SIDE;

    if (s->count == SIDE && length == PRODUCT_BLOCK) {
        CPU(matmul_weave)(pairs, s->from, s->step);
    } else {
        width = TILE_COLUMNS;
        CPU(matmul_pack_pairs)(pairs, width, s, length);
    }
    UNROLL for (int i = 0; i < SIDE; i++)
        square[i] = vector_load_words(pairs + i * width);
    vector_transpose(square);
    UNROLL for (int i = 0; i < SIDE; i++)
        vector_store_words(out + i * SIDE, square[i]);
}

/* Blocks outside: lines of memory are read from one end to the other. */
static void rows_turned(uint32_t *out, const struct matmul_source *source,
                        const struct matmul_chunk *chunk)
{
    for (int i = 0; i < chunk->count; i++) {
        const struct matmul_step *step = &chunk->steps[i];

        for (int done = 0; done < step->length; done += PRODUCT_BLOCK) {
            int64_t word = step->offset + done / 2;
            int length = step->length - done;
            struct matmul_source s = *source;

            if (length > PRODUCT_BLOCK) length = PRODUCT_BLOCK;
            for (int row = 0; row < source->count; row += SIDE) {
                int64_t panel = (int64_t)(row / PANEL) * PANEL * chunk->words;

                s.count = source->count - row < SIDE ? source->count - row
                                                     : SIDE;
                s.from = element_at(source->from, DTYPE_BF16,
                                    row + (step->first + done) * s.step);
                square_turned(out + panel + word * PANEL + row % PANEL * SIDE,
                              &s, length);
            }
        }
    }
}

static void rows_tiles(uint32_t *out, const struct matmul_source *source,
                       const struct matmul_chunk *chunk)
{
    if (source->stride == 1 && source->step != 1)
        rows_turned(out, source, chunk);
    else
        rows_straight(out, source, chunk);
}

const struct matmul_format CPU(format_tiles) = {
    .rows = PANEL, .grain = PRODUCT_BLOCK, .per_word = 2,
    .chunk_words = AMX_CHUNK, .panels = AMX_PANELS, .together = TOGETHER_MAX,
    .pack_rows = rows_tiles, .pack_columns = CPU(matmul_columns_pairs),
    .granule = granule_tiles, .begin = tiles_begin, .end = tiles_end};
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
