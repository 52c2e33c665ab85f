/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c - a matrix in blocks with scales: threads share out groups of
 * rows; the columns of a group are taken in strips. */
#include "kernels/cpu/means.h"
#include "kernels/cpu/quantize_pairs.h"
#include "kernels/cpu/random_words.h"
#include "kernels/element.h"

enum { STRIP = QUANTIZE_BLOCK_MOST, GROUP = 16, WORDS = 4 * RANDOM_LANES };

struct quantize_job {
    const struct quantize *p;
    struct grid_format format, e4m3;
    int64_t height;   /* rows of a group */
    int64_t groups;   /* of all spans of rows */
    int64_t strip;    /* columns */
    bool plain;       /* bfloat16 that is not transformed */
    bool pairs;       /* which quantize_pairs.h rounds */
};

/* Rows of one group, in the columns of a strip, as they are rounded. */
struct part {
    const void *data;
    enum dtype dtype;
    int64_t stride, rows, width;
    int64_t row, col;      /* of the first element in the matrix */
    uint64_t whole;        /* column, in the whole */
    int64_t span;          /* of columns, and whether the part begins it */
    bool starts;
    float *tile;           /* [QUANTIZE_TURN, STRIP] */
};

/* Scales of the columns of a strip and what numbers are divided by; of powers
 * of two, what they are multiplied by, which is the same. */
struct scales { float scale[STRIP], by[STRIP]; };

/* ---- the transform ---- */

ELEMENTARY void tile_fill(enum dtype dtype, const struct part *x)
{
    for (int i = 0; i < QUANTIZE_TURN; i++) {
        const void *row = element_at(x->data, dtype, i * x->stride);
        const float sign = QUANTIZE_SIGNS >> i & 1 ? -1.0f : 1.0f;
        float *to = x->tile + i * STRIP;

        SIMD for (int64_t c = 0; c < x->width; c++)
            to[c] = sign * element_get(row, dtype, c);
    }
}

static void tile_turn(float *tile, int64_t width)
{
    for (int apart = 1; apart < QUANTIZE_TURN; apart *= 2)
        for (int i = 0; i < QUANTIZE_TURN; i++) {
            float *a = tile + i * STRIP, *b = a + apart * STRIP;

            if (i & apart) continue;
            SIMD for (int64_t c = 0; c < width; c++) {
                const float sum = a[c] + b[c], difference = a[c] - b[c];

                a[c] = sum;
                b[c] = difference;
            }
        }
    for (int i = 0; i < QUANTIZE_TURN; i++)
        SIMD for (int64_t c = 0; c < width; c++) tile[i * STRIP + c] *= 0.25f;
}

/* The part in columns [at, ...) of a span and rows [row, row + rows). */
static struct part part_of(const struct quantize_job *job, int64_t row,
                           int64_t rows, int64_t span, int64_t at, float *tile)
{
    const struct quantize *p = job->p;
    const struct quantize_span cols = p->cols[span];
    const int64_t left = cols.count - at;
    struct part x = {.dtype = p->in.dtype, .stride = p->in.stride[0],
                     .rows = rows, .width = left < job->strip ? left
                                                              : job->strip,
                     .row = row, .col = cols.first + at,
                     .whole = cols.whole + (uint64_t)at, .span = span,
                     .starts = at == 0, .tile = tile};

    x.data = element_at(p->in.data, x.dtype, row * x.stride + x.col);
    if (!p->turn || rows < QUANTIZE_TURN) return x;
    if (x.dtype == DTYPE_BF16) tile_fill(DTYPE_BF16, &x);
    else tile_fill(DTYPE_F32, &x);
    tile_turn(tile, x.width);
    x.data = tile;
    x.dtype = DTYPE_F32;
    x.stride = STRIP;
    return x;
}

/* ---- scales ---- */

