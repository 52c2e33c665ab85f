/* SPDX-License-Identifier: Apache-2.0 */
/* codes.c - codes and scales of a matrix, element by element. Its operands are
 * bfloat16 or float32 in the tables of both types. */
#include "kernels/kernels.h"
#include "kernels/element.h"
#include "kernels/reference/real.h"

/* The block of an element: where its scale is. */
static int64_t block_at(const struct block_coding *c, int64_t row, int64_t col)
{
    const int64_t i =
        code_block_along(c->rows, c->row_spans, c->block_rows, row);
    const int64_t j =
        code_block_along(c->cols, c->col_spans, c->block_cols, col);

    if (i < 0 || j < 0) return -1;
    return i * code_blocks(c->cols, c->col_spans, c->block_cols) + j;
}

static bool covers(const struct block_encode *p, int64_t row, int64_t col)
{
    const int64_t at = row * p->in.shape[1] + col;

    return p->last == 0 || (at >= p->first && at < p->last);
}

static void element_encode(const struct block_encode *p,
                           const struct code_format *f, int64_t row,
                           int64_t col)
{
    const struct block_coding *c = &p->coding;
    const int64_t block = block_at(c, row, col);

    if (block < 0 || !covers(p, row, col)) return;
    const float v = element_get(p->in.data, p->in.dtype,
                                row * p->in.stride[0] + col);

    if (p->what == ENCODE_PEAKS && c->scale == SCALE_MEAN) {
        const uint32_t own = finite_bits(v);

        p->sums[block * CODE_SUMS + mean_group(own)] += mean_units(own);
        p->sums[block * CODE_SUMS + MEAN_GROUPS] += code_hides(f, v);
        return;
    }
    if (p->what == ENCODE_PEAKS) {
        const uint32_t own = code_peak(f, v);

        if (own > bits_of_f32(p->peaks[block]))
            p->peaks[block] = f32_of_bits(own);
        return;
    }
    const float scale = code_scale_get(p->scales, c->scale, block);
    const float y = f32_of_bits(finite_bits(v)) / block_divisor(scale);

    code_put(p->codes + row * p->row_bytes, number_formats[c->format].bits, col,
             code_make(f, v, grid_nearest(&f->grid, y)));
}

static void elements_encode(const struct block_encode *p)
{
    const struct code_format f = code_format(p->coding.format);

    for (int64_t i = 0; i < p->in.shape[0]; i++)
        for (int64_t j = 0; j < p->in.shape[1]; j++)
            element_encode(p, &f, i, j);
}

static void peaks_begin(const struct block_encode *p)
{
    const int64_t blocks = coding_blocks(&p->coding);

    if (p->coding.scale == SCALE_MEAN)
        for (int64_t i = 0; i < blocks * CODE_SUMS; i++) p->sums[i] = 0;
    else
        for (int64_t i = 0; i < blocks; i++) p->peaks[i] = 0;
}

status NAME(block_encode)(struct stream *stream, const struct block_encode *p)
{
    struct block_encode now = *p;

    (void)stream;
    coding_check(&p->coding);
    if (p->what != ENCODE_CODES) {
        if (p->what == ENCODE_ALL) peaks_begin(p);
        now.what = ENCODE_PEAKS;
        elements_encode(&now);
    }
    if (p->what == ENCODE_PEAKS) return OK;
    if (p->coding.scale == SCALE_MEAN)
        code_means(&p->coding, p->sums, p->scales);
    else
        code_scales(&p->coding, p->peaks, p->scales);
    if (p->most != NULL) *p->most = code_most(&p->coding, p->peaks);
    now.what = ENCODE_CODES;
    elements_encode(&now);
    return OK;
}

/* Element (i, j) as an integer, and the scale of its row in its span. */
static void integer_decode(const struct block_decode *p,
                           const struct code_format *f, int64_t i, int64_t j)
{
    const struct block_coding *c = &p->coding;
    const uint32_t code = code_get(p->codes + i * p->row_bytes,
                                   number_formats[c->format].bits, j);
    int64_t span = 0;

    while (j < c->cols[span].first ||
           j >= c->cols[span].first + c->cols[span].count)
        span++;
    float *own = &p->out_scales[i * c->col_spans + span];

    if (j == c->cols[span].first)
        *own = code_scale_get(p->scales, c->scale, block_at(c, i, j));
    ((int8_t *)p->out.data)[i * p->out.stride[0] + j] = code_integer(f, code);
}

status NAME(block_decode)(struct stream *stream, const struct block_decode *p)
{
    const struct block_coding *c = &p->coding;
    const struct code_format f = code_format(c->format);
    const int bits = number_formats[c->format].bits;

    (void)stream;
    coding_check(c);
    decode_check(p);
    if (p->seen != NULL && *p->most > *p->seen) *p->seen = *p->most;
    for (int64_t i = 0; i < p->out.shape[0]; i++)
        for (int64_t j = 0; j < p->out.shape[1]; j++) {
            const int64_t block = block_at(c, i, j);

            if (block < 0) continue;
            if (p->out_scales != NULL) {
                integer_decode(p, &f, i, j);
                continue;
            }
            element_set(p->out.data, p->out.dtype,
                        i * p->out.stride[0] + j,
                        code_value(&f, code_get(p->codes + i * p->row_bytes,
                                                bits, j),
                                   code_scale_get(p->scales, c->scale,
                                                  block)));
        }
    return OK;
}
