/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h - the pieces of a matrix in spans, for kernels of CUDA. Pieces are
 * counted from the first element of each span; the last ones are short. */
#ifndef LOCKSTEP_KERNELS_CUDA_PIECES_H
#define LOCKSTEP_KERNELS_CUDA_PIECES_H

#include "kernels/cuda/words.h"

/* A piece along rows (columns). */
struct stretch { int64_t span, first, count; };

/* Sizes are below 2^31: a division of 64 bits is a call. */
DEVICE struct stretch stretch_of(const struct quantize_span *spans,
                                 int64_t count, int64_t size, uint32_t number)
{
    struct stretch s = {0, 0, 0};

    for (; s.span < count; s.span++) {
        const uint32_t all = (uint32_t)spans[s.span].count;
        const uint32_t each = size > 0 ? (uint32_t)size : all;
        const uint32_t pieces = all > 0 ? (all + each - 1) / each : 0;

        if (number >= pieces) {
            number -= pieces;
            continue;
        }
        const uint32_t begin = number * each;

        s.first = spans[s.span].first + begin;
        s.count = all - begin < each ? all - begin : each;
        break;
    }
    return s;
}

struct piece { struct stretch rows, cols; };

/* One that is not there has no rows. */
DEVICE struct piece piece_of(const struct pieces *p, int64_t number)
{
    struct piece piece = {{0, 0, 0}, {0, 0, 0}};

    if (number >= p->count) return piece;
    const uint32_t row = (uint32_t)number / (uint32_t)p->all;

    piece.rows = stretch_of(p->rows, p->row_spans, p->high, row);
    piece.cols = stretch_of(p->cols, p->col_spans, p->wide,
                            (uint32_t)number - row * (uint32_t)p->all);
    return piece;
}

#endif
