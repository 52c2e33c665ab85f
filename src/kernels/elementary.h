/* SPDX-License-Identifier: Apache-2.0 */
/* elementary.h - exp and log in float32 for kernels, inlined so that the
 * compiler makes vectors of them. Only +, -, *, fma and integer operations on
 * the bits: the same result on every machine and in every vector width.
 *
 * Method: Cody and Waite reduction, minimax polynomial (own fit), scaling by
 * adding to the exponent. Adding ROUND_MAGIC rounds to an integer that then
 * stands in the low bits of the sum. */
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
 * stays NaN. */
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
    y = f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
    return x < -87.0f ? 0.0f : y;
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
