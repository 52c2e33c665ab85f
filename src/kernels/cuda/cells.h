/* SPDX-License-Identifier: Apache-2.0 */
/* cells.h - the cells of a matrix in spans, for kernels of CUDA. Cells are
 * counted from the first element of each span; the last ones are short. */
#ifndef LOCKSTEP_KERNELS_CUDA_CELLS_H
#define LOCKSTEP_KERNELS_CUDA_CELLS_H

#include "kernels/cuda/words.h"

/* A cell along rows (columns). */
struct stretch { int64_t span, first, count; };

/* Sizes are below 2^31: a division of 64 bits is a call. */
DEVICE struct stretch stretch_of(const struct quantize_span *spans,
                                 int64_t count, int64_t size, uint32_t number)
{
    struct stretch s = {0, 0, 0};

    for (; s.span < count; s.span++) {
        const uint32_t all = (uint32_t)spans[s.span].count;
        const uint32_t each = size > 0 ? (uint32_t)size : all;
        const uint32_t cells = all > 0 ? (all + each - 1) / each : 0;

        if (number >= cells) {
            number -= cells;
            continue;
        }
        const uint32_t begin = number * each;

        s.first = spans[s.span].first + begin;
        s.count = all - begin < each ? all - begin : each;
        break;
    }
    return s;
}

struct cell { struct stretch rows, cols; };

/* One that is not there has no rows. */
DEVICE struct cell cell_of(const struct cells *p, int64_t number)
{
    struct cell cell = {{0, 0, 0}, {0, 0, 0}};

    if (number >= p->count) return cell;
    const uint32_t row = (uint32_t)number / (uint32_t)p->all;

    cell.rows = stretch_of(p->rows, p->row_spans, p->high, row);
    cell.cols = stretch_of(p->cols, p->col_spans, p->wide,
                            (uint32_t)number - row * (uint32_t)p->all);
    return cell;
}

#endif
