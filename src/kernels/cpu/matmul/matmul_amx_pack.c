/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx_pack.c - operands for the processor's tiles: rows of a in panels,
 * squares of 16 rows and 16 words, and columns of b in strips. */
#include "kernels/cpu/matmul/matmul_amx.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include "kernels/element.h"
#include "kernels/narrow_product.h"

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
                          const struct matmul_slab *slab)
{
    for (int row = 0; row < s->count; row++) {
        uint32_t *to = out + (int64_t)(row / PANEL) * PANEL * slab->words +
                       row % PANEL * SIDE;

        for (int i = 0; i < slab->count; i++) {
            const struct matmul_step *step = &slab->steps[i];

            row_straight(to + (int64_t)step->offset * PANEL,
                         element_at(s->from, DTYPE_BF16,
                                    row * s->stride + step->first),
                         step->length);
        }
    }
}

enum { EIGHT = 8 }; /* elements of a lane of 128 bits */

/* Lanes that lie `apart` bytes from each other; masks cost no shuffle. */
INLINE __m512i lanes_load(const char *from, int64_t apart)
{
    __m512i x = _mm512_castsi128_si512(
        _mm_loadu_si128((const __m128i *)(const void *)from));

    UNROLL for (int lane = 1; lane < 4; lane++)
        x = _mm512_mask_broadcast_i32x4(
            x, (__mmask16)(0xF << 4 * lane),
            _mm_loadu_si128(
                (const __m128i *)(const void *)(from + lane * apart)));
    return x;
}

/* Eight rows of one block, adjacent in memory: lane j has elements 8j to
 * 8j + 7, whose square of 8 x 8 is transposed in it. step: bytes from element
 * to element of a row. */
static void eight_turned(uint32_t *out, const char *from, int64_t step)
{
    __m512i x[EIGHT], y[EIGHT];

    UNROLL for (int i = 0; i < EIGHT; i++)
        x[i] = lanes_load(from + i * step, EIGHT * step);
    UNROLL for (int i = 0; i < EIGHT; i += 2) {
        y[i] = _mm512_unpacklo_epi16(x[i], x[i + 1]); /* rows 0 to 3 */
        y[i + 1] = _mm512_unpackhi_epi16(x[i], x[i + 1]);
    }
    UNROLL for (int i = 0; i < EIGHT; i += 4)
        UNROLL for (int j = 0; j < 2; j++) { /* rows 4j and 4j + 1, and on */
            x[i + 2 * j] = _mm512_unpacklo_epi32(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi32(y[i + j], y[i + j + 2]);
        }
    UNROLL for (int i = 0; i < EIGHT / 2; i++) {
        _mm512_storeu_si512(out + 2 * i * SIDE,
                            _mm512_unpacklo_epi64(x[i], x[i + EIGHT / 2]));
        _mm512_storeu_si512(out + (2 * i + 1) * SIDE,
                            _mm512_unpackhi_epi64(x[i], x[i + EIGHT / 2]));
    }
}

/* 16 rows of one block that are adjacent in memory. */
static void square_turned(uint32_t *out, const struct matmul_source *s,
                          int length)
{
    uint32_t pairs[SIDE * TILE_COLUMNS] __attribute__((aligned(64))) = {0};
    vector square[SIDE];

    if (s->count == SIDE && length == PRODUCT_BLOCK) {
        eight_turned(out, s->from, 2 * s->step);
        eight_turned(out + EIGHT * SIDE, (const char *)s->from + 2 * EIGHT,
                     2 * s->step);
        return;
    }
    CPU(matmul_pack_pairs)(pairs, TILE_COLUMNS, s, length);
    UNROLL for (int i = 0; i < SIDE; i++)
        square[i] = vector_load_words(pairs + i * TILE_COLUMNS);
    vector_transpose(square);
    UNROLL for (int i = 0; i < SIDE; i++)
        vector_store_words(out + i * SIDE, square[i]);
}

/* Asks for the next block of the panel: its lines are far apart. */
INLINE void block_ahead(const struct matmul_source *s)
{
    const int64_t step = 2 * s->step;
    const char *from = (const char *)s->from + PRODUCT_BLOCK * step;

    for (int i = 0; i < PRODUCT_BLOCK; i++)
        __builtin_prefetch(from + i * step);
}

/* Blocks outside: lines of memory are read from one end to the other. */
static void rows_turned(uint32_t *out, const struct matmul_source *source,
                        const struct matmul_slab *slab)
{
    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *step = &slab->steps[i];

        for (int done = 0; done < step->length; done += PRODUCT_BLOCK) {
            int64_t word = step->offset + done / 2;
            int length = step->length - done;
            struct matmul_source s = *source;

            if (length > PRODUCT_BLOCK) length = PRODUCT_BLOCK;
            for (int row = 0; row < source->count; row += SIDE) {
                int64_t panel = (int64_t)(row / PANEL) * PANEL * slab->words;

                s.count = source->count - row < SIDE ? source->count - row
                                                     : SIDE;
                s.from = element_at(source->from, DTYPE_BF16,
                                    row + (step->first + done) * s.step);
                if (row % PANEL == 0) block_ahead(&s);
                square_turned(out + panel + word * PANEL + row % PANEL * SIDE,
                              &s, length);
            }
        }
    }
}

