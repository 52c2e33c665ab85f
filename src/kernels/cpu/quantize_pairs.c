/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_pairs.c - a strip of columns at a time: magnitudes of its blocks,
 * their scales, and rows, word by word. */
#include "kernels/cpu/quantize_pairs.h"

enum { STRIP = QUANTIZE_BLOCK_MOST, WORDS = STRIP / 2, SPECIAL = 0x7F80 };

/* Two elements of bfloat16 at any address. */
typedef uint32_t pair_word __attribute__((aligned(2), may_alias));

/* Numbers that the low and the high elements of words are rounded with. Where
 * scales are powers of two: the largest number times the scale, and the
 * exponent bits of the smallest normal number times it. Else the inverse of the
 * scale, and the scale. */
struct pair_scales {
    float first[2][WORDS];
    uint32_t second[2][WORDS];
};

bool CPU(pairs_can)(const struct quantize *p, const struct grid_format *f)
{
    const bool powers = scale_is_power(p->scale) && p->scale != SCALE_GAUSS &&
                        p->scale != SCALE_FIT;
    const bool two = (p->scale == SCALE_TWO || p->scale == SCALE_TWO_LATE) &&
                     f->fall <= 3u << 23 && f->zero_sign != 0;

    return p->in.dtype == DTYPE_BF16 && p->in.data != p->out.data &&
           p->rounding == ROUND_NEAREST && !p->turn && p->scales == NULL &&
           (powers || two) && (p->block_cols < 2 || p->block_cols % 2 == 0);
}

uint32_t CPU(pairs_peak)(const uint16_t *row, int64_t count)
{
    uint16_t most = 0;

    _Pragma("omp simd reduction(max : most)")
    for (int64_t c = 0; c < count; c++) {
        const uint16_t bits = row[c] & 0x7FFF;

        most = bits > most ? bits : most;
    }
    return (uint32_t)most << 16;
}

/* ---- scales ---- */

