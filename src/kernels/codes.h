/* SPDX-License-Identifier: Apache-2.0 */
/* codes.h - a matrix kept, or sent, as codes of a narrow format and one scale
 * for each block: what quantize.h makes of it, in few bits.
 *
 *   peaks   the largest magnitude of each block; a rank that has a part of a
 *           matrix raises those of its part, and the exact maximum over the
 *           ranks is that of the whole; of SCALE_MEAN exact sums in their place
 *   encode  peaks -> scales, elements -> codes
 *   decode  code times scale: the numbers that quantize writes, in every bit;
 *           or integers as quantize writes them, and their scales
 *
 *   [rows, cols] in blocks of 2 x 3:      scales [row blocks, column blocks]
 *   |### ###|##    a row of codes begins   |s s|s
 *   |### ###|##    with a byte; blocks     |s s|s
 *   |### ###|##    count from the first
 *        ^ spans   element of a region                                      */
#ifndef LOCKSTEP_KERNELS_CODES_H
#define LOCKSTEP_KERNELS_CODES_H

#include "kernels/quantize.h"

/* How a matrix is cut and rounded, as struct quantize says it: to nearest. */
struct block_coding {
    const struct quantize_span *rows, *cols; /* borrowed */
    int64_t row_spans, col_spans;
    enum number_format format;
    int64_t block_rows, block_cols; /* 0: the span */
    enum scale_rule scale;  /* not GAUSS or FIT; MEAN: a block is a region */
    float known;            /* late rules */
};

/* Blocks along rows (columns) of spans. */
static inline int64_t code_blocks(const struct quantize_span *spans,
                                  int64_t count, int64_t size)
{
    int64_t blocks = 0;

    for (int64_t i = 0; i < count; i++)
        blocks += size > 0 ? (spans[i].count + size - 1) / size
                           : spans[i].count > 0;
    return blocks;
}

static inline int64_t coding_blocks(const struct block_coding *c)
{
    return code_blocks(c->rows, c->row_spans, c->block_rows) *
           code_blocks(c->cols, c->col_spans, c->block_cols);
}

/* Row (column) `at` of the matrix: the number of its blocks among those along
 * rows (columns); -1: it is in no span. */
static inline int64_t code_block_along(const struct quantize_span *spans,
                                       int64_t count, int64_t size, int64_t at)
{
    int64_t before = 0;

    for (int64_t i = 0; i < count; i++) {
        const int64_t inside = at - spans[i].first;

        if (inside >= 0 && inside < spans[i].count)
            return before + (size > 0 ? inside / size : 0);
        before += code_blocks(&spans[i], 1, size);
    }
    return -1;
}

/* Bytes of so many columns. */
static inline int64_t code_row_bytes(enum number_format format, int64_t cols)
{
    return (cols * number_formats[format].bits + 7) / 8;
}

static inline int64_t code_scale_bytes(enum scale_rule rule)
{
    return scale_is_power(rule) ? 1 : (int64_t)sizeof(float);
}

static inline void coding_check(const struct block_coding *c)
{
    CHECK(c->format > FORMAT_BF16 && c->format < FORMAT_E8M0);
    CHECK(c->scale <= SCALE_MEAN && c->block_cols <= QUANTIZE_BLOCK_MOST);
    CHECK(c->scale != SCALE_MEAN || (c->block_rows == 0 && c->block_cols == 0));
}

/* ---- the calls ---- */

/* ENCODE_PEAKS raises peaks, which begin with 0; ENCODE_CODES reads them and
 * sets scales of all blocks and codes; ENCODE_ALL sets peaks first. Peaks are
 * infinite where a format without a NaN has something else to say it by: the
 * scale of a block that has what is not finite is NaN then. */
enum encode_what { ENCODE_PEAKS, ENCODE_CODES, ENCODE_ALL };

struct block_encode {
    enum encode_what what;
    struct tensor in;       /* [rows, cols] bfloat16 or float32, dense rows */
    struct block_coding coding;
    int64_t first, last;    /* elements of the matrix, row-major: only these are
                             * read and coded; last 0: all */
    float *peaks;           /* [row blocks, column blocks] */
    int64_t *sums;          /* SCALE_MEAN, in their place: [blocks, CODE_SUMS],
                             * which ENCODE_PEAKS adds to */
    void *scales;           /* the same: E8M0 of powers of two; else float32 */
    uint8_t *codes;         /* element c of a row at its bits [c b, (c + 1) b),
                             * the low ones first, b the bits of the format */
    int64_t row_bytes;      /* from a row of codes to the next */
    float *most;            /* with codes: set to the largest finite peak; NULL:
                             * nobody asks, and of SCALE_MEAN */
};

