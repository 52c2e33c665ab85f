/* SPDX-License-Identifier: Apache-2.0 */
/* codes.c - starts the kernels of codes.cu. */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/spans.h"

static struct coding_numbers numbers_of(const struct block_coding *c)
{
    coding_check(c);
    return (struct coding_numbers){code_format(c->format),
                                   grid_format(FORMAT_E4M3),
                                   number_formats[c->format].largest,
                                   number_formats[c->format].bits,
                                   code_blocks(c->cols, c->col_spans,
                                               c->block_cols)};
}

static status coding_copy(struct stream *stream,
                          const struct block_coding *from,
                          struct block_coding *to)
{
    TRY(spans_copy(stream, from->rows, from->row_spans, &to->rows));
    return spans_copy(stream, from->cols, from->col_spans, &to->cols);
}

static status sums_add(struct stream *stream, const struct block_encode *p,
                       const struct codes_call *of, int64_t blocks)
{
    const struct sums_clear_call clear = {
        p->sums, coding_blocks(&p->coding) * CODE_SUMS};
    struct codes_sums_call call = {*of};

    if (p->what == ENCODE_ALL)
        LAUNCH(stream, sums_clear, blocks_of(clear.count), &clear);
    TRY(coding_copy(stream, &p->coding, &call.codes.of.coding));
    LAUNCH(stream, codes_sums, blocks, &call);
    return OK;
}

static status scales_make(struct stream *stream, const struct block_encode *p,
                          const struct codes_call *of)
{
    const struct block_coding *c = &p->coding;
    struct codes_scales_call scales = {*of};
    struct codes_means_call means = {*of};

    if (c->scale == SCALE_MEAN) {
        TRY(coding_copy(stream, c, &means.codes.of.coding));
        LAUNCH(stream, codes_means, 1, &means);
        return OK;
    }
    TRY(coding_copy(stream, c, &scales.codes.of.coding));
    LAUNCH(stream, codes_scales, c->row_spans * c->col_spans * CODES_SHARES,
           &scales);
    return OK;
}

static status peaks_raise(struct stream *stream, const struct block_encode *p,
                          const struct codes_call *of, int64_t blocks)
{
    const struct numbers_clear_call clear = {p->peaks,
                                             coding_blocks(&p->coding)};
    struct codes_peaks_call call = {*of};

    if (p->coding.scale == SCALE_MEAN) return sums_add(stream, p, of, blocks);
    if (p->what == ENCODE_ALL)
        LAUNCH(stream, numbers_clear, blocks_of(clear.count), &clear);
    TRY(coding_copy(stream, &p->coding, &call.codes.of.coding));
    LAUNCH(stream, codes_peaks, blocks, &call);
    return OK;
}

status cuda_block_encode(struct stream *stream, const struct block_encode *p)
{
    const struct block_coding *c = &p->coding;
    const struct codes_call of = {
        *p, numbers_of(c),
        parts_of(p->in.shape[1], CODES_OF_THREAD * BLOCK_THREADS)};
    const int64_t blocks = p->in.shape[0] * of.row_blocks;
    struct codes_write_call codes = {of};
    const struct numbers_clear_call clear = {p->most, 1};

    CHECK(dtype_real(p->in.dtype) == DTYPE_F32 && p->in.stride[1] == 1);
    CHECK(coding_blocks(c) <= INT32_MAX);
    if (p->what != ENCODE_CODES) TRY(peaks_raise(stream, p, &of, blocks));
    if (p->what == ENCODE_PEAKS) return OK;
    if (p->most != NULL) LAUNCH(stream, numbers_clear, 1, &clear);
    TRY(scales_make(stream, p, &of));
    TRY(coding_copy(stream, c, &codes.codes.of.coding));
    LAUNCH(stream, codes_write, blocks, &codes);
    return OK;
}

status cuda_block_decode(struct stream *stream, const struct block_decode *p)
{
    struct codes_read_call call = {*p, numbers_of(&p->coding),
                                   blocks_of(p->out.shape[1])};

    struct codes_row_scales_call scales = {*p, call.numbers};

    decode_check(p);
    CHECK(p->out_scales || dtype_real(p->out.dtype) == DTYPE_F32);
    CHECK(p->out.stride[1] == 1);
    if (p->out_scales) {
        TRY(coding_copy(stream, &p->coding, &scales.of.coding));
        LAUNCH(stream, codes_row_scales,
               blocks_of(p->out.shape[0] * p->coding.col_spans), &scales);
    }
    TRY(coding_copy(stream, &p->coding, &call.of.coding));
    LAUNCH(stream, codes_read, p->out.shape[0] * call.row_blocks, &call);
    return OK;
}
