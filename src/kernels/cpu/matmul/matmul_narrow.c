/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_narrow.c - products of 16-bit operands with float32 chains: float16
 * everywhere, bfloat16 where the processor lacks an instruction.
 *
 * Operands are widened when they are packed, in the order in which the
 * definition adds them: pairs with the odd element first (matmul_pack.c); of a
 * block of PRODUCT_BLOCK elements first the even, then the odd ones. Chains of
 * bfloat16 are those of float32 where nothing can be denormal (matmul_plain),
 * as nearly always. Else they run with MXCSR's flushing on, which is exactly
 * the definition's (pairs in matmul_granule.c); where there is no such thing
 * they are done with integers and float64. */
#include "kernels/cpu/flushing.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/scratch.h"
#include "kernels/element.h"
#include "kernels/flush.h"
#include "kernels/narrow_product.h"

enum widening { WIDEN_F16, WIDEN_PAIRS, WIDEN_BLOCKS };

/* One row of words to the rows of their low and their high elements. */
INLINE void row_widen(uint32_t *low, uint32_t *high, const uint32_t *from,
                      const int width, const enum widening how)
{
    _Pragma("omp simd")
    for (int j = 0; j < width; j++) {
        uint32_t word = from[j];

        if (how == WIDEN_F16) {
            low[j] = bits_of_f32(element_from_f16(word & 0xFFFF));
            if (high) high[j] = bits_of_f32(element_from_f16(word >> 16));
        } else {
            low[j] = word << 16;
            high[j] = word & 0xFFFF0000u;
        }
    }
}

/* A block of pairs, `count` elements of it present. */
INLINE void block_widen(uint32_t *out, const uint32_t *pairs, int count,
                        const int width, const enum widening how)
{
    enum { HALF = PRODUCT_BLOCK / 2 };

    for (int p = 0; 2 * p < count; p++, pairs += width) {
        uint32_t *to = out + 2 * p * width;

        if (how == WIDEN_F16)
            row_widen(to, 2 * p + 1 < count ? to + width : NULL, pairs, width,
                      how);
        else if (how == WIDEN_PAIRS)
            row_widen(to + width, to, pairs, width, how);
        else
            row_widen(out + p * width, out + (p + HALF) * width, pairs, width,
                      how);
    }
    if (how != WIDEN_BLOCKS) return;
    for (int p = (count + 1) / 2; p < HALF; p++) {
        memset(out + p * width, 0, sizeof *out * (size_t)width);
        memset(out + (p + HALF) * width, 0, sizeof *out * (size_t)width);
    }
}

/* One panel or strip. */
INLINE void pack(uint32_t *out, const int width,
                 const struct matmul_source *source,
                 const struct matmul_slab *slab, const enum widening how)
{
    uint32_t room[PRODUCT_BLOCK / 2 * (TILE_ROWS + TILE_COLUMNS)];

    for (int i = 0; i < slab->count; i++) {
        const struct matmul_step *step = &slab->steps[i];

        for (int done = 0; done < step->length; done += PRODUCT_BLOCK) {
            const int64_t first = step->first + done;
            const uint32_t *pairs = room;
            struct matmul_source s = *source;
            int count = step->length - done;

            if (count > PRODUCT_BLOCK) count = PRODUCT_BLOCK;
            s.from = element_at(s.from, DTYPE_BF16, first * s.step);
            if (s.strip) pairs = s.strip + first / 2 * width;
            else CPU(matmul_pack_pairs)(room, width, &s, count);
            block_widen(out + (int64_t)(step->offset + done) * width, pairs,
                        count, width, how);
        }
    }
}

INLINE void pack_rows(uint32_t *out, const struct matmul_source *source,
                      const struct matmul_slab *slab, const enum widening how)
{
    int64_t size = (int64_t)TILE_ROWS * slab->words;

    for (int row = 0; row < source->count; row += TILE_ROWS, out += size) {
        struct matmul_source s = *source;

        s.from = element_at(s.from, DTYPE_BF16, row * s.stride);
        s.count = source->count - row < TILE_ROWS ? source->count - row
                                                  : TILE_ROWS;
        pack(out, TILE_ROWS, &s, slab, how);
    }
}

#define PACKERS(name, how)                                                  \
    static void rows_##name(uint32_t *out, const struct matmul_source *s,   \
                            const struct matmul_slab *slab)               \
    {                                                                       \
        pack_rows(out, s, slab, how);                                      \
    }                                                                       \
    static void columns_##name(uint32_t *out, const struct matmul_source *s,\
                               const struct matmul_slab *slab)            \
    {                                                                       \
        pack(out, TILE_COLUMNS, s, slab, how);                             \
    }
PACKERS(f16, WIDEN_F16)
PACKERS(blocks, WIDEN_BLOCKS)

static void columns_pairs(uint32_t *out, const struct matmul_source *source,
                          const struct matmul_slab *slab)
{
    if (source->strip) pack(out, TILE_COLUMNS, source, slab, WIDEN_PAIRS);
    else CPU(matmul_columns_widened)(out, source, slab);
}

/* ---- chains that flush ---- */

