/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h - a matrix rounded to the numbers of a narrow format, in blocks
 * that have one scale each (docs/numerics.md, "Products in 8 and 4 bits").
 *
 * The result is code times scale as bfloat16: exact where the scale is a power
 * of two, or E4M3 times one. A product of a recipe is then the product of
 * bfloat16, with its granules, leaves and trees.
 *
 *   rows and columns come in spans      span of rows x span of columns: region
 *   +--------+-----+                    blocks are counted from the first
 *   |##|##|# |##|# |  <- blocks         element of each region, the last ones
 *   |##|##|# |##|# |     2 x 2          are short
 *   |##|##|# |##|# |
 *   +--------+-----+                                                        */
#ifndef LOCKSTEP_KERNELS_QUANTIZE_H
#define LOCKSTEP_KERNELS_QUANTIZE_H

#include "base/status.h"
#include "base/random.h"
#include "kernels/elementary.h"
#include "tensor/format.h"
#include "tensor/tensor.h"

/* The scale of a block, from its largest magnitude a, and L, the largest number
 * of the format. Numbers that are not finite count as zero in it. */
enum scale_rule {
    SCALE_NONE,  /* 1 */
    SCALE_FLOOR, /* 2^(floor(log2 a) - floor(log2 L)): numbers may be cut off */
    SCALE_CEIL,  /* 2^ceil(log2(a / L)): none is */
    SCALE_LATE,  /* the same for `known` instead of a: larger numbers are cut
                  * off */
    SCALE_TWO,   /* E4M3(a / L / t) t, t the SCALE_CEIL of the region for
                  * the largest number 448 L */
    SCALE_TWO_LATE, /* the same, t of `known` instead of the region */
    SCALE_EXACT, /* a / L, rounded to float32 once */
    SCALE_MEAN,  /* the mean magnitude of the region (mean_scale) */
    SCALE_GAUSS, /* 2^floor(log2(c d)), d the standard deviation of the block,
                  * one row: best for normal numbers (gauss_bits) */
    SCALE_FIT,   /* SCALE_FLOOR, but numbers are first multiplied by
                  * fit_factor(L), so that none is cut off */
    SCALE_COUNT
};

enum {
    QUANTIZE_LEAST = -100, /* exponent of the smallest power of two */
    QUANTIZE_MOST = 126,
    QUANTIZE_TURN = 16,    /* rows that a Hadamard transform mixes */
    QUANTIZE_BLOCK_MOST = 256 /* columns of a block that is not a span */
};
/* Blocks whose scale would be below this by SCALE_EXACT or SCALE_MEAN are
 * zero. */
#define QUANTIZE_TINY 0x1p-100f
/* Signs of the rows of each Hadamard transform, a bit each. Any would do; these
 * were drawn once. */
#define QUANTIZE_SIGNS 0x5A9Cu

struct quantize_span {
    int64_t first, count; /* rows or columns of the matrix */
    uint64_t whole;       /* number of the first one in the whole matrix, which
                           * random numbers are counted by; columns only */
    bool copy;            /* another rank holds and counts the same (tally) */
};

/* Counts of what rounding did to finite elements that are not zero; calls add
 * to them. */
struct quantize_tally {
    int64_t elements;
    int64_t cut;         /* larger than the largest number times the scale */
    int64_t zeroed;      /* became zero */
    float largest;       /* magnitude */
    float scale_least, scale_most; /* of their blocks; 0: there are none */
};

/* Row r of a call is at the counter places[r]; the word of column c, counted in
 * the whole, is as in struct dropout. */
struct dropout_row;

