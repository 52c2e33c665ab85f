/* SPDX-License-Identifier: Apache-2.0 */
/* elementary.h - elementary functions in float32 for kernels, inlined so that
 * the compiler makes vectors of them. Only +, -, *, /, fma and integer
 * operations on the bits: the same result on every machine and in every vector
 * width. Errors (in units of the last place, tested densely): exp 1.0, log 0.9,
 * sigmoid 2.5, tanh 2.6, erf 1.1.
 *
 * Method: Cody and Waite reduction, minimax polynomials (own fits; their
 * coefficients are ours and have no other source), scaling by a power of two, a
 * factor whose bits are made of an integer. Adding ROUND_MAGIC rounds to an
 * integer that then stands in the low bits of the sum. */
#ifndef LOCKSTEP_KERNELS_ELEMENTARY_H
#define LOCKSTEP_KERNELS_ELEMENTARY_H

#include <stdint.h>
#include <string.h>

#define ELEMENTARY static inline __attribute__((always_inline))
#define ROUND_MAGIC 0x1.8p23f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f

ELEMENTARY uint32_t bits_of_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ELEMENTARY float f32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x for x <= 88, 1 ulp; +0 below -87, so no denormal ever comes out. NaN
 * stays NaN, whatever its bits: the power of two is a factor. Added to the
 * exponent it would make a finite number of a GPU's NaN, 0x7fffffff. */
ELEMENTARY float expz_f32(float x)
{
    float c = x < -87.0f ? -87.0f : x;
    float t = __builtin_fmaf(c, 0x1.715476p+0f, ROUND_MAGIC);
    float n = t - ROUND_MAGIC;
    float r = __builtin_fmaf(n, -LN2_HIGH, c), q, p, y;

    r = __builtin_fmaf(n, -LN2_LOW, r);
    q = 1.378246466629207134246826171875e-3f;
    q = __builtin_fmaf(q, r, 8.368670009076595306396484375e-3f);
    q = __builtin_fmaf(q, r, 4.16689626872539520263671875e-2f);
    q = __builtin_fmaf(q, r, 0.16666521131992340087890625f);
    q = __builtin_fmaf(q, r, 0.4999999105930328369140625f);
    p = __builtin_fmaf(r * r, q, r) + 1.0f;
    y = p * f32_of_bits((bits_of_f32(t) << 23) + 0x3f800000u);
    return x < -87.0f ? 0.0f : y;
}

/* e^x, 1 ulp, denormal results and overflow included. NaN stays NaN. */
ELEMENTARY float exp_f32(float x)
{
    float c = x < -104.0f ? -104.0f : x, t, n, r, q, p;
    uint32_t k, half; /* the exponent + 512, so that it stays unsigned */

    c = c > 89.0f ? 89.0f : c;
    t = __builtin_fmaf(c, 0x1.715476p+0f, ROUND_MAGIC);
    n = t - ROUND_MAGIC;
    r = __builtin_fmaf(n, -LN2_HIGH, c);
    r = __builtin_fmaf(n, -LN2_LOW, r);
    q = 1.378246466629207134246826171875e-3f;
    q = __builtin_fmaf(q, r, 8.368670009076595306396484375e-3f);
    q = __builtin_fmaf(q, r, 4.16689626872539520263671875e-2f);
    q = __builtin_fmaf(q, r, 0.16666521131992340087890625f);
    q = __builtin_fmaf(q, r, 0.4999999105930328369140625f);
    p = __builtin_fmaf(r * r, q, r) + 1.0f;
    k = bits_of_f32(t) - 0x4b400000u + 512u;
    half = k >> 1;
    /* Two scalings: the first is exact, the second rounds once. */
    p = p * f32_of_bits((half - 256u + 127u) << 23);
    return p * f32_of_bits((k - half - 256u + 127u) << 23);
}

/* 1 + e^-x: the bits that exp_f32 would give, anything for NaN. e^-x is
 * infinite from -89 down, and from 64 on it adds nothing. The power of two is
 * one less than it should be, so that it fits, and the last FMA doubles:
 * exactly, but for overflow. */
ELEMENTARY float one_plus_exp_f32(float x)
{
    float c = x > 64.0f ? 64.0f : x, t, n, r, q, p;

    c = c < -89.0f ? -89.0f : c;
    t = __builtin_fmaf(c, -0x1.715476p+0f, ROUND_MAGIC - 1.0f);
    n = t - (ROUND_MAGIC - 1.0f);
    r = __builtin_fmaf(n, -LN2_HIGH, -c);
    r = __builtin_fmaf(n, -LN2_LOW, r);
    q = 1.378246466629207134246826171875e-3f;
    q = __builtin_fmaf(q, r, 8.368670009076595306396484375e-3f);
    q = __builtin_fmaf(q, r, 4.16689626872539520263671875e-2f);
    q = __builtin_fmaf(q, r, 0.16666521131992340087890625f);
    q = __builtin_fmaf(q, r, 0.4999999105930328369140625f);
    p = __builtin_fmaf(r * r, q, r) + 1.0f;
    p = f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
    return __builtin_fmaf(p, 2.0f, 1.0f);
}