struct block_decode {
    struct tensor out;      /* [rows, cols] bfloat16 or float32, dense rows; U8:
                             * integers as of struct quantize, with scales;
                             * NaN is a block's where the format has none */
    float *out_scales;      /* [rows, col_spans]: blocks are spans of columns */
    struct block_coding coding;
    const void *scales;
    const uint8_t *codes;
    int64_t row_bytes;
    const float *most; float *seen; /* it is raised to most; NULL: not */
};

static inline void decode_check(const struct block_decode *p)
{
    CHECK((p->out.dtype == DTYPE_U8) == (p->out_scales != NULL));
    if (p->out_scales == NULL) return;
    CHECK(p->coding.format == FORMAT_INT8 ||
          p->coding.format == FORMAT_TERNARY);
    CHECK(p->coding.block_cols == 0 && p->coding.block_rows <= 1);
}

/* ---- one code ---- */

/* A format as loops see it. */
struct code_format {
    struct grid_format grid;
    int shift;           /* from a code's exponent and mantissa to float32's */
    uint32_t rebase;     /* ... after this was added */
    float quanta, quantum; /* of numbers below the smallest normal one */
    float normal;        /* that one */
    uint32_t normal_code, sign, mask, nan;
    bool complement, has_nan;
};

ELEMENTARY struct code_format code_format(enum number_format format)
{
    const struct format *f = &number_formats[format];
    const uint32_t sign = 1u << (f->bits - 1);
    const uint32_t units = (uint32_t)(f->mantissa - f->least + 127) << 23;
    struct code_format c = {
        .grid = grid_format(format), .shift = 23 - f->mantissa,
        .rebase = (uint32_t)(f->least + 126) << f->mantissa,
        .quanta = f32_of_bits(units),
        .quantum = f32_of_bits(0x7F000000u - units),
        .normal = f32_of_bits((uint32_t)(f->least + 127) << 23),
        .normal_code = 1u << f->mantissa, .sign = sign,
        .mask = 2 * sign - 1, .complement = f->complement,
        .has_nan = f->special != SPECIAL_NONE};

    if (f->special == SPECIAL_NAN) c.nan = sign - 1;
    if (f->special == SPECIAL_IEEE)
        c.nan = (f->most + 1) | 1u << (f->mantissa - 1);
    if (f->special == SPECIAL_MINUS) c.nan = sign;
    return c;
}

/* The code of v, whose magnitude over the scale was rounded. */
ELEMENTARY uint32_t code_make(const struct code_format *f, float v,
                              float rounded)
{
    const uint32_t bits = bits_of_f32(v), minus = bits & 0x80000000u;
    const uint32_t kept = rounded > 0 ? minus : minus & f->grid.zero_sign;
    const uint32_t small = (uint32_t)(int32_t)(
        (rounded < f->normal ? rounded : 0) * f->quanta);
    const uint32_t normal = (bits_of_f32(rounded) >> f->shift) - f->rebase;
    const uint32_t magnitude = rounded < f->normal ? small : normal;
    const uint32_t turned = minus > 0 ? 0u - magnitude : magnitude;
    const uint32_t code = f->complement
                              ? turned & f->mask
                              : magnitude | (kept > 0 ? f->sign : 0);

    return (bits & 0x7FFFFFFFu) < 0x7F800000u ? code : f->nan;
}

/* The number that a code stands for, times the scale. */
ELEMENTARY float code_value(const struct code_format *f, uint32_t code,
                            float scale)
{
    const uint32_t minus = code & f->sign;
    const uint32_t turned = minus > 0 ? (0u - code) & f->mask : code;
    const uint32_t magnitude = f->complement ? turned : code & (f->sign - 1);
    const float normal = f32_of_bits((magnitude + f->rebase) << f->shift);
    const float small = (float)(int32_t)magnitude * f->quantum;
    const float value = (magnitude >= f->normal_code ? normal : small) * scale;
    const float out =
        f32_of_bits(bits_of_f32(value) | (minus > 0 ? 0x80000000u : 0));

    return f->has_nan && code == f->nan ? f32_of_bits(0x7FC00000u) : out;
}

/* A block's peak is raised by this. */
ELEMENTARY uint32_t code_peak(const struct code_format *f, float v)
{
    const uint32_t bits = bits_of_f32(v) & 0x7FFFFFFFu;

    return bits < 0x7F800000u ? bits : f->has_nan ? 0 : 0x7F800000u;
}

/* The scale of a block, as it is kept. */
ELEMENTARY void code_scale_set(void *scales, enum scale_rule rule, int64_t at,
                               float scale)
{
    if (scale_is_power(rule))
        ((uint8_t *)scales)[at] =
            scale == scale ? (uint8_t)(bits_of_f32(scale) >> 23) : 255;
    else
        ((float *)scales)[at] = scale;
}

