/* SPDX-License-Identifier: Apache-2.0 */
/* attention_amx.c - products of attention on the processor's tiles.
 *
 * Operands are float32 arrays of bfloat16 numbers; they are packed as those of
 * matrix products are (matmul_amx.c): a in panels of 32 rows, b in strips of 32
 * columns. Blocks begin at multiples of PRODUCT_BLOCK of a granule's elements,
 * whatever the first one that is there; absent ones are +0. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention/attention.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#include "kernels/narrow_product.h"

enum {
    WORDS = HEAD_WIDTH_MAX / 2, /* of a row; granules are no longer */
    STRIP = STRIP_COLUMNS,
    STRIDE = STRIP * 4,         /* bytes of a row of a strip, and of sums */
    LINES_AHEAD = 16            /* asked for with a tile */
};

/* A product, counted from the beginning of the first element's block. */
struct packed {
    const struct chains *x;
    int before; /* elements of that block that are not there */
    int blocks;
};

/* Words of elements that are adjacent floats, and of two vectors of them. */
INLINE __m512i words_adjacent(const float *from)
{
    const __m512i odd = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33,
        31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);

    return _mm512_permutex2var_epi16(_mm512_loadu_si512(from), odd,
                                     _mm512_loadu_si512(from + SIDE));
}

INLINE __m512i words_woven(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(even, 16),
                                   odd);
}

/* Vector e of those that lie `step` apart; +0 where it is not in [0, end). */
INLINE __m512i vector_of(const float *from, int64_t step, int e, int end)
{
    return e >= 0 && e < end ? _mm512_loadu_si512(from + e * step)
                             : _mm512_setzero_si512();
}

/* 16 words of one row, of elements from `e` on. */
INLINE __m512i block_adjacent(const float *row, int e, int length)
{
    float part[PRODUCT_BLOCK] = {0};

    if (e >= 0 && e + PRODUCT_BLOCK <= length) return words_adjacent(row + e);
    for (int i = 0; i < PRODUCT_BLOCK; i++)
        if (e + i >= 0 && e + i < length) part[i] = row[e + i];
    return words_adjacent(part);
}

/* A block of 16 rows that are adjacent; only the first `end` elements are not
 * +0. */
static void square_turned(uint32_t *out, const float *from, int64_t step,
                          int e, int end)
{
    vector square[SIDE];

    for (int i = 0; i < SIDE; i++, e += 2)
        square[i] = (vector)words_woven(vector_of(from, step, e, end),
                                        vector_of(from, step, e + 1, end));
    vector_transpose(square);
    UNROLL for (int i = 0; i < SIDE; i++)
        vector_store_words(out + i * SIDE, square[i]);
}

static struct packed packed_of(const struct chains *x)
{
    struct packed p = {.x = x, .before = x->first % PRODUCT_BLOCK};