struct quantize {
    struct tensor out;   /* [rows, cols] bfloat16, dense rows; with scales: U8,
                          * codes as int8 */
    struct tensor in;    /* bfloat16 or float32 */
    const struct quantize_span *rows, *cols; /* borrowed */
    int64_t row_spans, col_spans;
    enum number_format format;
    int64_t block_rows, block_cols; /* 0: the span */
    enum scale_rule scale;
    enum rounding rounding;
    bool turn;           /* runs of QUANTIZE_TURN rows of a span, but not a
                          * short last one, are first multiplied by signs, then
                          * by the normalised Hadamard matrix: block_rows is
                          * QUANTIZE_TURN */
    struct random_key key;
    const struct dropout_row *places; /* [rows]; stochastic only */
    float *peaks;        /* room for one number of each region */
    float known;         /* late rules: a largest magnitude, more than 0 */
    struct quantize_tally *tally; /* NULL: nobody counts */
    float *scales;       /* [rows, col_spans] set; codes are for
                          * kernels/integers.h. FORMAT_INT8 or FORMAT_TERNARY to
                          * nearest, block_cols 0 and block_rows 0 or 1. NaN
                          * where the row has an element in the span that is not
                          * finite, whose code is 0. NULL: no codes */
    float *seen;         /* raised to the largest magnitude of all elements, as
                          * they are rounded; NULL: nobody asks */
};

static inline void quantize_check(const struct quantize *p)
{
    CHECK(dtype_real(p->in.dtype) == DTYPE_F32);
    CHECK(p->out.dtype == (p->scales != NULL ? DTYPE_U8 : DTYPE_BF16));
    if (p->scales == NULL) return;
    CHECK(p->format == FORMAT_INT8 || p->format == FORMAT_TERNARY);
    CHECK(p->rounding == ROUND_NEAREST && p->block_cols == 0);
    CHECK(p->block_rows <= 1 && !p->turn && p->scale != SCALE_GAUSS);
}

/* A format as loops see it. */
struct grid_format {
    uint32_t least;      /* exponent bits of the smallest normal number */
    uint32_t lift;       /* from a number's exponent bits to those of the number
                          * that rounds it when added */
    uint32_t fall;       /* ... to those of its quantum */
    uint32_t zero_sign;  /* sign bit that a zero may keep */
    float largest;
};

ELEMENTARY struct grid_format grid_format(enum number_format format)
{
    const struct format *f = &number_formats[format];
    const bool minus = !f->complement && f->special != SPECIAL_MINUS;

    return (struct grid_format){
        .least = (uint32_t)(f->least + 127) << 23,
        .lift = (uint32_t)(23 - f->mantissa) << 23,
        .fall = (uint32_t)f->mantissa << 23,
        .zero_sign = minus ? 0x80000000u : 0, .largest = f->largest};
}

/* The magnitude that y >= 0 rounds to, ties to even. Adding a number whose last
 * place is the quantum leaves a multiple of it. */
ELEMENTARY float grid_nearest(const struct grid_format *f, float y)
{
    const float a = y > f->largest ? f->largest : y;
    const uint32_t own = bits_of_f32(a) & 0x7F800000u;
    const uint32_t exponent = own < f->least ? f->least : own;
    const float lift = f32_of_bits(exponent + f->lift);

    return (a + lift) - lift;
}

/* Like grid_nearest, up with the probability of the distance: the upper 24 bits
 * of the word are a number in [0, 1). Of normal numbers only. */
ELEMENTARY float grid_stochastic(const struct grid_format *f, float y,
                                 uint32_t word)
{
    const float a = y > f->largest ? f->largest : y;
    const uint32_t own = bits_of_f32(a) & 0x7F800000u;
    const uint32_t exponent = own < f->least ? f->least : own;
    const float quantum = f32_of_bits(exponent - f->fall);
    const float t = a * f32_of_bits(0x7F000000u - (exponent - f->fall));
    const float n = (t + 0x1p23f) - 0x1p23f;
    const float lower = n > t ? n - 1 : n;
    const float drawn = (float)(int32_t)(word >> 8) * 0x1p-24f;

    return (drawn < t - lower ? lower + 1 : lower) * quantum;
}

/* Code times scale of v, whose magnitude over the scale was rounded; NaN where
 * v is not finite. */
