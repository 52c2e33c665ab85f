/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx_pack.c - rows of a in panels for the processor's tiles: squares of
 * 16 rows and 16 words. */
#include "kernels/cpu/matmul.h"

#if defined(__AVX512F__)
#include "kernels/element.h"
#include "kernels/narrow_product.h"

enum {
    SIDE = 16,                 /* rows of a register, words of a row */
    ROW_BYTES = SIDE * 4,
    PANEL = 2 * SIDE,          /* rows */
    BLOCK_WORDS = PANEL * SIDE /* of a panel, for PRODUCT_BLOCK elements */
};

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

void CPU(matmul_rows_tiles)(uint32_t *out, const struct matmul_source *source,
                            const struct matmul_chunk *chunk)
{
    if (source->stride == 1 && source->step != 1)
        rows_turned(out, source, chunk);
    else
        rows_straight(out, source, chunk);
}
#else
/* A file has at least one declaration. */
extern const struct matmul_format CPU(format_tiles);
#endif
