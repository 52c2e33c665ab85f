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
    LINE = 64,                  /* bytes, of a cache */
    STRIDE = TILE_COLUMNS * 4,  /* bytes of a row of a strip, of dense sums */
    AMX_PANELS = 12, AMX_CHUNK = 2048,
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
    _mm_sfence(); /* before another thread reads what went past the caches */
}

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

/* ---- tiles of c ---- */

/* A panel of a tile: slots of the stack are dense, and all sums are made in the
 * first cache. */
struct panel {
    const struct matmul_tile *tile;
    int row, rows; /* of the tile */
    float (*stack)[TILE];
};

static void dense_add(float *to, const float *from, int rows)
{
    for (int i = 0; i < rows * TILE_COLUMNS; i += 2 * WIDTH) {
        vector_store(to + i, vector_load(to + i) + vector_load(from + i));
        vector_store(to + i + WIDTH, vector_load(to + i + WIDTH) +
                                         vector_load(from + i + WIDTH));
    }
}

static void step_run(const struct panel *panel, const struct matmul_step *step)
{
    const struct matmul_tile *t = panel->tile;
    const int64_t word = t->whole ? step->first / 2 : step->offset;
    const struct matmul_granule g = {
        .a = t->a + panel->row * t->chunk->words + step->offset * PANEL,
        .b = t->b + word * TILE_COLUMNS, .words = step->words,
        .rows = panel->rows};
    float room[TILE] __attribute__((aligned(64)));
    float *to = panel->stack[step->slot], *sums = step->assign ? to : room;

    if (g.rows > SIDE) blocks_sum(&g, sums);
    else half_sum(&g, sums);
    if (!step->assign) dense_add(to, sums, g.rows);
    for (int top = step->slot; top > step->slot - step->merges; top--)
        dense_add(panel->stack[top - 1], panel->stack[top], g.rows);
}

/* Copies slots [0, count) between the stack and where they wait. */
static void slots_move(const struct panel *panel, int count, bool load)
{
    const struct matmul_tile *t = panel->tile;

    for (int s = 0; s < count; s++) {
        const bool in_c = s == 0 && !t->keep_first;
        const int64_t stride = in_c ? t->c_stride : t->slot_stride;
        const int columns = in_c ? t->columns : TILE_COLUMNS;
        const size_t bytes = sizeof(float) * (size_t)columns;
        float *home = in_c ? t->c : t->slots + s * t->slot_size;

        home += panel->row * stride;
        for (int i = 0; i < panel->rows; i++, home += stride) {
            float *row = panel->stack[s] + i * TILE_COLUMNS;

            if (!load) {
                memcpy(home, row, bytes);
                continue;
            }
            memcpy(row, home, bytes);
            memset(row + columns, 0, sizeof(float) * TILE_COLUMNS - bytes);
        }
    }
}

INLINE vector widened(const void *from, const enum dtype dtype, int v)
{
    if (dtype == DTYPE_F32) return vector_load((const float *)from + v * WIDTH);
    return (vector)_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(
            (const __m256i *)((const uint16_t *)from + v * WIDTH))), 16);
}

/* element_to_bf16. */
INLINE __m256i narrowed(vector x)
{
    const __m512i bits = (__m512i)x, high = _mm512_srli_epi32(bits, 16);
    const __m512i half =
        _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)),
                         _mm512_set1_epi32(0x7FFF));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 nan =
        _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);

    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(
        rounded, nan, high, _mm512_set1_epi32(0x40)));
}

/* What fills lines of memory may go past the caches: nobody reads what was
 * there, and tiles need their room. */
INLINE bool fills_lines(const void *to)
{
    return (uintptr_t)to % LINE == 0;
}

INLINE void row_store_f32(float *to, const vector *row, bool past)
{
    UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
        if (past && fills_lines(to))
            _mm512_stream_ps(to + v * WIDTH, (__m512)row[v]);
        else
            vector_store(to + v * WIDTH, row[v]);
    }
}

INLINE void row_store_bf16(uint16_t *to, const vector *row, bool past)
{
    const __m512i all = _mm512_inserti64x4(
        _mm512_castsi256_si512(narrowed(row[0])), narrowed(row[1]), 1);

    if (past && fills_lines(to))
        _mm512_stream_si512((__m512i *)(void *)to, all);
    else
        _mm512_storeu_si512(to, all);
}

