/* SPDX-License-Identifier: Apache-2.0 */
/* codes.c - codes and scales of a matrix: threads share out groups of rows,
 * which no block of several rows crosses; columns are taken in strips. */
#include "kernels/codes.h"
#include "kernels/cpu/means.h"
#include "kernels/element.h"

enum { STRIP = QUANTIZE_BLOCK_MOST, GROUP = 16 };

/* One of the two calls. */
struct code_job {
    const struct block_encode *to;
    const struct block_decode *from;
    const struct block_coding *c;
    struct code_format f;
    int64_t height, groups, strip; /* rows of a group, groups, columns */
    int64_t wide;                  /* blocks of a row */
};

/* Rows [row, row + rows) by columns [col, col + width); block: that of its
 * first element; span: of columns. */
struct patch { int64_t row, rows, col, width, block, span; };

static struct code_job job_of(const struct block_coding *c)
{
    struct code_job job = {
        .c = c, .f = code_format(c->format),
        .height = c->block_rows > 0 ? c->block_rows : GROUP, .strip = STRIP,
        .wide = code_blocks(c->cols, c->col_spans, c->block_cols)};

    if (c->block_cols > 0) job.strip = STRIP / c->block_cols * c->block_cols;
    job.groups = code_blocks(c->rows, c->row_spans, job.height);
    return job;
}

/* The columns of the patch's row r that the call is for. */
static void window(const struct code_job *job, const struct patch *x, int64_t r,
                   int64_t *from, int64_t *to)
{
    const struct block_encode *p = job->to;
    const int64_t at = (x->row + r) * p->in.shape[1] + x->col;

    *from = 0;
    *to = x->width;
    if (p->last == 0) return;
    if (p->first > at) *from = p->first - at;
    if (p->last < at + x->width) *to = p->last - at;
}

/* ---- peaks ---- */

ELEMENTARY void row_peaks(enum dtype dtype, const struct code_format *f,
                          const void *in, int64_t from, int64_t to,
                          uint32_t *most)
{
    const struct code_format own = *f;

    SIMD for (int64_t c = from; c < to; c++) {
        const uint32_t bits = code_peak(&own, element_get(in, dtype, c));

        most[c] = bits > most[c] ? bits : most[c];
    }
}

static void patch_sums(const struct code_job *job, const struct patch *x)
{
    const struct block_encode *p = job->to;
    int64_t sums[CODE_SUMS] = {0}, *to = p->sums + x->block * CODE_SUMS;

    for (int64_t r = 0; r < x->rows; r++) {
        const void *in =
            element_at(p->in.data, p->in.dtype,
                       (x->row + r) * p->in.stride[0] + x->col);
        int64_t from, end;

        window(job, x, r, &from, &end);
        means_add(p->in.dtype, in, from, end, sums);
        for (int64_t c = from; c < end; c++)
            sums[MEAN_GROUPS] +=
                code_hides(&job->f, element_get(in, p->in.dtype, c));
    }
    for (int i = 0; i < CODE_SUMS; i++)
        if (sums[i] > 0)
            __atomic_fetch_add(&to[i], sums[i], __ATOMIC_RELAXED);
}

static void patch_peaks(const struct code_job *job, const struct patch *x)
{
    const struct block_encode *p = job->to;
    const int64_t block = job->c->block_cols;
    uint32_t most[STRIP] = {0};

    if (job->c->scale == SCALE_MEAN) {
        patch_sums(job, x);
        return;
    }
    for (int64_t r = 0; r < x->rows; r++) {
        const void *in =
            element_at(p->in.data, p->in.dtype,
                       (x->row + r) * p->in.stride[0] + x->col);
        int64_t from, to;

        window(job, x, r, &from, &to);
        if (p->in.dtype == DTYPE_BF16)
            row_peaks(DTYPE_BF16, &job->f, in, from, to, most);
        else
            row_peaks(DTYPE_F32, &job->f, in, from, to, most);
    }
    for (int64_t c = 0, at = x->block; c < x->width; at++) {
        const int64_t end = block > 0 && c + block < x->width ? c + block
                                                              : x->width;
        uint32_t one = 0;

        for (; c < end; c++) one = most[c] > one ? most[c] : one;
        magnitude_raise(&p->peaks[at], one);
    }
}

/* ---- codes ---- */

/* Scales of the columns of a patch; of powers of two, what numbers are
 * multiplied by instead. */
struct code_scales { float scale[STRIP], by[STRIP]; };

static void scales_get(const struct code_job *job, const struct patch *x,
                       const void *scales, struct code_scales *out)
{
    const enum scale_rule rule = job->c->scale;
    const int64_t block = job->c->block_cols;

    for (int64_t c = 0, at = x->block; c < x->width; at++) {
        const int64_t end = block > 0 && c + block < x->width ? c + block
                                                              : x->width;
        const float s = code_scale_get(scales, rule, at);
        const float by = scale_is_power(rule) && s == s
                             ? f32_of_bits(0x7F000000u - bits_of_f32(s))
                             : block_divisor(s);

        for (; c < end; c++) {
            out->scale[c] = s;
            out->by[c] = by;
        }
    }
}

