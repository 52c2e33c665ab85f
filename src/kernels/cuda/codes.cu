/* SPDX-License-Identifier: Apache-2.0 */
/* codes.cu - a matrix as codes of a narrow format and one scale for each block,
 * and back. Peaks are exact maxima and means are made of exact sums, so their
 * order is free. */
#include "kernels/cuda/words.h"
#include "kernels/element.h"

CUDA_KERNEL(numbers_clear)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i < p->count) p->to[i] = 0;
}

/* The number of the block of column `col` in the row of blocks `row`, each of
 * which has `all`; -1: the element is in no span. */
DEVICE int64_t block_in(const struct block_coding *c, int64_t all, int64_t row,
                        int64_t col)
{
    const int64_t at =
        code_block_along(c->cols, c->col_spans, c->block_cols, col);

    return row < 0 || at < 0 ? -1 : row * all + at;
}

/* The columns of a thread. */
struct coded { int64_t row, first, last, blocks; };

DEVICE struct coded coded_of(const struct codes_call *p)
{
    const struct block_coding *c = &p->of.coding;
    const int64_t width = p->of.in.shape[1];
    struct coded of;

    of.row = BLOCK / p->row_blocks;
    of.first = (BLOCK % p->row_blocks * BLOCK_THREADS + THREAD) *
               CODES_OF_THREAD;
    of.last = of.first + CODES_OF_THREAD;
    if (of.last > width) of.last = width;
    of.blocks =
        code_block_along(c->rows, c->row_spans, c->block_rows, of.row);
    return of;
}

/* The block of an element that the call is for; else -1. */
DEVICE int64_t block_of(const struct codes_call *p, const struct coded *of,
                        int64_t col)
{
    const int64_t at = of->row * p->of.in.shape[1] + col;

    if (p->of.last > 0 && (at < p->of.first || at >= p->of.last)) return -1;
    return block_in(&p->of.coding, p->numbers.all, of->blocks, col);
}

DEVICE float coded_at(const struct codes_call *p, int64_t row, int64_t col)
{
    return element_get(p->of.in.data, p->of.in.dtype,
                       row * p->of.in.stride[0] + col);
}

CUDA_KERNEL(codes_peaks)
{
    const struct codes_call *call = &p->codes;
    const struct coded of = coded_of(call);
    int64_t block = -1;
    uint32_t most = 0;

    for (int64_t col = of.first; col < of.last; col++) {
        const int64_t at = block_of(call, &of, col);

        if (at < 0) continue;
        if (block >= 0 && at != block) {
            number_raise(&call->of.peaks[block], f32_of_bits(most));
            most = 0;
        }
        const uint32_t own = code_peak(&call->numbers.format,
                                       coded_at(call, of.row, col));

        block = at;
        most = own > most ? own : most;
    }
    if (block >= 0) number_raise(&call->of.peaks[block], f32_of_bits(most));
}

/* Groups of means, where peaks are of other rules. */
CUDA_KERNEL(codes_sums)
{
    const struct codes_call *call = &p->codes;
    const struct coded of = coded_of(call);

    for (int64_t col = of.first; col < of.last; col++) {
        const int64_t at = block_of(call, &of, col);
        const float v = coded_at(call, of.row, col);
        const uint32_t own = finite_bits(v);
        int64_t *sums = &call->of.sums[at * CODE_SUMS];

        if (at < 0) continue;
        if (own > 0) count_add(&sums[mean_group(own)], mean_units(own));
        if (code_hides(&call->numbers.format, v))
            count_add(&sums[MEAN_GROUPS], 1);
    }
}

CUDA_KERNEL(sums_clear)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i < p->count) p->to[i] = 0;
}

/* One thread: a matrix has few regions. */
CUDA_KERNEL(codes_means)
{
    const struct codes_call *call = &p->codes;

    if (BLOCK == 0 && THREAD == 0)
        code_means(&call->of.coding, call->of.sums,
                   (float *)call->of.scales);
}

/* Blocks of a region: their numbers are first + row * all + column. */
struct region_blocks { int64_t first, all, wide, count; };

DEVICE struct region_blocks region_of(const struct codes_call *p,
                                      int64_t region)
{
    const struct block_coding *c = &p->of.coding;
    const int64_t i = region / c->col_spans, j = region - i * c->col_spans;
    struct region_blocks r;

    r.all = p->numbers.all;
    r.wide = code_blocks(&c->cols[j], 1, c->block_cols);
    r.count = r.wide * code_blocks(&c->rows[i], 1, c->block_rows);
    r.first = code_blocks(c->rows, i, c->block_rows) * r.all +
              code_blocks(c->cols, j, c->block_cols);
    return r;
}

