/* SPDX-License-Identifier: Apache-2.0 */
/* attention_panels.h - granules of rows, transposed in panels of QUERIES
 * columns, and products with them. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_PANELS_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_ATTENTION_PANELS_H

#include "kernels/cpu/attention/attention.h"

/* Rows [from, to) of a granule that the window has. */
struct span {
    int from, to;
};

/* Rows of a granule as products read them: `x` is row `from` of the span. Where
 * they are packed, from row 0 on (`x` is then no row and stride 0): as panels
 * of a [G, words of the width], as strips of b [words of rows, width] and,
 * transposed, [words of the width, G]. */
struct rows {
    const float *x;
    int64_t stride;
    const uint32_t *panels, *strips, *turned; /* NULL: not packed */
};

/* Rows of a head, in `copy` where they cannot be read in place. */
static inline struct rows rows_find(const struct attention_part *part,
                                    float *copy)
{
    struct rows rows = {.panels = NULL};

    rows.x = CPU(attention_rows)(part, copy, &rows.stride);
    return rows;
}

/* x->a = rows from `row` on; packed ones from a multiple of 32. */
static inline void rows_left(struct chains *x, const struct rows *rows, int row)
{
    x->a = rows->x + row * rows->stride;
    x->a_row = rows->stride;
    x->a_step = 1;
    x->a_panels = rows->panels ? rows->panels + row * (x->length / 2) : NULL;
}

/* x->b = rows from `row` on, a chain each column; packed ones from a multiple
 * of PRODUCT_BLOCK. */
static inline void rows_right(struct chains *x, const struct rows *rows,
                              int row)
{
    x->b = rows->x + row * rows->stride;
    x->b_step = rows->stride;
    x->b_strips = rows->strips ? rows->strips + row / 2 * STRIP_COLUMNS : NULL;
    x->b_strip = G / 2 * STRIP_COLUMNS;
}

/* Packs `count` rows, `width` wide, for products that have them on the left. */
static inline void rows_pack_left(const struct attention_products *products,
                                  const struct rows *rows, int count, int width,
                                  uint32_t *out)
{
    struct chains x = {.rows = count, .length = width, .lag = CHAINS_WHOLE};

    rows_left(&x, rows, 0);
    products->panels_pack(&x, out);
}

/* Like rows_pack_left, on the right. */
static inline void rows_pack_right(const struct attention_products *products,
                                   const struct rows *rows, int count,
                                   int width, uint32_t *out)
{
    struct chains x = {.columns = width, .length = count};

    rows_right(&x, rows, 0);
    products->strips_pack(&x, out);
}

/* Transposes a granule, in panels of QUERIES columns. */
static inline void panels_turn(float *out, const struct rows *rows,
                               struct span span, int width)
{
    for (int panel = 0; panel < G; panel += QUERIES) {
        const int skipped = panel > span.from ? panel - span.from : 0;
        const int range[2] = {span.from > panel ? span.from - panel : 0,
                              span.to - panel};

        CPU(attention_pack_columns)(out + panel * width, QUERIES,
                                    rows->x + skipped * rows->stride,
                                    rows->stride, range, width);
    }
}

/* c = rows of keys or values times a granule of queries, transposed in panels
 * or packed, of the columns of a range. */
static inline void panels_chain(const struct attention_products *products,
                                struct chains *x, const struct rows *rows,
                                const float *turned, float *c,
                                const int range[2])
{
    const int query = range[0], end = range[1];

    if (rows->turned) {
        x->columns = end - query;
        x->b_strip = x->length / 2 * STRIP_COLUMNS;
        x->b_strips = rows->turned + query / STRIP_COLUMNS * x->b_strip;
        x->c = c + query;
        products->run(x);
        return;
    }
    x->b_strips = NULL;
    for (int panel = query / QUERIES * QUERIES; panel < end; panel += QUERIES) {
        const int from = query > panel ? query : panel;
        const int to = end < panel + QUERIES ? end : panel + QUERIES;

        x->columns = to - from;
        x->b = turned + panel * x->length + from - panel;
        x->c = c + from;
        products->run(x);
    }
}

#endif