    p.blocks = (p.before + x->length + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK;
    CHECK(p.blocks * SIDE <= WORDS);
    return p;
}

/* Words before the panel of a row. */
INLINE int panel_at(const struct packed *p, int row)
{
    return row / PANEL * p->blocks * BLOCK_WORDS;
}

/* Elements that 16 rows need. */
static int square_length(const struct chains *x, int row)
{
    const int needed = x->lag + row + SIDE;

    return needed < x->length ? needed : x->length;
}

/* Blocks that the panel from `row` on needs. */
static int panel_blocks(const struct packed *p, int row)
{
    const int last = row + SIDE < p->x->rows ? row + SIDE : row;
    const int end = p->before + square_length(p->x, last);

    return end > 0 ? (end + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK : 0;
}

static void rows_straight(const struct packed *p, uint32_t *out)
{
    const struct chains *x = p->x;

    for (int i = 0; i < x->rows; i++)
        for (int block = 0; block < p->blocks; block++)
            _mm512_storeu_si512(
                out + panel_at(p, i) + block * BLOCK_WORDS + i % PANEL * SIDE,
                block_adjacent(x->a + i * x->a_row,
                               block * PRODUCT_BLOCK - p->before, x->length));
}

static void rows_turned(const struct packed *p, uint32_t *out)
{
    const struct chains *x = p->x;

    for (int i = 0; i < x->rows; i += SIDE) {
        const int blocks = panel_blocks(p, i / PANEL * PANEL);
        uint32_t *to = out + panel_at(p, i) + i % PANEL * SIDE;

        for (int block = 0; block < blocks; block++)
            square_turned(to + block * BLOCK_WORDS, x->a + i, x->a_step,
                          block * PRODUCT_BLOCK - p->before,
                          square_length(x, i));
    }
}

/* Columns of the strip from `column` on. */
static int strip_columns(const struct chains *x, int column)
{
    return x->columns - column < STRIP ? x->columns - column : STRIP;
}

static void columns_pack(const struct packed *p, uint32_t *out, int column)
{
    const struct chains *x = p->x;
    const int count = strip_columns(x, column);
    int e = -p->before;

    for (int word = 0; word < p->blocks * SIDE; word++, e += 2, out += STRIP)
        for (int j = 0; j < count; j += SIDE)
            _mm512_storeu_si512(
                out + j,
                words_woven(vector_of(x->b + column + j, x->b_step, e,
                                      x->length),
                            vector_of(x->b + column + j, x->b_step, e + 1,
                                      x->length)));
}

/* sums = blocks of a panel times those of a strip; `tall`, `wide`: more than 16
 * rows, columns. */
TILES_TARGET INLINE void blocks_sum(const bool tall, const bool wide,
                                    const uint32_t *a, const uint32_t *b,
                                    int blocks, float *sums)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < blocks; i++) {
        _tile_loadd(6, b, STRIDE);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) {
            _tile_loadd(7, b + SIDE, STRIDE);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (tall) {
            _tile_loadd(5, a + SIDE * SIDE, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
            if (wide) _tile_dpbf16ps(3, 5, 7);
        }
        a += BLOCK_WORDS;
        b += SIDE * STRIP;
    }
    _tile_stored(0, sums, STRIDE);
    if (wide) _tile_stored(1, sums + SIDE, STRIDE);
    if (tall) _tile_stored(2, sums + SIDE * STRIP, STRIDE);
    if (tall && wide) _tile_stored(3, sums + SIDE * STRIP + SIDE, STRIDE);
}

/* The panel `a` from `row` on times the strip `b` from `column` on. */
TILES_TARGET static void panel_run(const struct packed *p, const uint32_t *a,
                                   const uint32_t *b, const int at[2])
{
    const struct chains *x = p->x;
    const int row = at[0], columns = strip_columns(x, at[1]);
    const int rows = x->rows - row < PANEL ? x->rows - row : PANEL;
    const int blocks = panel_blocks(p, row);
    float sums[PANEL * STRIP] __attribute__((aligned(64)));
    const float *from = sums;
    float *to = x->c + row * x->c_row + at[1];

    if (rows > SIDE && columns > SIDE)
        blocks_sum(true, true, a, b, blocks, sums);
    else if (rows > SIDE)
        blocks_sum(true, false, a, b, blocks, sums);
    else
        blocks_sum(false, true, a, b, blocks, sums);
    for (int i = 0; i < rows; i++, from += STRIP, to += x->c_row)
        for (int j = 0; j < columns; j += WIDTH)
            vector_store(to + j, vector_load(from + j) + vector_fill(0));
}

/* Asks for lines of memory that are due with a tile. */
static void lines_ask(struct ahead *ahead)
{
    if (ahead->tile_rows > 0) ahead_tile(ahead);
    for (int i = 0; ahead->tile_rows == 0 && i < LINES_AHEAD; i++)
        ahead_step(ahead);
}

void CPU(attention_tiles)(const struct chains *x)
{
    uint32_t a_room[G * WORDS] __attribute__((aligned(64)));
    uint32_t b_room[WORDS * STRIP] __attribute__((aligned(64)));
    const struct packed p = packed_of(x);
    const uint32_t *a = x->a_panels ? x->a_panels : a_room;

    if (!x->a_panels) CPU(attention_panels_pack)(x, a_room);
    for (int j = 0; j < x->columns; j += STRIP) {
        const uint32_t *b =
            x->b_strips ? x->b_strips + j / STRIP * x->b_strip : b_room;

        if (!x->b_strips) columns_pack(&p, b_room, j);
        for (int i = 0; i < x->rows; i += PANEL) {
            if (x->ahead) lines_ask(x->ahead);
            panel_run(&p, a + panel_at(&p, i), b, (const int[]){i, j});
        }
    }
}

void CPU(attention_panels_pack)(const struct chains *x, uint32_t *out)
{
    const struct packed p = packed_of(x);

    CHECK(x->rows <= G);
    if (x->a_step != 1) {
        CHECK(x->a_row == 1);
        rows_turned(&p, out);
    } else {
        CHECK(x->lag == CHAINS_WHOLE);
        rows_straight(&p, out);
    }
}

void CPU(attention_strips_pack)(const struct chains *x, uint32_t *out)
{
    const struct packed p = packed_of(x);

    for (int j = 0; j < x->columns; j += STRIP)
        columns_pack(&p, out + j / STRIP * x->b_strip, j);
}
#else
/* A file has at least one declaration. */
extern void CPU(attention_tiles)(const struct chains *x);
#endif