DEVICE int64_t region_block(const struct region_blocks *r, int64_t k)
{
    const int64_t row = (uint32_t)k / (uint32_t)r->wide;

    return r->first + row * r->all + (k - row * r->wide);
}

struct peaks_shared { uint32_t most[BLOCK_THREADS]; };

/* The largest finite peak of a region. */
DEVICE uint32_t region_peak(const float *peaks, const struct region_blocks *r,
                            struct peaks_shared *s)
{
    uint32_t most = 0;

    for (int64_t k = THREAD; k < r->count; k += BLOCK_THREADS) {
        const uint32_t own = finite_bits(peaks[region_block(r, k)]);

        most = own > most ? own : most;
    }
    s->most[THREAD] = most;
    for (int half = BLOCK_THREADS / 2; half > 0; half /= 2) {
        BARRIER;
        if (THREAD < half && s->most[THREAD + half] > s->most[THREAD])
            s->most[THREAD] = s->most[THREAD + half];
    }
    BARRIER;
    return s->most[0];
}

/* CODES_SHARES blocks of threads share the blocks of a region. */
CUDA_KERNEL(codes_scales)
{
    const struct codes_call *call = &p->codes;
    const struct block_coding *c = &call->of.coding;
    const struct region_blocks r = region_of(call, BLOCK / CODES_SHARES);
    const int64_t first = BLOCK % CODES_SHARES * BLOCK_THREADS + THREAD;
    const float largest = call->numbers.largest;
    uint32_t region = 0;
    SHARED(struct peaks_shared, s);

    if (c->scale == SCALE_TWO) region = region_peak(call->of.peaks, &r, s);
    const float outer = code_outer(c, largest, region);

    for (int64_t k = first; k < r.count; k += CODES_SHARES * BLOCK_THREADS) {
        const int64_t at = region_block(&r, k);

        if (call->of.most)
            number_raise(call->of.most,
                         f32_of_bits(finite_bits(call->of.peaks[at])));
        code_scale_set(call->of.scales, c->scale, at,
                       code_scale(c->scale, call->of.peaks[at], largest,
                                  &call->numbers.e4m3, outer));
    }
}

CUDA_KERNEL(codes_write)
{
    const struct codes_call *call = &p->codes;
    const struct code_format *f = &call->numbers.format;
    const struct coded of = coded_of(call);
    uint8_t *to = call->of.codes + of.row * call->of.row_bytes;

    for (int64_t col = of.first; col < of.last; col++) {
        const int64_t block = block_of(call, &of, col);

        if (block < 0) continue;
        const float v = coded_at(call, of.row, col);
        const float scale = code_scale_get(call->of.scales,
                                           call->of.coding.scale, block);
        const float y = f32_of_bits(finite_bits(v)) / block_divisor(scale);

        code_put(to, call->numbers.bits, col,
                 code_make(f, v, grid_nearest(&f->grid, y)));
    }
}

/* A thread has the scale of a row in a span of columns. */
CUDA_KERNEL(codes_row_scales)
{
    const struct block_coding *c = &p->of.coding;
    const int64_t at = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t row = at / c->col_spans, span = at % c->col_spans;

    if (row >= p->of.out.shape[0] || c->cols[span].count == 0) return;
    const int64_t block = block_in(
        c, p->numbers.all,
        code_block_along(c->rows, c->row_spans, c->block_rows, row),
        c->cols[span].first);

    if (block >= 0)
        p->of.out_scales[at] =
            code_scale_get(p->of.scales, c->scale, block);
}

/* A thread has an element. */
CUDA_KERNEL(codes_read)
{
    const struct block_coding *c = &p->of.coding;
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t col =
        (BLOCK - row * p->row_blocks) * BLOCK_THREADS + THREAD;

    if (p->of.seen && BLOCK == 0 && THREAD == 0)
        number_raise(p->of.seen, *p->of.most);
    if (col >= p->of.out.shape[1]) return;
    const int64_t block = block_in(
        c, p->numbers.all,
        code_block_along(c->rows, c->row_spans, c->block_rows, row), col);

    if (block < 0) return;
    const uint32_t code = code_get(p->of.codes + row * p->of.row_bytes,
                                   p->numbers.bits, col);

    if (p->of.out_scales) {
        ((int8_t *)p->of.out.data)[row * p->of.out.stride[0] + col] =
            code_integer(&p->numbers.format, code);
        return;
    }
    element_set(p->of.out.data, p->of.out.dtype,
                row * p->of.out.stride[0] + col,
                code_value(&p->numbers.format, code,
                           code_scale_get(p->of.scales, c->scale, block)));
}