ELEMENTARY float grid_result(const struct grid_format *f, float v,
                             float rounded, float scale)
{
    const uint32_t bits = bits_of_f32(v), sign = bits & 0x80000000u;
    const uint32_t kept = rounded > 0 ? sign : sign & f->zero_sign;
    const float value = f32_of_bits(bits_of_f32(rounded * scale) | kept);

    return (bits & 0x7FFFFFFFu) < 0x7F800000u ? value
                                              : f32_of_bits(0x7FC00000u);
}

/* The code of v as a number, 0 where v is not finite. Of INT8 and TERNARY. */
ELEMENTARY float grid_code(float v, float rounded)
{
    const uint32_t bits = bits_of_f32(v);
    const float magnitude =
        (bits & 0x7FFFFFFFu) < 0x7F800000u ? rounded : 0;

    return bits >> 31 ? -magnitude : magnitude;
}

/* The magnitude's bits; 0 where it is not finite. They ascend with it. */
ELEMENTARY uint32_t finite_bits(float v)
{
    const uint32_t bits = bits_of_f32(v) & 0x7FFFFFFFu;

    return bits < 0x7F800000u ? bits : 0;
}

/* The number's bits; 0 where it is not finite. */
ELEMENTARY uint32_t signed_finite(float v)
{
    return finite_bits(v) > 0 ? bits_of_f32(v) : 0;
}

/* 2^exponent. */
ELEMENTARY float scale_power(int32_t exponent)
{
    const int32_t low = exponent < QUANTIZE_LEAST ? QUANTIZE_LEAST : exponent;
    const int32_t high = low > QUANTIZE_MOST ? QUANTIZE_MOST : low;

    return f32_of_bits((uint32_t)(high + 127) << 23);
}

/* SCALE_FLOOR and SCALE_CEIL for a largest number, both as bits. */
ELEMENTARY float scale_floor(uint32_t a, uint32_t largest)
{
    return scale_power((int32_t)(a >> 23) - (int32_t)(largest >> 23));
}

ELEMENTARY float scale_ceil(uint32_t a, uint32_t largest)
{
    const int32_t more = (a & 0x7FFFFFu) > (largest & 0x7FFFFFu);

    return scale_power((int32_t)(a >> 23) - (int32_t)(largest >> 23) + more);
}

/* t of SCALE_TWO. */
ELEMENTARY float scale_outer(uint32_t a, float largest)
{
    return scale_ceil(a, bits_of_f32(448 * largest));
}

/* L / 2^(floor(log2 L) + 1): 3/4 of E2M1. */
ELEMENTARY float fit_factor(float largest)
{
    const uint32_t exponent = bits_of_f32(largest) & 0x7F800000u;

    return largest * f32_of_bits(0x7F000000u - exponent) * 0.5f;
}

/* SCALE_GAUSS: a power of two as bits. Sums of the `count` elements of the
 * block and of their squares, in 16 lanes of float64: element j in lane j % 16,
 * folded by 8, 4, 2, 1. With v = squares / count - (sum / count)^2 it is
 * 2^floor(e / 2), e = floor(log2(v (2.92247856 / L)^2)). */
ELEMENTARY uint32_t gauss_bits(double *sums, double *squares, int64_t count,
                               float largest)
{
    const double best = 2.92247856 / (double)largest;
    union { double value; uint64_t bits; } v;
    int32_t exponent;

    for (int half = 8; half > 0; half /= 2)
        for (int j = 0; j < half; j++) {
            sums[j] = sums[j] + sums[j + half];
            squares[j] = squares[j] + squares[j + half];
        }
    const double mean = sums[0] / (double)count;

    v.value = (squares[0] / (double)count - mean * mean) * (best * best);
    exponent = v.value > 0 ? (int32_t)(v.bits >> 52) - 1023
                           : 2 * QUANTIZE_LEAST;
    exponent = (exponent - (exponent & 1)) / 2; /* rounded down */
    if (exponent < QUANTIZE_LEAST) exponent = QUANTIZE_LEAST;
    if (exponent > QUANTIZE_MOST) exponent = QUANTIZE_MOST;
    return (uint32_t)(exponent + 127) << 23;
}

