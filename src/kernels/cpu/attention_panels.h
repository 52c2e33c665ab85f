/* SPDX-License-Identifier: Apache-2.0 */
/* attention_panels.h - granules of rows, transposed in panels of QUERIES
 * columns, and products with them. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_PANELS_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_PANELS_H

#include "kernels/cpu/attention.h"

/* Rows [from, to) of a granule that the window has. */
struct span {
    int from, to;
};

/* Rows as chains read them: `x` is row `from` of the span. */
struct rows {
    const float *x;
    int64_t stride;
};

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

/* c = rows of keys or values times a transposed granule, from the column
 * `query` to `end`. */
static inline void panels_chain(struct chains *x, const float *turned,
                                float *c, int query, int end)
{
    for (int panel = query / QUERIES * QUERIES; panel < end; panel += QUERIES) {
        const int from = query > panel ? query : panel;
        const int to = end < panel + QUERIES ? end : panel + QUERIES;

        x->columns = to - from;
        x->b = turned + panel * x->length + from - panel;
        x->c = c + from;
        CPU(attention_chains)(x);
    }
}

#endif