/* A row of a patch: elements [from, to). */
struct code_row { const void *in; int64_t from, to; };

/* dtype and powers are constants. */
ELEMENTARY void row_codes(enum dtype dtype, bool powers,
                          const struct code_format *f,
                          const struct code_row *row,
                          const struct code_scales *s, uint16_t *out)
{
    const struct code_format own = *f;
    const void *in = row->in;

    SIMD for (int64_t c = row->from; c < row->to; c++) {
        const float v = element_get(in, dtype, c);
        const float a = f32_of_bits(finite_bits(v));
        const float y = powers ? a * s->by[c] : a / s->by[c];

        out[c] = (uint16_t)code_make(&own, v, grid_nearest(&own.grid, y));
    }
}

static void row_pack(const uint16_t *codes, int bits, uint8_t *row,
                     int64_t first, int64_t from, int64_t to)
{
    int64_t c = from;

    if (bits == 8) {
        SIMD for (int64_t i = from; i < to; i++)
            row[first + i] = (uint8_t)codes[i];
        return;
    }
    if (bits == 4) {
        if (c < to && (first + c) % 2 != 0) {
            code_put(row, 4, first + c, codes[c]);
            c++;
        }
        uint8_t *pairs = row + (first + c) / 2;
        const int64_t count = (to - c) / 2;
        const uint16_t *in = codes + c;

        SIMD for (int64_t i = 0; i < count; i++)
            pairs[i] = (uint8_t)(in[2 * i] | in[2 * i + 1] << 4);
        c += 2 * count;
    }
    for (; bits == 2 && c < to && (first + c) % 4 != 0; c++)
        code_put(row, 2, first + c, codes[c]);
    for (; bits == 2 && c + 4 <= to; c += 4)
        row[(first + c) / 4] =
            (uint8_t)(codes[c] | codes[c + 1] << 2 | codes[c + 2] << 4 |
                      codes[c + 3] << 6);
    for (; c < to; c++) code_put(row, bits, first + c, codes[c]);
}

#define CODES(dtype, powers) \
    row_codes(dtype, powers, &job->f, &row, &scales, codes)

static void patch_encode(const struct code_job *job, const struct patch *x)
{
    const struct block_encode *p = job->to;
    const bool powers = scale_is_power(job->c->scale);
    const int bits = number_formats[job->c->format].bits;
    struct code_scales scales;
    uint16_t codes[STRIP];

    scales_get(job, x, p->scales, &scales);
    for (int64_t r = 0; r < x->rows; r++) {
        struct code_row row = {
            .in = element_at(p->in.data, p->in.dtype,
                             (x->row + r) * p->in.stride[0] + x->col)};

        window(job, x, r, &row.from, &row.to);
        if (row.from >= row.to) continue;
        if (p->in.dtype == DTYPE_BF16 && powers) CODES(DTYPE_BF16, true);
        else if (p->in.dtype == DTYPE_BF16) CODES(DTYPE_BF16, false);
        else if (powers) CODES(DTYPE_F32, true);
        else CODES(DTYPE_F32, false);
        row_pack(codes, bits, p->codes + (x->row + r) * p->row_bytes, x->col,
                 row.from, row.to);
    }
}

/* ---- numbers ---- */

ELEMENTARY void row_values(enum dtype dtype, const struct code_format *f,
                           const uint16_t *codes, const float *scale,
                           int64_t width, void *out)
{
    const struct code_format own = *f;

    SIMD for (int64_t c = 0; c < width; c++)
        element_set(out, dtype, c, code_value(&own, codes[c], scale[c]));
}

static void row_unpack(const uint8_t *row, int bits, int64_t first,
                       int64_t width, uint16_t *codes)
{
    int64_t c = 0;

    if (bits == 8) {
        SIMD for (int64_t i = 0; i < width; i++) codes[i] = row[first + i];
        return;
    }
    if (bits == 4) {
        if (first % 2 != 0) codes[c++] = row[first / 2] >> 4;
        const uint8_t *pairs = row + (first + c) / 2;
        uint16_t *out = codes + c;
        const int64_t count = (width - c) / 2;

        SIMD for (int64_t i = 0; i < count; i++) {
            out[2 * i] = pairs[i] & 15;
            out[2 * i + 1] = pairs[i] >> 4;
        }
        c += 2 * count;
    }
    for (; bits == 2 && c < width && (first + c) % 4 != 0; c++)
        codes[c] = (uint16_t)code_get(row, 2, first + c);
    if (bits == 2) {
        const uint8_t *fours = row + (first + c) / 4;
        uint16_t *out = codes + c;
        const int64_t count = (width - c) / 4;

        SIMD for (int64_t i = 0; i < count; i++)
            for (int k = 0; k < 4; k++)
                out[4 * i + k] = fours[i] >> (2 * k) & 3;
        c += 4 * count;
    }
    for (; c < width; c++)
        codes[c] = (uint16_t)code_get(row, bits, first + c);
}