ELEMENTARY void columns_peak(enum dtype dtype, const struct part *x,
                             uint32_t *most)
{
    memset(most, 0, STRIP * sizeof *most);
    for (int64_t r = 0; r < x->rows; r++) {
        const void *row = element_at(x->data, dtype, r * x->stride);

        SIMD for (int64_t c = 0; c < x->width; c++) {
            const uint32_t bits = finite_bits(element_get(row, dtype, c));

            most[c] = bits > most[c] ? bits : most[c];
        }
    }
}

/* most [width] = the largest magnitudes of the columns. */
static void part_peaks(const struct part *x, uint32_t *most)
{
    if (x->dtype == DTYPE_BF16) columns_peak(DTYPE_BF16, x, most);
    else columns_peak(DTYPE_F32, x, most);
}

static uint32_t largest_of(const uint32_t *x, int64_t count)
{
    uint32_t most = 0;

    _Pragma("omp simd reduction(max : most)")
    for (int64_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

ELEMENTARY void blocks_gauss(enum dtype dtype, const struct part *x,
                             int64_t block, float largest, uint32_t *most)
{
    for (int64_t c = 0; c < x->width; c += block) {
        const int64_t count = x->width - c < block ? x->width - c : block;
        const void *row = element_at(x->data, dtype, c);
        double sums[LANES] = {0}, squares[LANES] = {0};

        for (int64_t i = 0; i < count; i += LANES) {
            const int lanes = count - i < LANES ? (int)(count - i) : LANES;

            SIMD for (int j = 0; j < lanes; j++) {
                const double v = (double)f32_of_bits(
                    signed_finite(element_get(row, dtype, i + j)));

                sums[j] += v;
                squares[j] += v * v;
            }
        }
        const uint32_t one = gauss_bits(sums, squares, count, largest);

        for (int64_t i = 0; i < count; i++) most[c + i] = one;
    }
}

/* most [width] = gauss_bits of the blocks of one row. */
static void part_gauss(const struct quantize_job *job, const struct part *x,
                       uint32_t *most)
{
    const int64_t block = job->p->block_cols;

    CHECK(x->rows == 1);
    if (x->dtype == DTYPE_BF16)
        blocks_gauss(DTYPE_BF16, x, block, job->format.largest, most);
    else
        blocks_gauss(DTYPE_F32, x, block, job->format.largest, most);
}

/* Each block of columns gets its largest. */
static void peaks_join(uint32_t *most, int64_t width, int64_t block)
{
    if (block == 1) return;
    for (int64_t c = 0; c < width; c += block) {
        const int64_t count = width - c < block ? width - c : block;
        const uint32_t one = largest_of(most + c, count);

        SIMD for (int64_t i = 0; i < count; i++) most[c + i] = one;
    }
}

/* rule is a constant. */
ELEMENTARY void scales_make(enum scale_rule rule,
                            const struct quantize_job *job,
                            const uint32_t *most, float outer,
                            struct scales *out)
{
    const struct grid_format e4m3 = job->e4m3;
    const float largest = job->format.largest;
    const bool powers = scale_is_power(rule);
    const float fit = rule == SCALE_FIT ? fit_factor(largest) : 1;

    SIMD for (int64_t c = 0; c < STRIP; c++) {
        const float s = block_scale(rule, most[c], largest, &e4m3, outer);

        out->scale[c] = s;
        out->by[c] = powers ? fit * f32_of_bits(0x7F000000u - bits_of_f32(s))
                            : block_divisor(s);
    }
}

static void scales_of(const struct quantize_job *job, const uint32_t *most,
                      float outer, struct scales *out)
{
    switch (job->p->scale) {
    case SCALE_FLOOR: scales_make(SCALE_FLOOR, job, most, outer, out); break;
    case SCALE_CEIL: scales_make(SCALE_CEIL, job, most, outer, out); break;
    case SCALE_LATE: scales_make(SCALE_LATE, job, most, outer, out); break;
    case SCALE_TWO: case SCALE_TWO_LATE:
        scales_make(SCALE_TWO, job, most, outer, out);
        break;
    case SCALE_EXACT: scales_make(SCALE_EXACT, job, most, outer, out); break;
    case SCALE_MEAN: scales_make(SCALE_MEAN, job, most, outer, out); break;
    case SCALE_GAUSS: scales_make(SCALE_GAUSS, job, most, outer, out); break;
    case SCALE_FIT: scales_make(SCALE_FIT, job, most, outer, out); break;
    default: scales_make(SCALE_NONE, job, most, outer, out); break;
    }
}

/* ---- writing ---- */

/* words[c] of column c of the part, in row r of it. */
static const uint32_t *part_words(const struct quantize_job *job,
                                  const struct part *x, int64_t r,
                                  uint32_t *room)
{
    const uint64_t first = x->whole / WORDS * WORDS;
    const uint64_t end = x->whole + (uint64_t)x->width;
    const struct dropout_row place = job->p->places[x->row + r];

    for (uint64_t e = first; e < end; e += WORDS) {
        const struct dropout_row at = {
            place.low, place.high + e / WORDS * RANDOM_LANES};

        random_words(room + (e - first), job->p->key, at, 1);
    }
    return room + (x->whole - first);
}

/* dtype, stochastic and powers are constants. */
ELEMENTARY void rows_write(enum dtype dtype, bool stochastic, bool powers,
                           const struct quantize_job *job,
                           const struct part *x, const struct scales *scales)
{
    const struct quantize *p = job->p;
    const struct grid_format f = job->format;
    uint32_t room[STRIP + 2 * WORDS];

    for (int64_t r = 0; r < x->rows; r++) {
        const void *in = element_at(x->data, dtype, r * x->stride);
        uint16_t *out = (uint16_t *)p->out.data +
                        (x->row + r) * p->out.stride[0] + x->col;
        const uint32_t *words =
            stochastic ? part_words(job, x, r, room) : room;

        SIMD for (int64_t c = 0; c < x->width; c++) {
            const float v = element_get(in, dtype, c), by = scales->by[c];
            const float a = f32_of_bits(bits_of_f32(v) & 0x7FFFFFFFu);
            const float y = powers ? a * by : a / by;
            const float rounded = stochastic
                                      ? grid_stochastic(&f, y, words[c])
                                      : grid_nearest(&f, y);

            out[c] = (uint16_t)element_to_bf16(
                grid_result(&f, v, rounded, scales->scale[c]));
        }
    }
}

/* Codes, and the scales of rows with what is not finite in them. */
ELEMENTARY void codes_write(enum dtype dtype, bool powers,
                            const struct quantize_job *job,
                            const struct part *x, const struct scales *scales)
{
    const struct quantize *p = job->p;
    const struct grid_format f = job->format;
    const float by = scales->by[0];

    for (int64_t r = 0; r < x->rows; r++) {
        const void *in = element_at(x->data, dtype, r * x->stride);
        int8_t *out = (int8_t *)p->out.data +
                      (x->row + r) * p->out.stride[0] + x->col;
        float *scale = &p->scales[(x->row + r) * p->col_spans + x->span];
        int32_t codes[STRIP];
        uint32_t most = 0;

        _Pragma("omp simd reduction(max : most)")
        for (int64_t c = 0; c < x->width; c++) {
            const uint32_t bits =
                bits_of_f32(element_get(in, dtype, c)) & 0x7FFFFFFFu;

            most = bits > most ? bits : most;
        }
        SIMD for (int64_t c = 0; c < x->width; c++) {
            const float v = element_get(in, dtype, c);
            const float a = f32_of_bits(finite_bits(v));
            const uint32_t rounded =
                bits_of_f32(grid_nearest(&f, powers ? a * by : a / by));

            codes[c] = (int32_t)f32_of_bits(rounded |
                                            (bits_of_f32(v) & 0x80000000u));
        }
        SIMD for (int64_t c = 0; c < x->width; c++) out[c] = (int8_t)codes[c];
        if (x->starts) *scale = scales->scale[0];
        if (most >= 0x7F800000u) *scale = f32_of_bits(0x7FC00000u);
    }
}

/* *most = the larger one, or, where less, the smaller one that is not zero,
 * whatever other threads do with it. */
static void bound_move(float *bound, float value, bool less)
{
    float have;

    __atomic_load(bound, &have, __ATOMIC_RELAXED);
    while (value > 0 && (less ? have <= 0 || value < have : value > have)) {
        float want = value;

        if (__atomic_compare_exchange(bound, &have, &want, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    }
}

static void tally_join(struct quantize_tally *to,
                       const struct quantize_tally *own)
{
    __atomic_fetch_add(&to->elements, own->elements, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->cut, own->cut, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->zeroed, own->zeroed, __ATOMIC_RELAXED);
    bound_move(&to->largest, own->largest, false);
    bound_move(&to->scale_most, own->scale_most, false);
    bound_move(&to->scale_least, own->scale_least, true);
}

/* Counts what was written of a part; seldom asked for. */
static void part_count(const struct quantize_job *job, const struct part *x,
                       const struct scales *scales)
{
    const struct quantize *p = job->p;
    const bool powers = scale_is_power(p->scale);
    struct quantize_tally own = {0};

    for (int64_t r = 0; r < x->rows; r++) {
        const void *in = element_at(x->data, x->dtype, r * x->stride);
        const int64_t at = (x->row + r) * p->out.stride[0] + x->col;

        for (int64_t c = 0; c < x->width; c++) {
            const float v = element_get(in, x->dtype, c);
            const float a = f32_of_bits(bits_of_f32(v) & 0x7FFFFFFFu);
            const float y = powers ? a * scales->by[c] : a / scales->by[c];

            const float value =
                p->scales != NULL
                    ? (float)((const int8_t *)p->out.data)[at + c]
                    : element_get(p->out.data, DTYPE_BF16, at + c);

            tally_count(&own, v, y, value, &job->format, scales->scale[c]);
        }
    }
    tally_join(p->tally, &own);
}

#define CODES(dtype, powers) codes_write(dtype, powers, job, x, scales)
#define WRITE(dtype, stochastic, powers) \
    rows_write(dtype, stochastic, powers, job, x, scales)

static void part_write(const struct quantize_job *job, const struct part *x,
                       const struct scales *scales)
{
    const bool powers = scale_is_power(job->p->scale);

    if (job->p->scales != NULL) {
        if (x->dtype == DTYPE_BF16 && powers) CODES(DTYPE_BF16, true);
        else if (x->dtype == DTYPE_BF16) CODES(DTYPE_BF16, false);
        else if (powers) CODES(DTYPE_F32, true);
        else CODES(DTYPE_F32, false);
        return;
    }
    if (job->p->rounding == ROUND_STOCHASTIC) {
        if (x->dtype == DTYPE_BF16 && powers) WRITE(DTYPE_BF16, true, true);
        else if (x->dtype == DTYPE_BF16) WRITE(DTYPE_BF16, true, false);
        else if (powers) WRITE(DTYPE_F32, true, true);
        else WRITE(DTYPE_F32, true, false);
        return;
    }
    if (x->dtype == DTYPE_BF16 && powers) WRITE(DTYPE_BF16, false, true);
    else if (x->dtype == DTYPE_BF16) WRITE(DTYPE_BF16, false, false);
    else if (powers) WRITE(DTYPE_F32, false, true);
    else WRITE(DTYPE_F32, false, false);
}

/* ---- groups of rows ---- */

/* The largest of the rows in a whole span of columns. */
static uint32_t rows_peak(const struct quantize_job *job, int64_t row,
                          int64_t rows, int64_t span)
{
    const struct quantize_span cols = job->p->cols[span];
    float tile[QUANTIZE_TURN * STRIP];
    uint32_t most[STRIP], all = 0;

    for (int64_t r = row; job->plain && r < row + rows; r++) {
        const uint32_t one = CPU(pairs_peak)(
            (const uint16_t *)job->p->in.data + r * job->p->in.stride[0] +
                cols.first, cols.count);

        all = one > all ? one : all;
    }
    if (job->plain && finite_bits(f32_of_bits(all)) == all) return all;
    all = 0;
    for (int64_t c = 0; c < cols.count; c += job->strip) {
        const struct part x = part_of(job, row, rows, span, c, tile);

        part_peaks(&x, most);
        const uint32_t one = largest_of(most, x.width);

        all = one > all ? one : all;
    }
    return all;
}

/* `outer` of block_scale. region: its peak or mean. */
static float region_scale(const struct quantize_job *job, float region)
{
    const float largest = job->format.largest;

    switch (job->p->scale) {
    case SCALE_TWO: return scale_outer(bits_of_f32(region), largest);
    case SCALE_TWO_LATE:
        return scale_outer(bits_of_f32(job->p->known), largest);
    case SCALE_LATE: return job->p->known;
    default: return region;
    }
}

/* The rows of a group in a span of columns. region: its peak or mean; counts:
 * what is written is counted. */
static void group_write(const struct quantize_job *job, int64_t row,
                        int64_t rows, int64_t span, float region, bool counts)
{
    const struct quantize *p = job->p;
    const struct quantize_span cols = p->cols[span];
    const bool free = p->scale == SCALE_NONE || p->scale == SCALE_MEAN ||
                      p->scale == SCALE_LATE; /* of the block's peak */
    const bool fixed = p->block_cols == 0 || (free && p->scale != SCALE_MEAN);
    const float outer = region_scale(job, region);
    float tile[QUANTIZE_TURN * STRIP];
    uint32_t most[STRIP] = {0};
    struct scales scales;

    if (fixed) {
        most[0] = free ? 0
                  : p->block_rows == 0 ? bits_of_f32(region)
                                       : rows_peak(job, row, rows, span);
        for (int c = 1; c < STRIP; c++) most[c] = most[0];
        scales_of(job, most, outer, &scales);
    }
    if (job->pairs && !counts) {
        const struct pairs_part part = {p, job->format, job->e4m3, row, rows,
                                        span, outer, fixed, most[0]};

        if (CPU(pairs_round)(&part)) return;
    }
    for (int64_t c = 0; c < cols.count; c += job->strip) {
        const struct part x = part_of(job, row, rows, span, c, tile);

        if (!fixed) {
            if (p->scale == SCALE_GAUSS) {
                part_gauss(job, &x, most);
            } else {
                part_peaks(&x, most);
                peaks_join(most, x.width, p->block_cols);
            }
            scales_of(job, most, outer, &scales);
        }
        part_write(job, &x, &scales);
        if (counts) part_count(job, &x, &scales);
    }
}

/* Calls one of two functions for the groups of a thread. */
static void each_group(const struct quantize_job *job, bool peaks,
                       int64_t first, int64_t last)
{
    const struct quantize *p = job->p;
    int64_t group = 0;

    for (int64_t i = 0; i < p->row_spans && group < last; i++) {
        const struct quantize_span rows = p->rows[i];

        for (int64_t r = 0; r < rows.count; r += job->height, group++) {
            const int64_t left = rows.count - r;
            const int64_t count = left < job->height ? left : job->height;

            for (int64_t j = 0; j < p->col_spans && group >= first &&
                                group < last; j++) {
                float *region = p->peaks == NULL
                                    ? NULL : p->peaks + i * p->col_spans + j;
                const bool counts = p->tally != NULL && !rows.copy &&
                                    !p->cols[j].copy;

                if (peaks)
                    magnitude_raise(region,
                                    rows_peak(job, rows.first + r, count, j));
                else
                    group_write(job, rows.first + r, count, j,
                                region != NULL ? *region : 0, counts);
            }
        }
    }
}

static void peaks_body(void *argument, int index, int count)
{
    const struct quantize_job *job = argument;
    int64_t first, last;

    threads_split(job->groups, 1, index, count, &first, &last);
    each_group(job, true, first, last);
}

static void write_body(void *argument, int index, int count)
{
    const struct quantize_job *job = argument;
    int64_t first, last;

    threads_split(job->groups, 1, index, count, &first, &last);
    each_group(job, false, first, last);
}

/* ---- means ---- */

static float region_mean(const struct quantize *p, struct quantize_span rows,
                         struct quantize_span cols)
{
    int64_t groups[MEAN_GROUPS] = {0};

    for (int64_t i = rows.first; i < rows.first + rows.count; i++)
        means_add(p->in.dtype,
                  element_at(p->in.data, p->in.dtype,
                             i * p->in.stride[0] + cols.first),
                  0, cols.count, groups);
    return mean_scale(groups, rows.count * cols.count);
}

static void means_body(void *argument, int index, int count)
{
    const struct quantize *p = ((struct quantize_job *)argument)->p;
    int64_t first, last;

    threads_split(p->row_spans * p->col_spans, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const struct quantize_span rows = p->rows[i / p->col_spans];
        const struct quantize_span cols = p->cols[i % p->col_spans];

        p->peaks[i] = rows.count > 0 && cols.count > 0
                          ? region_mean(p, rows, cols) : 0;
    }
}

/* ---- the call ---- */

static bool needs_regions(const struct quantize *p)
{
    return p->scale == SCALE_TWO || p->scale == SCALE_MEAN ||
           p->seen != NULL ||
           (p->scale != SCALE_NONE && p->scale != SCALE_LATE &&
            p->block_rows == 0);
}

static void raise_seen(const struct quantize *p)
{
    for (int64_t i = 0; i < p->row_spans * p->col_spans; i++)
        if (p->peaks[i] > *p->seen) *p->seen = p->peaks[i];
}

status CPU(quantize)(struct stream *stream, const struct quantize *p)
{
    const int64_t elements = p->out.shape[0] * p->out.shape[1];
    struct quantize_job job = {
        .p = p, .format = grid_format(p->format),
        .e4m3 = grid_format(FORMAT_E4M3),
        .height = p->block_rows > 0 ? p->block_rows : GROUP, .strip = STRIP};

    quantize_check(p);
    CHECK(p->in.dtype != DTYPE_F16 && p->out.stride[1] == 1);
    CHECK(p->in.stride[1] == 1 && p->block_cols <= STRIP);
    CHECK(!p->turn || p->block_rows == QUANTIZE_TURN);
    CHECK(p->block_rows > 0 || p->block_cols == 0);
    CHECK(p->scale != SCALE_GAUSS || (p->block_rows == 1 && p->block_cols > 0));
    CHECK(!needs_regions(p) || p->peaks != NULL);
    CHECK(p->seen == NULL || p->scale != SCALE_MEAN);
    if (p->block_cols > 0) job.strip = STRIP / p->block_cols * p->block_cols;
    job.plain = p->in.dtype == DTYPE_BF16 && !p->turn;
    job.pairs = CPU(pairs_can)(p, &job.format);
    for (int64_t i = 0; i < p->row_spans; i++)
        job.groups += (p->rows[i].count + job.height - 1) / job.height;
    if (p->scale == SCALE_MEAN) {
        CHECK(!p->turn);
        cpu_run(stream, elements, means_body, &job);
    } else if (needs_regions(p)) {
        memset(p->peaks, 0, (size_t)(p->row_spans * p->col_spans) *
                                sizeof *p->peaks);
        cpu_run(stream, elements, peaks_body, &job);
        if (p->seen != NULL) raise_seen(p);
    }
    cpu_run(stream, elements, write_body, &job);
    return OK;
}
