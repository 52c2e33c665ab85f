/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - spans of a matrix and their cells, as calls of kernels of CUDA
 * have them. */
#ifndef LOCKSTEP_KERNELS_CUDA_SPANS_H
#define LOCKSTEP_KERNELS_CUDA_SPANS_H

#include "kernels/cuda/launch.h"

/* The cells of `high` rows and `wide` columns of a matrix; the spans are still
 * the host's. */
static inline struct cells cells_make(struct cells p, int64_t high,
                                        int64_t wide)
{
    p.high = high;
    p.wide = wide;
    p.all = code_blocks(p.cols, p.col_spans, wide);
    p.count = code_blocks(p.rows, p.row_spans, high) * p.all;
    CHECK(p.count <= INT32_MAX);
    return p;
}

/* For the next kernel. */
static inline status spans_copy(struct stream *stream,
                                const struct quantize_span *spans,
                                int64_t count,
                                const struct quantize_span **out)
{
    return cuda_copy(stream, spans, (size_t)count * sizeof *spans,
                     (const void **)out);
}

static inline status cells_copy(struct stream *stream, struct cells *p)
{
    TRY(spans_copy(stream, p->rows, p->row_spans, &p->rows));
    return spans_copy(stream, p->cols, p->col_spans, &p->cols);
}

#endif
