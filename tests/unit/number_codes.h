/* SPDX-License-Identifier: Apache-2.0 */
/* number_codes.h - codes of tensor/format.h, one number at a time: kernels code
 * whole blocks, and are compared with them. */
#ifndef LOCKSTEP_TESTS_NUMBER_CODES_H
#define LOCKSTEP_TESTS_NUMBER_CODES_H

#include <math.h>
#include <string.h>

#include "tensor/format.h"

/* "e4m3", "bf16", ...; false when unknown. */
static inline bool format_parse(const char *name, enum number_format *out)
{
    for (int i = 0; i < FORMAT_COUNT; i++) {
        *out = (enum number_format)i;
        if (strcmp(name, number_formats[i].name) == 0) return true;
    }
    return false;
}

/* The code of x. random: 32 bits of which the upper 24 decide a stochastic
 * rounding. saturate: what is too large, infinity included, becomes the largest
 * number; else infinity, or NaN where there is none. */
struct format_cast { enum rounding rounding; bool saturate; uint32_t random; };

static inline uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^exponent, normal in float64. */
static inline double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* floor(log2 x) of a positive number. */
static inline int exponent_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FF) - 1023;
}

static inline bool is_nan(float x)
{
    return (bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

static inline uint32_t sign_bit(const struct format *f)
{
    return 1u << (f->bits - 1);
}

static inline uint32_t nan_code(const struct format *f, bool negative)
{
    const uint32_t sign = negative ? sign_bit(f) : 0;

    switch (f->special) {
    case SPECIAL_NAN: return sign | (sign_bit(f) - 1);
    case SPECIAL_IEEE: /* a quiet one */
        return sign | (f->most + 1) | 1u << (f->mantissa - 1);
    case SPECIAL_MINUS: return sign_bit(f);
    default: return 0;
    }
}

/* Whether a number between two multiples of a quantum goes to the upper one.
 * part: its distance from the lower one, in [0, 1). */
static inline bool rounds_up(double part, uint32_t lower,
                             const struct format_cast *cast)
{
    switch (cast->rounding) {
    case ROUND_AWAY: return part > 0;
    case ROUND_STOCHASTIC: return (cast->random >> 8) * 0x1p-24 < part;
    default: return part > 0.5 || (part == 0.5 && (lower & 1) != 0);
    }
}

/* The magnitude code; above f->most: too large. */
static inline uint32_t magnitude(const struct format *f, double x,
                                 const struct format_cast *cast)
{
    const int own = x > 0 ? exponent_of(x) : f->least;
    const int exponent = own > f->least ? own : f->least;
    double quanta, part;
    uint32_t code;

    if (exponent - f->least > 1 << f->bits) return f->most + 1;
    quanta = x * power_of_two(f->mantissa - exponent);
    code = (uint32_t)quanta;
    part = quanta - code;
    code += rounds_up(part, code, cast);
    return code + ((uint32_t)(exponent - f->least) << f->mantissa);
}

static inline uint32_t with_sign(const struct format *f, uint32_t code,
                                 bool negative)
{
    if (!negative) return code;
    if (f->complement) return (0u - code) & (2 * sign_bit(f) - 1);
    if (f->special == SPECIAL_MINUS && code == 0) return 0;
    return code | sign_bit(f);
}

/* The code of a positive scale; of what is no positive number: 255, NaN. */
static inline uint32_t e8m0_encode(float x, enum rounding rounding)
{
    const struct format_cast cast = {.rounding = rounding};
    uint32_t code;
    double part;

    if (!(x > 0) || isinf(x)) return 255;
    const int exponent = exponent_of(x);

    if (exponent < -127) return 0;
    part = (double)x * power_of_two(-exponent) - 1;
    code = (uint32_t)(exponent + 127);
    code += rounds_up(part, 1, &cast);
    return code > 254 ? 255 : code;
}

static inline uint32_t format_encode(enum number_format format, float x,
                                     const struct format_cast *cast)
{
    const struct format *f = &number_formats[format];
    const bool negative = bits_of(x) >> 31;
    uint32_t code;

    if (format == FORMAT_E8M0) return e8m0_encode(x, cast->rounding);
    if (is_nan(x)) return nan_code(f, negative);
    code = isinf(x) ? f->most + 1
                    : magnitude(f, negative ? -(double)x : (double)x, cast);
    if (code > f->most && (cast->saturate || f->special == SPECIAL_NONE))
        code = f->most;
    if (code > f->most)
        return f->special == SPECIAL_IEEE ? with_sign(f, f->most + 1, negative)
                                          : nan_code(f, negative);
    return with_sign(f, code, negative);
}

static inline float format_decode(enum number_format format, uint32_t code)
{
    const struct format *f = &number_formats[format];
    bool negative;

    if (format == FORMAT_E8M0)
        return code == 255 ? NAN : (float)power_of_two((int)code - 127);
    negative = (code & sign_bit(f)) != 0;
    if (negative && f->complement) code = (0u - code) & (2 * sign_bit(f) - 1);
    else if (negative) code -= sign_bit(f);
    if (negative && f->special == SPECIAL_MINUS && code == 0) return NAN;
    if (code > f->most && f->special == SPECIAL_IEEE && code == f->most + 1)
        return negative ? -INFINITY : INFINITY;
    if (code > f->most && f->special != SPECIAL_NONE) return NAN;

    const uint32_t above = f->least == f->mantissa ? 0 : code >> f->mantissa;
    const int exponent = f->least + (above > 0 ? (int)above - 1 : 0);
    const uint32_t low = above > 0 ? (code & ((1u << f->mantissa) - 1)) |
                                         1u << f->mantissa
                                   : code;
    const double value = low * power_of_two(exponent - f->mantissa);

    return (float)(negative ? -value : value);
}

#endif