static void row_integers(const struct code_format *f, const uint16_t *codes,
                         int64_t width, int8_t *out)
{
    const struct code_format own = *f;

    SIMD for (int64_t c = 0; c < width; c++)
        out[c] = code_integer(&own, codes[c]);
}

static void patch_decode(const struct code_job *job, const struct patch *x)
{
    const struct block_decode *p = job->from;
    const int bits = number_formats[job->c->format].bits;
    struct code_scales scales;
    uint16_t codes[STRIP];

    scales_get(job, x, p->scales, &scales);
    for (int64_t r = 0; r < x->rows; r++) {
        void *out = element_at(p->out.data, p->out.dtype,
                               (x->row + r) * p->out.stride[0] + x->col);

        row_unpack(p->codes + (x->row + r) * p->row_bytes, bits, x->col,
                   x->width, codes);
        if (p->out_scales != NULL) {
            p->out_scales[(x->row + r) * job->c->col_spans + x->span] =
                scales.scale[0];
            row_integers(&job->f, codes, x->width,
                         (int8_t *)p->out.data +
                             (x->row + r) * p->out.stride[0] + x->col);
            continue;
        }
        if (p->out.dtype == DTYPE_BF16)
            row_values(DTYPE_BF16, &job->f, codes, scales.scale, x->width, out);
        else
            row_values(DTYPE_F32, &job->f, codes, scales.scale, x->width, out);
    }
}

/* ---- groups of rows ---- */

/* The patches of a group: rows [row, row + rows) of row block `high`. */
static void group_each(const struct code_job *job, int64_t row, int64_t rows,
                       int64_t high,
                       void (*each)(const struct code_job *,
                                    const struct patch *))
{
    const int64_t block = job->c->block_cols;
    int64_t before = high * job->wide;

    for (int64_t j = 0; j < job->c->col_spans; j++) {
        const struct quantize_span cols = job->c->cols[j];

        for (int64_t at = 0; at < cols.count; at += job->strip) {
            const int64_t left = cols.count - at;
            const struct patch x = {
                row, rows, cols.first + at,
                left < job->strip ? left : job->strip,
                before + (block > 0 ? at / block : 0), j};

            each(job, &x);
        }
        before += code_blocks(&cols, 1, block);
    }
}

static void all_groups(const struct code_job *job, int index, int count,
                       void (*each)(const struct code_job *,
                                    const struct patch *))
{
    const struct block_coding *c = job->c;
    int64_t group = 0, high = 0, first, last;

    threads_split(job->groups, 1, index, count, &first, &last);
    for (int64_t i = 0; i < c->row_spans && group < last; i++) {
        const struct quantize_span rows = c->rows[i];

        for (int64_t r = 0; r < rows.count; r += job->height, group++) {
            const int64_t left = rows.count - r;

            if (group >= first && group < last)
                group_each(job, rows.first + r,
                           left < job->height ? left : job->height,
                           high + (c->block_rows > 0 ? r / c->block_rows : 0),
                           each);
        }
        high += code_blocks(&rows, 1, c->block_rows);
    }
}

static void peaks_body(void *argument, int index, int count)
{
    all_groups(argument, index, count, patch_peaks);
}

static void encode_body(void *argument, int index, int count)
{
    all_groups(argument, index, count, patch_encode);
}

static void decode_body(void *argument, int index, int count)
{
    all_groups(argument, index, count, patch_decode);
}

status CPU(block_encode)(struct stream *stream, const struct block_encode *p)
{
    const int64_t elements =
        p->last > 0 ? p->last - p->first : p->in.shape[0] * p->in.shape[1];
    const bool means = p->coding.scale == SCALE_MEAN;
    struct code_job job = job_of(&p->coding);

    coding_check(&p->coding);
    CHECK(p->in.stride[1] == 1 && p->in.dtype != DTYPE_F16);
    job.to = p;
    if (p->what == ENCODE_ALL)
        memset(means ? (void *)p->sums : p->peaks, 0,
               (size_t)coding_blocks(&p->coding) *
                   (means ? CODE_SUMS * sizeof *p->sums : sizeof *p->peaks));
    if (p->what != ENCODE_CODES) cpu_run(stream, elements, peaks_body, &job);
    if (p->what == ENCODE_PEAKS) return OK;
    if (means) code_means(&p->coding, p->sums, p->scales);
    else code_scales(&p->coding, p->peaks, p->scales);
    if (p->most != NULL) *p->most = code_most(&p->coding, p->peaks);
    cpu_run(stream, elements, encode_body, &job);
    return OK;
}

status CPU(block_decode)(struct stream *stream, const struct block_decode *p)
{
    struct code_job job = job_of(&p->coding);

    coding_check(&p->coding);
    CHECK(p->out.stride[1] == 1 && p->out.dtype != DTYPE_F16);
    decode_check(p);
    job.from = p;
    if (p->seen != NULL && *p->most > *p->seen) *p->seen = *p->most;
    cpu_run(stream, p->out.shape[0] * p->out.shape[1], decode_body, &job);
    return OK;
}