/* c = left + (sums + bias), each where present, of whole rows. */
static void rows_finish(const struct panel *panel)
{
    const struct matmul_tile *t = panel->tile;
    const float *sums = panel->stack[0];
    vector bias[TILE_VECTORS] = {vector_fill(0), vector_fill(0)};

    for (int v = 0; t->bias && v < TILE_VECTORS; v++)
        bias[v] = widened(t->bias, DTYPE_BF16, v);
    for (int i = 0; i < panel->rows; i++, sums += TILE_COLUMNS) {
        const int64_t at = panel->row + i;
        vector row[TILE_VECTORS];

        UNROLL for (int v = 0; v < TILE_VECTORS; v++) {
            row[v] = vector_load(sums + v * WIDTH);
            if (t->bias) row[v] = bias[v] + row[v];
            if (t->left && t->left_type == DTYPE_F32)
                row[v] = widened((const float *)t->left + at * t->left_stride,
                                 DTYPE_F32, v) + row[v];
            else if (t->left)
                row[v] = widened((const uint16_t *)t->left +
                                     at * t->left_stride,
                                 DTYPE_BF16, v) + row[v];
        }
        if (t->c_type == DTYPE_F32)
            row_store_f32((float *)t->c + at * t->c_stride, row, t->past);
        else
            row_store_bf16((uint16_t *)t->c + at * t->c_stride, row,
                          t->past);
    }
}

static void panel_finish(const struct panel *panel)
{
    float *sums = panel->stack[0];

    if (panel->tile->columns == TILE_COLUMNS) {
        rows_finish(panel);
        return;
    }
    for (int i = 0; i < panel->rows; i++, sums += TILE_COLUMNS)
        CPU(matmul_row_finish)(panel->tile, panel->row + i, sums);
}

/* Asks for what panel_finish will read or fill in part. */
static void panel_ahead(const struct panel *panel)
{
    const struct matmul_tile *t = panel->tile;
    const int64_t c_row = t->c_stride * dtype_bytes(t->c_type);
    const int64_t left_row =
        t->left ? t->left_stride * dtype_bytes(t->left_type) : 0;
    const bool past = t->past && fills_lines(t->c) && c_row % LINE == 0;
    const int last = TILE_COLUMNS * dtype_bytes(t->c_type) - 1;

    for (int i = 0; i < panel->rows; i++) {
        const int64_t at = panel->row + i;
        const char *c = (const char *)t->c + at * c_row;

        if (t->left) __builtin_prefetch((const char *)t->left + at * left_row);
        if (past) continue;
        for (int byte = 0; byte <= last; byte += LINE)
            __builtin_prefetch(c + byte, 1);
        __builtin_prefetch(c + last, 1);
    }
}

/* As CPU(matmul_tile_run). */
static void tile_run(const struct matmul_tile *t)
{
    float stacks[TOGETHER_MAX][SLOTS][TILE] __attribute__((aligned(64)));
    struct panel panels[TOGETHER_MAX];
    const struct matmul_chunk *chunk = t->chunk;
    const int count = (t->rows + PANEL - 1) / PANEL;

    for (int p = 0; p < count; p++) {
        const int row = p * PANEL;

        panels[p] = (struct panel){
            t, row, t->rows - row < PANEL ? t->rows - row : PANEL, stacks[p]};
        slots_move(&panels[p], chunk->slots_before, true);
        if (chunk->last) panel_ahead(&panels[p]);
    }
    for (int i = 0; i < chunk->count; i++)
        for (int p = 0; p < count; p++) step_run(&panels[p], &chunk->steps[i]);
    for (int p = 0; p < count; p++) {
        if (chunk->last) panel_finish(&panels[p]);
        else slots_move(&panels[p], chunk->slots_after, false);
    }
}

const struct matmul_format CPU(format_tiles) = {
    .rows = PANEL, .grain = PRODUCT_BLOCK, .per_word = 2,
    .chunk_words = AMX_CHUNK, .panels = AMX_PANELS, .together = TOGETHER_MAX,
    .pack_rows = CPU(matmul_rows_tiles),
    .pack_columns = CPU(matmul_columns_pairs), .granule = granule_tiles,
    .tile = tile_run, .begin = tiles_begin, .end = tiles_end};
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