void CPU(matmul_rows_tiles)(uint32_t *out, const struct matmul_source *source,
                            const struct matmul_slab *slab)
{
    if (source->stride == 1 && source->step != 1)
        rows_turned(out, source, slab);
    else
        rows_straight(out, source, slab);
}

/* 16 columns of b whose contracted dimension is adjacent in memory: eight
 * elements of each, as four rows of a strip. Lane j has columns 4j to 4j + 3,
 * whose words are transposed in it. stride: bytes from column to column. */
INLINE void quad_turned(uint32_t *out, const char *from, int64_t stride)
{
    __m512i x[4], y[4];

    UNROLL for (int i = 0; i < 4; i++)
        x[i] = lanes_load(from + i * stride, 4 * stride);
    y[0] = _mm512_unpacklo_epi32(x[0], x[1]);
    y[1] = _mm512_unpackhi_epi32(x[0], x[1]);
    y[2] = _mm512_unpacklo_epi32(x[2], x[3]);
    y[3] = _mm512_unpackhi_epi32(x[2], x[3]);
    UNROLL for (int i = 0; i < 2; i++) {
        _mm512_storeu_si512(out + 2 * i * TILE_COLUMNS,
                            _mm512_unpacklo_epi64(y[i], y[i + 2]));
        _mm512_storeu_si512(out + (2 * i + 1) * TILE_COLUMNS,
                            _mm512_unpackhi_epi64(y[i], y[i + 2]));
    }
}

static void columns_turned(uint32_t *out, const struct matmul_source *s,
                           const struct matmul_step *step)
{
    const int64_t stride = 2 * s->stride;
    const char *from = (const char *)s->from + 2 * step->first;

    out += (int64_t)step->offset * TILE_COLUMNS;
    for (int done = 0; done < step->length; done += PRODUCT_BLOCK) {
        for (int column = 0; column < TILE_COLUMNS; column += SIDE)
            UNROLL for (int quad = 0; quad < 4; quad++)
                quad_turned(out + quad * 4 * TILE_COLUMNS + column,
                            from + column * stride + quad * LINE / 4, stride);
        from += LINE;
        out += SIDE * TILE_COLUMNS;
    }
}

void CPU(matmul_columns_tiles)(uint32_t *out,
                               const struct matmul_source *source,
                               const struct matmul_slab *slab)
{
    bool whole = source->step == 1 && source->count == TILE_COLUMNS;

    for (int i = 0; i < slab->count; i++)
        whole = whole && slab->steps[i].length % PRODUCT_BLOCK == 0;
    if (!whole) {
        CPU(matmul_columns_pairs)(out, source, slab);
        return;
    }
    for (int i = 0; i < slab->count; i++)
        columns_turned(out, source, &slab->steps[i]);
}
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
