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
    AMX_PANELS = 3
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

/* sums = blocks of the granule: 32 rows, or the first 16. */
TILES_TARGET __attribute__((noinline)) static void
blocks_sum(const struct matmul_granule *g, float *sums)
{
    enum { STRIDE = TILE_COLUMNS * 4 };
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

static void granule_tiles(const struct matmul_granule *g)
{
    float sums[PANEL * TILE_COLUMNS] __attribute__((aligned(64)));

    blocks_sum(g, sums);
    for (int i = 0; i < g->rows; i++) {
        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            float *to = g->to + i * g->stride + v * WIDTH;
            vector x = vector_load(sums + i * TILE_COLUMNS + v * WIDTH);

            vector_store(to, g->assign ? x : vector_load(to) + x);
        }
    }
}

/* 16 rows of one block whose pairs are adjacent in memory. */
static void square_straight(uint32_t *out, const struct matmul_source *s,
                            int length)
{
    for (int i = 0; i < SIDE; i++, out += SIDE) {
        if (i >= s->count || length < PRODUCT_BLOCK)
            memset(out, 0, ROW_BYTES);
        if (i < s->count)
            memcpy(out, element_at(s->from, DTYPE_BF16, i * s->stride),
                   2 * (size_t)length);
    }
}

/* 16 rows of one block that are adjacent in memory. */
static void square_turned(uint32_t *out, const struct matmul_source *s,
                          int length)
{
    uint32_t pairs[SIDE * TILE_COLUMNS] __attribute__((aligned(64))) = {0};
    vector square[SIDE];

    CPU(matmul_pack_pairs)(pairs, TILE_COLUMNS, s, length);
    UNROLL for (int i = 0; i < SIDE; i++)
        square[i] = vector_load_words(pairs + i * TILE_COLUMNS);
    vector_transpose(square);
    UNROLL for (int i = 0; i < SIDE; i++)
        vector_store_words(out + i * SIDE, square[i]);
}

static void rows_tiles(uint32_t *out, const struct matmul_source *source,
                       const struct matmul_chunk *chunk)
{
    const bool turned = source->stride == 1 && source->step != 1;

    for (int row = 0; row < source->count; row += SIDE) {
        struct matmul_source s = *source;
        uint32_t *panel = out + (int64_t)(row / PANEL) * PANEL * chunk->words +
                          row % PANEL * SIDE;

        s.count = source->count - row < SIDE ? source->count - row : SIDE;
        for (int i = 0; i < chunk->count; i++) {
            const struct matmul_step *step = &chunk->steps[i];
            uint32_t *to = panel + (int64_t)step->offset * PANEL;

            for (int done = 0; done < step->length; done += PRODUCT_BLOCK) {
                int length = step->length - done;

                if (length > PRODUCT_BLOCK) length = PRODUCT_BLOCK;
                s.from = element_at(source->from, DTYPE_BF16,
                                    row * s.stride +
                                        (step->first + done) * s.step);
                if (turned) square_turned(to, &s, length);
                else square_straight(to, &s, length);
                to += BLOCK_WORDS;
            }
        }
    }
}

const struct matmul_format CPU(format_tiles) = {
    .rows = PANEL, .grain = PRODUCT_BLOCK, .per_word = 2,
    .chunk_words = MATMUL_CHUNK, .panels = AMX_PANELS,
    .pack_rows = rows_tiles, .pack_columns = CPU(matmul_columns_pairs),
    .granule = granule_tiles, .begin = tiles_begin, .end = tiles_end};
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
