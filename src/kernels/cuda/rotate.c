/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.c - starts the kernels of rotate.cu. */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/spans.h"

status cuda_rotate(struct stream *stream, const struct rotate *p)
{
    const struct cells spans = {.rows = p->rows, .cols = p->cols,
                                 .row_spans = p->row_spans,
                                 .col_spans = p->col_spans};
    struct rotate_runs_call call = {
        *p, cells_make(spans, p->columns ? ROTATE_RUN : 1,
                        p->columns ? 1 : ROTATE_RUN)};

    CHECK(p->out.dtype == DTYPE_F32 && dtype_real(p->in.dtype) == DTYPE_F32);
    CHECK(p->out.stride[1] == 1 && p->in.stride[1] == 1);
    TRY(cells_copy(stream, &call.cells));
    LAUNCH(stream, rotate_runs, blocks_of(call.cells.count), &call);
    return OK;
}

status cuda_unrotate(struct stream *stream, const struct unrotate *p)
{
    const struct quantize_span rows = {.count = p->out.shape[0]};
    const struct cells spans = {.rows = &rows, .cols = p->cols,
                                 .row_spans = 1, .col_spans = p->col_spans};
    struct unrotate_runs_call call = {
        .of = *p, .cells = cells_make(spans, 1, ROTATE_RUN),
        .e4m3 = grid_format(FORMAT_E4M3),
        .largest = number_formats[p->format].largest};

    CHECK(dtype_real(p->out.dtype) == DTYPE_F32 && p->x.dtype == DTYPE_BF16);
    CHECK(p->out.stride[1] == 1 && p->gradient.stride[1] == 1);
    if (p->left) call.left = *p->left;
    TRY(cells_copy(stream, &call.cells));
    LAUNCH(stream, unrotate_runs, blocks_of(call.cells.count), &call);
    return OK;
}