uint32_t CPU(matmul_least)(const uint32_t *words, int64_t count)
{
    uint32_t least = UINT32_MAX;

    _Pragma("omp simd reduction(min : least)")
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (words[i] & 0x7FFFFFFFu) - 1;

        least = bits < least ? bits : least;
    }
    return least;
}

#if MODE_FLUSHES
static void chains(const struct matmul_granule *g)
{
    CPU(matmul_chains)(g);
}

static void few_pairs(const struct matmul_few *f)
{
    unsigned before = flushing_begin();

    CPU(matmul_few_widened)(f);
    flushing_end(before);
}

static void line_pairs(const struct matmul_line *l)
{
    unsigned before = flushing_begin();

    CPU(matmul_line_widened)(l);
    flushing_end(before);
}

/* sums += even + odd; a call of its own, so that no operation of it leaves the
 * flushing part. */
__attribute__((noinline)) static void blocks_add(float *sums, const float *even,
                                                 const float *odd, int count)
{
    SIMD for (int j = 0; j < count; j++)
        sums[j] = sums[j] + (even[j] + odd[j]);
}
#else
#define few_pairs NULL
#define line_pairs NULL

static void chains(const struct matmul_granule *g)
{
    const float *a = (const float *)g->a, *b = (const float *)g->b;

    for (int i = 0; i < g->rows; i++) {
        float *sums = g->to + i * g->stride;

        for (int j = 0; j < TILE_COLUMNS; j++) sums[j] = 0;
        for (int w = 0; w < g->words; w++)
            SIMD for (int j = 0; j < TILE_COLUMNS; j++)
                sums[j] = flushed_fma(a[w * TILE_ROWS + i],
                                      b[w * TILE_COLUMNS + j], sums[j]);
    }
}

static void blocks_add(float *sums, const float *even, const float *odd,
                       int count)
{
    SIMD for (int j = 0; j < count; j++)
        sums[j] = flushed_add(sums[j], flushed_add(even[j], odd[j]));
}
#endif

/* The granule's sums to where they belong, in plain arithmetic. */
static void granule_add(const struct matmul_granule *g, const float *sums)
{
    for (int i = 0; i < g->rows; i++) {
        float *to = g->to + i * g->stride;
        const float *from = sums + i * TILE_COLUMNS;

        if (g->assign)
            memcpy(to, from, sizeof *to * TILE_COLUMNS);
        else
            SIMD for (int j = 0; j < TILE_COLUMNS; j++) to[j] = to[j] + from[j];
    }
}

#if MODE_FLUSHES
#define MERGES true

static void granule_pairs(const struct matmul_granule *g)
{
    if (g->plain) CPU(matmul_chains)(g);
    else CPU(matmul_chains_flushing)(g);
}
#else
#define MERGES false

static void granule_pairs(const struct matmul_granule *g)
{
    float sums[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    struct matmul_granule flushing = *g;

    if (g->plain) {
        CPU(matmul_chains)(g);
        return;
    }
    flushing.to = sums;
    flushing.stride = TILE_COLUMNS;
    chains(&flushing);
    granule_add(g, sums);
}
#endif

static void granule_blocks(const struct matmul_granule *g)
{
    enum { HALF = PRODUCT_BLOCK / 2, COUNT = TILE_ROWS * TILE_COLUMNS };
    float sums[COUNT] __attribute__((aligned(64))) = {0};
    float parts[2][COUNT] __attribute__((aligned(64)));
    struct matmul_granule half = *g;
    unsigned before = g->plain ? 0 : flushing_begin();

    half.stride = TILE_COLUMNS;
    half.assign = true;
    half.below = NULL;
    half.words = HALF;
    for (int w = 0; w < g->words; w += PRODUCT_BLOCK) {
        for (int odd = 0; odd < 2; odd++) {
            half.to = parts[odd];
            if (g->plain) CPU(matmul_chains)(&half);
            else chains(&half);
            half.a += HALF * TILE_ROWS;
            half.b += HALF * TILE_COLUMNS;
        }
        blocks_add(sums, parts[0], parts[1], g->rows * TILE_COLUMNS);
    }
    if (!g->plain) flushing_end(before);
    granule_add(g, sums);
}

#define FORMAT .rows = TILE_ROWS, .per_word = 1, .panels = MATMUL_PANELS, \
               .together = 1, .slab_words = MATMUL_SLAB

const struct matmul_format CPU(format_f16) = {
    FORMAT, .grain = 1, .pack_rows = rows_f16, .pack_columns = columns_f16,
    .granule = CPU(matmul_chains)};
const struct matmul_format CPU(format_pairs_emulated) = {
    FORMAT, .grain = 2, .widened = true, .merges = MERGES, .flushes = true,
    .pack_rows = CPU(matmul_rows_widened),
    .pack_columns = columns_pairs, .granule = granule_pairs,
    .few = few_pairs, .line = line_pairs};
const struct matmul_format CPU(format_tiles_emulated) = {
    FORMAT, .grain = PRODUCT_BLOCK, .widened = true, .flushes = true,
    .pack_rows = rows_blocks,
    .pack_columns = columns_blocks, .granule = granule_blocks};
