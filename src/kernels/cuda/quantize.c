/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - starts the kernels of quantize.cu. */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/spans.h"

enum { PART_ROWS = QUANTIZE_TURN, PART_COLUMNS = BLOCK_THREADS };

/* Whether the scale of a block depends on its own elements. */
static bool rule_looks(enum scale_rule rule)
{
    return rule != SCALE_NONE && rule != SCALE_LATE && rule != SCALE_MEAN;
}

/* Rows and columns of a cell. Parts of blocks have the same scale where nobody
 * must look at all elements of one; a row of codes has one scale. */
static void cells_choose(struct quantize_call *call)
{
    const struct quantize *q = &call->of;
    const bool region = q->block_rows == 0 && q->block_cols == 0;
    int64_t high = q->block_rows, wide = q->block_cols;

    call->looks = rule_looks(q->scale);
    call->whole = call->looks && region && q->peaks;
    if (call->whole) call->looks = false;
    if (!call->looks) {
        high = q->scales ? 1 : PART_ROWS;
        wide = q->scales ? 0 : PART_COLUMNS;
    }
    call->cells = cells_make(call->cells, high, wide);
    call->team = wide == 0 ? BLOCK_THREADS : 1;
    while (call->team < wide && call->team < BLOCK_THREADS) call->team *= 2;
    if (q->scale == SCALE_GAUSS) call->team = LANES;
}

/* Regions are looked at first: the largest magnitude, or the mean. */
static status regions_look(struct stream *stream,
                           const struct quantize_call *of)
{
    const struct quantize *q = &of->of;
    const bool keeps = of->whole || q->scale == SCALE_TWO;
    struct quantize_peaks_call peaks = {*of};
    struct quantize_means_call means = {*of};
    const struct numbers_clear_call clear = {q->peaks,
                                             q->row_spans * q->col_spans};

    peaks.call.cells = means.call.cells = cells_make(of->cells, 0, 0);
    if (keeps) LAUNCH(stream, numbers_clear, blocks_of(clear.count), &clear);
    if (keeps || q->seen) {
        TRY(cells_copy(stream, &peaks.call.cells));
        LAUNCH(stream, quantize_peaks,
               peaks.call.cells.count * QUANTIZE_SHARES, &peaks);
    }
    if (q->scale == SCALE_MEAN) {
        TRY(cells_copy(stream, &means.call.cells));
        LAUNCH(stream, quantize_means, means.call.cells.count, &means);
    }
    return OK;
}

status cuda_quantize(struct stream *stream, const struct quantize *p)
{
    struct quantize_blocks_call blocks = {
        {.of = *p,
         .cells = {.rows = p->rows, .cols = p->cols,
                    .row_spans = p->row_spans, .col_spans = p->col_spans},
         .format = grid_format(p->format), .e4m3 = grid_format(FORMAT_E4M3)}};
    struct quantize_call *call = &blocks.call;

    quantize_check(p);
    CHECK(p->in.stride[1] == 1 && p->out.stride[1] == 1);
    CHECK(!p->turn || p->block_rows == QUANTIZE_TURN);
    CHECK(!p->turn || p->scale != SCALE_MEAN);
    CHECK(p->scale != SCALE_GAUSS || (p->block_rows == 1 && p->block_cols > 0));
    CHECK((p->scale != SCALE_TWO && p->scale != SCALE_MEAN) || p->peaks);
    cells_choose(call);
    TRY(regions_look(stream, call));
    TRY(cells_copy(stream, &call->cells));
    if (p->rounding == ROUND_STOCHASTIC)
        TRY(cuda_copy(stream, p->places,
                      (size_t)p->in.shape[0] * sizeof *p->places,
                      (const void **)&call->of.places));
    LAUNCH(stream, quantize_blocks,
           parts_of(call->cells.count, BLOCK_THREADS / call->team), &blocks);
    return OK;
}