ELEMENTARY float code_scale_get(const void *scales, enum scale_rule rule,
                                int64_t at)
{
    if (!scale_is_power(rule)) return ((const float *)scales)[at];
    const uint32_t exponent = ((const uint8_t *)scales)[at];

    return f32_of_bits(exponent < 255 ? exponent << 23 : 0x7FC00000u);
}

/* The scale of a block with this peak; largest and outer as block_scale wants
 * them. */
ELEMENTARY float code_scale(enum scale_rule rule, float peak, float largest,
                            const struct grid_format *e4m3, float outer)
{
    const uint32_t bits = bits_of_f32(peak);

    return bits < 0x7F800000u ? block_scale(rule, bits, largest, e4m3, outer)
                              : f32_of_bits(0x7FC00000u);
}

/* outer, of a region whose largest finite peak this is. */
ELEMENTARY float code_outer(const struct block_coding *c, float largest,
                            uint32_t region)
{
    if (c->scale == SCALE_TWO) return scale_outer(region, largest);
    if (c->scale == SCALE_TWO_LATE)
        return scale_outer(bits_of_f32(c->known), largest);
    return c->known;
}

/* The scales of all blocks, from their peaks. */
static inline void code_scales(const struct block_coding *c,
                               const float *peaks, void *scales)
{
    const struct grid_format e4m3 = grid_format(FORMAT_E4M3);
    const float largest = number_formats[c->format].largest;
    const int64_t all = code_blocks(c->cols, c->col_spans, c->block_cols);
    int64_t row = 0;

    for (int64_t i = 0; i < c->row_spans; i++) {
        const int64_t high = code_blocks(&c->rows[i], 1, c->block_rows);
        int64_t col = 0;

        for (int64_t j = 0; j < c->col_spans; j++) {
            const int64_t wide = code_blocks(&c->cols[j], 1, c->block_cols);
            uint32_t region = 0;

            for (int64_t k = 0; k < high * wide; k++) {
                const uint32_t own = finite_bits(
                    peaks[(row + k / wide) * all + col + k % wide]);

                region = own > region ? own : region;
            }
            const float outer = code_outer(c, largest, region);

            for (int64_t k = 0; k < high * wide; k++) {
                const int64_t at = (row + k / wide) * all + col + k % wide;

                code_scale_set(scales, c->scale, at,
                               code_scale(c->scale, peaks[at], largest,
                                          &e4m3, outer));
            }
            col += wide;
        }
        row += high;
    }
}

/* Sums of a block: the groups of a mean, and how many elements are not finite
 * where the format has no NaN to say it by. */
enum { CODE_SUMS = MEAN_GROUPS + 1 };

/* Whether that counts v. */
ELEMENTARY bool code_hides(const struct code_format *f, float v)
{
    return !f->has_nan && !(v - v == 0);
}

/* The scales of means, from their sums [blocks, CODE_SUMS]. */
static inline void code_means(const struct block_coding *c,
                              const int64_t *sums, float *scales)
{
    for (int64_t i = 0; i < c->row_spans; i++)
        for (int64_t j = 0; j < c->col_spans; j++) {
            const int64_t count = c->rows[i].count * c->cols[j].count;

            if (count == 0) continue;
            *scales++ = sums[MEAN_GROUPS] > 0 ? f32_of_bits(0x7FC00000u)
                                              : mean_scale(sums, count);
            sums += CODE_SUMS;
        }
}

/* The largest finite peak. */
static inline float code_most(const struct block_coding *c, const float *peaks)
{
    const int64_t count = coding_blocks(c);
    uint32_t most = 0;

    for (int64_t i = 0; i < count; i++) {
        const uint32_t own = finite_bits(peaks[i]);

        most = own > most ? own : most;
    }
    return f32_of_bits(most);
}

/* A code of INT8 or TERNARY as an integer. */
ELEMENTARY int8_t code_integer(const struct code_format *f, uint32_t code)
{
    return (int8_t)((int32_t)code - (int32_t)(2 * (code & f->sign)));
}

/* ---- codes in bytes ---- */

/* Code number `at` of a row, of 2, 4, 8 or 12 bits. */
ELEMENTARY uint32_t code_get(const uint8_t *row, int bits, int64_t at)
{
    const int64_t bit = at * bits;
    uint32_t word = row[bit / 8];

    if (bits == 12) word |= (uint32_t)row[bit / 8 + 1] << 8;
    return word >> (bit % 8) & ((1u << bits) - 1);
}

ELEMENTARY void code_put(uint8_t *row, int bits, int64_t at, uint32_t code)
{
    const int64_t bit = at * bits;
    const int low = (int)(bit % 8);
    const uint32_t mask = ((1u << bits) - 1) << low, put = code << low;
    uint8_t *to = row + bit / 8;

    to[0] = (uint8_t)((to[0] & ~mask) | put);
    if (bits == 12)
        to[1] = (uint8_t)((to[1] & ~(mask >> 8)) | put >> 8);
}

#endif