/* The largest of a run; count is a constant where runs are of usual sizes. */
ELEMENTARY uint16_t run_largest(const uint16_t *x, const int count)
{
    uint16_t most = 0;

    _Pragma("omp simd reduction(max : most)")
    for (int i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* most [blocks] = the largest magnitudes of blocks of columns, as bits. */
static int blocks_peak(const uint16_t *peaks, int width, int block,
                       uint32_t *most)
{
    int count = 0;

    for (int c = 0; c < width; c += block, count++) {
        const uint16_t *from = peaks + c;
        const int left = width - c < block ? width - c : block;

        if (left == 1) most[count] = *from;
        else if (left == 16) most[count] = run_largest(from, 16);
        else if (left == 32) most[count] = run_largest(from, 32);
        else if (left == 128) most[count] = run_largest(from, 128);
        else most[count] = run_largest(from, left);
        most[count] <<= 16;
    }
    return count;
}

/* rule is a constant. false: a scale is out of what pairs can be rounded
 * with. */
ELEMENTARY bool scales_make(const enum scale_rule rule,
                        const struct pairs_part *part, const uint32_t *most,
                        int count, float *first, uint32_t *second)
{
    const struct grid_format f = part->format, e4m3 = part->e4m3;
    const float outer = part->outer;
    uint32_t bad = 0;

    _Pragma("omp simd reduction(| : bad)")
    for (int i = 0; i < count; i++) {
        const float s = block_scale(rule, most[i], f.largest, &e4m3, outer);

        bad |= most[i] >= (uint32_t)SPECIAL << 16;
        if (rule == SCALE_TWO) {
            bad |= (s < QUANTIZE_TINY && s > 0) || s > 0x1p100f;
            first[i] = 1 / block_divisor(s);
            second[i] = bits_of_f32(s);
        } else {
            bad |= s > 0x1p80f;
            first[i] = f.largest * s;
            second[i] = f.least + bits_of_f32(s) - 0x3F800000u;
        }
    }
    return bad == 0;
}

static bool scales_of(const struct pairs_part *part, const uint32_t *most,
                      int count, float *first, uint32_t *second)
{
#define MAKE(rule) scales_make(rule, part, most, count, first, second)
    switch (part->p->scale) {
    case SCALE_FLOOR: return MAKE(SCALE_FLOOR);
    case SCALE_CEIL: return MAKE(SCALE_CEIL);
    case SCALE_LATE: return MAKE(SCALE_LATE);
    case SCALE_TWO: case SCALE_TWO_LATE: return MAKE(SCALE_TWO);
    default: return MAKE(SCALE_NONE);
    }
#undef MAKE
}

/* Each word gets the scales of its elements. */
static void scales_spread(float *first, uint32_t *second, int width, int block,
                          struct pair_scales *out)
{
    if (block == 1) {
        if (width % 2) first[width] = 0, second[width] = 0;
        SIMD for (int w = 0; w < (width + 1) / 2; w++) {
            out->first[0][w] = first[2 * w];
            out->first[1][w] = first[2 * w + 1];
            out->second[0][w] = second[2 * w];
            out->second[1][w] = second[2 * w + 1];
        }
        return;
    }
    for (int c = 0, i = 0; c < width; c += block, i++) {
        const int end = c + block < WORDS * 2 ? c + block : WORDS * 2;

        SIMD for (int w = c / 2; w < end / 2; w++) {
            out->first[0][w] = first[i];
            out->second[0][w] = second[i];
        }
    }
}

/* ---- rows ---- */

/* How words are rounded: two constants after inlining. */
struct pair_way {
    bool powers; /* scales are powers of two */
    bool same;   /* both elements of a word have one scale */
    struct grid_format format;
    const struct pair_scales *scales;
};

/* A magnitude, rounded. powers: of what scales are, a constant. */
ELEMENTARY uint32_t half_round(const bool powers, const struct grid_format *f,
                           uint32_t bits, float first, uint32_t second)
{
    const uint32_t least = powers ? second : f->least;
    const float most = powers ? first : f->largest;
    const float y = powers ? f32_of_bits(bits) : f32_of_bits(bits) * first;
    /* The quotient of significands of 8 and 4 bits is a tie of the format, or
     * far from one. So the last 12 bits only hold the error of the inverse. */
    const float near =
        powers ? y : f32_of_bits((bits_of_f32(y) + 0x800u) & 0xFFFFF000u);
    const float a = near > most ? most : near;
    const uint32_t own = bits_of_f32(a) & 0x7F800000u;
    const float lift = f32_of_bits((own < least ? least : own) + f->lift);
    const float rounded = (a + lift) - lift;

    return bits_of_f32(powers ? rounded : rounded * f32_of_bits(second));
}

ELEMENTARY uint32_t sign_of(const struct grid_format *f, uint32_t word,
                        uint32_t low, uint32_t high)
{
    const uint32_t zero = f->zero_sign ? 0x80008000u : 0;
    const uint32_t kept =
        (low > 0 ? 0x8000u : 0) | (high > 0 ? 0x80000000u : 0);

    return word & (zero | kept);
}

ELEMENTARY void words_round(const struct pair_way way, const pair_word *in,
                            pair_word *out, int count)
{
    const struct grid_format g = way.format;
    const struct pair_scales *s = way.scales;
    const bool powers = way.powers;
    const int other = way.same ? 0 : 1;

    SIMD for (int w = 0; w < count; w++) {
        const uint32_t word = in[w];
        const uint32_t low =
            half_round(powers, &g, word << 16 & 0x7FFFFFFFu, s->first[0][w],
                       s->second[0][w]);
        const uint32_t high =
            half_round(powers, &g, word & 0x7FFF0000u, s->first[other][w],
                       s->second[other][w]);

        out[w] = high | low >> 16 | sign_of(&g, word, low, high);
    }
}

/* Columns of a row; what has no neighbour alone. */
ELEMENTARY void row_round(const struct pair_way way, const uint16_t *in,
                          uint16_t *out, int width)
{
    const struct pair_scales *s = way.scales;
    const int words = width / 2;
    struct pair_scales one;
    uint16_t last[2];

    words_round(way, (const pair_word *)in, (pair_word *)out, words);
    if (width % 2 == 0) return;
    last[0] = in[width - 1];
    last[1] = 0;
    for (int i = 0; i < 2; i++) {
        one.first[i][0] = s->first[0][words];
        one.second[i][0] = s->second[0][words];
    }
    words_round((struct pair_way){way.powers, true, way.format, &one},
                (const pair_word *)last, (pair_word *)last, 1);
    out[width - 1] = last[0];
}

#define WAY(powers, same) \
    (struct pair_way){powers, same, part->format, s}

static void rows_round(const struct pairs_part *part, int64_t col, int width,
                       const struct pair_scales *s)
{
    const struct quantize *p = part->p;
    const bool powers = scale_is_power(p->scale);
    const bool same = part->fixed || p->block_cols != 1;

    for (int64_t r = part->row; r < part->row + part->rows; r++) {
        const uint16_t *in =
            (const uint16_t *)p->in.data + r * p->in.stride[0] + col;
        uint16_t *out = (uint16_t *)p->out.data + r * p->out.stride[0] + col;

        if (!powers) row_round(WAY(false, same), in, out, width);
        else if (same) row_round(WAY(true, true), in, out, width);
        else row_round(WAY(true, false), in, out, width);
    }
}

/* ---- strips ---- */

/* peaks [width] = magnitudes of the columns. */
static void columns_peak(const struct pairs_part *part, int64_t col, int width,
                         uint16_t *peaks)
{
    const struct quantize *p = part->p;

    for (int64_t r = 0; r < part->rows; r++) {
        const uint16_t *in = (const uint16_t *)p->in.data +
                             (part->row + r) * p->in.stride[0] + col;

        if (r == 0)
            SIMD for (int c = 0; c < width; c++) peaks[c] = in[c] & 0x7FFF;
        else
            SIMD for (int c = 0; c < width; c++) {
                const uint16_t bits = in[c] & 0x7FFF;

                peaks[c] = bits > peaks[c] ? bits : peaks[c];
            }
    }
}

bool CPU(pairs_round)(const struct pairs_part *part)
{
    const struct quantize *p = part->p;
    const struct quantize_span cols = p->cols[part->span];
    const int block = part->fixed ? STRIP : (int)p->block_cols;
    const int strip = STRIP / block * block;
    uint16_t peaks[STRIP];
    uint32_t most[STRIP], second[STRIP];
    float first[STRIP];
    struct pair_scales scales;

    if (part->fixed) {
        if (!scales_of(part, &part->most, 1, first, second)) return false;
        scales_spread(first, second, STRIP, STRIP, &scales);
    }
    for (int64_t c = 0; c < cols.count; c += strip) {
        const int width = cols.count - c < strip ? (int)(cols.count - c)
                                                 : strip;
        const int64_t col = cols.first + c;

        columns_peak(part, col, width, peaks);
        if (part->fixed) {
            if (run_largest(peaks, width) >= SPECIAL) return false;
        } else {
            const int count = blocks_peak(peaks, width, block, most);

            if (!scales_of(part, most, count, first, second)) return false;
            scales_spread(first, second, width, block, &scales);
        }
        rows_round(part, col, width, &scales);
    }
    return true;
}
