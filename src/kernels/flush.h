/* SPDX-License-Identifier: Apache-2.0 */
/* flush.h - float32 as the instructions for bfloat16 do it: round to nearest,
 * denormal operands and results are zeros of their sign.
 *
 * A result is denormal when it would be below 2^-126 after rounding to 24 bits
 * with exponents that have no bounds: x86 decides so, with MXCSR's FTZ and DAZ
 * too; ARM's FZ decides before rounding and is something else. */
#ifndef LOCKSTEP_KERNELS_FLUSH_H
#define LOCKSTEP_KERNELS_FLUSH_H

#include "kernels/elementary.h"

ELEMENTARY float flushed(float x)
{
    uint32_t bits = bits_of_f32(x);

    return f32_of_bits(bits & 0x7F800000u ? bits : bits & 0x80000000u);
}

/* `rounded` is what `exact` rounds to; zero of its sign where that would be
 * denormal. `exact` need not be exact above. */
ELEMENTARY float flushed_result(float rounded, double exact)
{
    uint32_t bits = bits_of_f32(rounded);

    if (exact < 0x1.ffffffp-127 && exact > -0x1.ffffffp-127)
        bits &= 0x80000000u;
    return f32_of_bits(bits);
}

/* a * b + c, rounded once. In float64 the product of two bfloat16 numbers is
 * exact, and so is the sum wherever it could be denormal. */
ELEMENTARY float flushed_fma(float a, float b, float c)
{
    float x = flushed(a), y = flushed(b), z = flushed(c);

    return flushed_result(__builtin_fmaf(x, y, z),
                          (double)x * (double)y + (double)z);
}

ELEMENTARY float flushed_add(float a, float b)
{
    float x = flushed(a), y = flushed(b);

    return flushed_result(x + y, (double)x + (double)y);
}

#endif