/* 1 / (1 + e^-x) and x times that. */
ELEMENTARY float sigmoid_f32(float x)
{
    float y = 1.0f / one_plus_exp_f32(x);

    return x == x ? y : x;
}

ELEMENTARY float silu_f32(float x)
{
    return x / one_plus_exp_f32(x);
}

/* (e^2x - 1) / (e^2x + 1), where e^2x - 1 is computed without cancellation. */
ELEMENTARY float tanh_f32(float x)
{
    uint32_t sign = bits_of_f32(x) & 0x80000000u;
    float a = f32_of_bits(bits_of_f32(x) & 0x7fffffffu);
    float y, t, n, r, q, p, s, e;

    a = a > 10.0f ? 10.0f : a;
    y = a + a;
    t = __builtin_fmaf(y, 0x1.715476p+0f, ROUND_MAGIC);
    n = t - ROUND_MAGIC;
    r = __builtin_fmaf(n, -LN2_HIGH, y);
    r = __builtin_fmaf(n, -LN2_LOW, r);
    q = 1.386453048326075077056884765625e-3f;
    q = __builtin_fmaf(q, r, 8.366533555090427398681640625e-3f);
    q = __builtin_fmaf(q, r, 4.16675023734569549560546875e-2f);
    q = __builtin_fmaf(q, r, 0.16666543483734130859375f);
    q = __builtin_fmaf(q, r, 0.4999999701976776123046875f);
    p = __builtin_fmaf(r * r, q, r);
    s = f32_of_bits((bits_of_f32(t) - 0x4b400000u + 127u) << 23);
    e = __builtin_fmaf(s, p, s - 1.0f);
    return f32_of_bits(bits_of_f32(e / (e + 2.0f)) | sign);
}

/* Below 1 an odd polynomial; above, 1 - e^-p, where the polynomial p is fitted
 * to -log erfc on [1, 4]. */
ELEMENTARY float erf_f32(float x)
{
    uint32_t sign = bits_of_f32(x) & 0x80000000u;
    float a = f32_of_bits(bits_of_f32(x) & 0x7fffffffu), z = a * a;
    float b = a > 4.0f ? 4.0f : a, q = 0x1.4966d2p-14f, p;

    q = __builtin_fmaf(q, z, -0x1.a3f5b8p-11f);
    q = __builtin_fmaf(q, z, 0x1.540584p-8f);
    q = __builtin_fmaf(q, z, -0x1.b7f906p-6f);
    q = __builtin_fmaf(q, z, 0x1.ce2cf6p-4f);
    q = __builtin_fmaf(q, z, -0x1.81273ep-2f);
    /* The first coefficient is 1 + 0.128...: its leading part is exact. */
    q = __builtin_fmaf(q, z, 0x1.06eba8p-3f);
    q = __builtin_fmaf(a, q, a);
    p = -0x1.852a5cp-13f;
    p = __builtin_fmaf(p, b, 0x1.814bd6p-9f);
    p = __builtin_fmaf(p, b, -0x1.654210p-6f);
    p = __builtin_fmaf(p, b, 0x1.a60aaep-4f);
    p = __builtin_fmaf(p, b, 0x1.46c576p-1f);
    p = __builtin_fmaf(p, b, 0x1.2085b8p+0f);
    p = __builtin_fmaf(p, b, 0x1.72c692p-12f);
    p = 1.0f - expz_f32(-p);
    return f32_of_bits(bits_of_f32(a > 1.0f ? p : q) | sign);
}

/* log x for normal x > 0, 1 ulp. NaN and infinity stay. */
ELEMENTARY float log_f32(float x)
{
    uint32_t bits = bits_of_f32(x);
    uint32_t e = (bits - 0x3f3504f3u + (128u << 23)) >> 23; /* + 128 */
    float f = f32_of_bits(bits - ((e - 128u) << 23)) - 1.0f;
    float n = f32_of_bits(0x4b400000u + (e - 128u)) - ROUND_MAGIC;
    float q = -7.6239757239818572998046875e-2f, low, y;

    q = __builtin_fmaf(q, f, 0.1290909349918365478515625f);
    q = __builtin_fmaf(q, f, -0.132445633411407470703125f);
    q = __builtin_fmaf(q, f, 0.1418113410472869873046875f);
    q = __builtin_fmaf(q, f, -0.1660876572132110595703125f);
    q = __builtin_fmaf(q, f, 0.20002003014087677001953125f);
    q = __builtin_fmaf(q, f, -0.2500160038471221923828125f);
    q = __builtin_fmaf(q, f, 0.3333332538604736328125f);
    q = __builtin_fmaf(q, f, -0.49999988079071044921875f);
    low = __builtin_fmaf(f * f, q, n * LN2_LOW);
    y = __builtin_fmaf(n, LN2_HIGH, f + low);
    return x < 0x1.fffffep127f ? y : x;
}

#endif