/* Whether scales of the rule are powers of two. */
ELEMENTARY bool scale_is_power(enum scale_rule rule)
{
    return rule <= SCALE_LATE || rule == SCALE_GAUSS || rule == SCALE_FIT;
}

/* Whether they are of the steps before. */
ELEMENTARY bool scale_is_late(enum scale_rule rule)
{
    return rule == SCALE_LATE || rule == SCALE_TWO_LATE;
}

/* SCALE_EXACT and SCALE_MEAN. */
ELEMENTARY float scale_or_zero(float scale)
{
    return scale < QUANTIZE_TINY ? 0 : scale;
}

/* ---- SCALE_MEAN ---- */

/* Magnitudes are summed as integers in MEAN_GROUPS groups of 8 exponents each:
 * exact for up to 2^32 elements, so a sum is that of its parts in any order. */
enum { MEAN_GROUPS = 32 };

/* The exponent of finite bits, as numbers below the smallest normal one have
 * it. */
ELEMENTARY uint32_t mean_exponent(uint32_t bits)
{
    return bits >> 23 > 0 ? bits >> 23 : 1;
}

ELEMENTARY uint32_t mean_group(uint32_t bits)
{
    return mean_exponent(bits) / 8;
}

/* The number is so many times 2^(8 group - 150). */
ELEMENTARY uint32_t mean_units(uint32_t bits)
{
    const uint32_t hidden = bits >> 23 > 0 ? 0x800000u : 0;

    return (hidden | (bits & 0x7FFFFFu)) << mean_exponent(bits) % 8;
}

/* Groups are rounded to float64 and added there, small numbers first; the sum
 * is divided by the count, and rounded to float32 once. */
ELEMENTARY float mean_scale(const int64_t *groups, int64_t count)
{
    double sum = 0, unit = 0x1p-150;

    for (int i = 0; i < MEAN_GROUPS; i++) {
        sum = sum + (double)groups[i] * unit;
        unit = unit * 256;
    }
    return scale_or_zero((float)(sum / (double)count));
}

/* The scale of a block; a: its gauss_bits for SCALE_GAUSS; outer: t of
 * SCALE_TWO, the mean of SCALE_MEAN, `known` of SCALE_LATE. */
ELEMENTARY float block_scale(enum scale_rule rule, uint32_t a, float largest,
                             const struct grid_format *e4m3, float outer)
{
    switch (rule) {
    case SCALE_FLOOR:
    case SCALE_FIT: return scale_floor(a, bits_of_f32(largest));
    case SCALE_GAUSS: return f32_of_bits(a);
    case SCALE_CEIL: return scale_ceil(a, bits_of_f32(largest));
    case SCALE_LATE:
        return scale_ceil(bits_of_f32(outer), bits_of_f32(largest));
    case SCALE_TWO:
    case SCALE_TWO_LATE:
        return grid_nearest(e4m3, f32_of_bits(a) / largest / outer) * outer;
    case SCALE_EXACT: return scale_or_zero(f32_of_bits(a) / largest);
    case SCALE_MEAN: return outer;
    default: return 1;
    }
}

/* Counts v, which became `value`; y: its magnitude over the scale. */
ELEMENTARY void tally_count(struct quantize_tally *t, float v, float y,
                            float value, const struct grid_format *f,
                            float scale)
{
    const uint32_t bits = finite_bits(v);

    if (bits == 0) return;
    t->elements++;
    t->cut += y > f->largest;
    t->zeroed += !(value < 0) && !(value > 0);
    if (bits > bits_of_f32(t->largest)) t->largest = f32_of_bits(bits);
    if (scale > 0 && (t->scale_least <= 0 || scale < t->scale_least))
        t->scale_least = scale;
    if (scale > t->scale_most) t->scale_most = scale;
}

/* Numbers of the block are divided by this: a block of zeros by 1. */
ELEMENTARY float block_divisor(float scale)
{
    return scale > 0 ? scale : 1;
}

#endif
