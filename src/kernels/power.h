/* SPDX-License-Identifier: Apache-2.0 */
/* power.h - powers of 2 in float32, for attention on tensor cores: as
 * elementary.h makes its functions, of fewer operations. */
#ifndef LOCKSTEP_KERNELS_POWER_H
#define LOCKSTEP_KERNELS_POWER_H

#include "kernels/elementary.h"

/* 2^x for x <= 127, 3 ulp; +0 below -126, so no denormal ever comes out. NaN
 * becomes NaN. */
ELEMENTARY float exp2z_f32(float x)
{
    float c = x < -126.0f ? -126.0f : x;
    float t = c + ROUND_MAGIC, f = c - (t - ROUND_MAGIC), q, p;

    q = 0x1.5da1dep-10f;
    q = __builtin_fmaf(q, f, 0x1.3cce76p-7f);
    q = __builtin_fmaf(q, f, 0x1.c6b238p-5f);
    q = __builtin_fmaf(q, f, 0x1.ebfa0ep-3f);
    q = __builtin_fmaf(q, f, 0x1.62e42ep-1f);
    p = __builtin_fmaf(q, f, 1.0f);
    p = f32_of_bits(bits_of_f32(p) + (bits_of_f32(t) << 23));
    return x < -126.0f ? 0.0f : x == x ? p : x;
}

#endif
