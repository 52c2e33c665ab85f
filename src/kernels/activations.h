/* SPDX-License-Identifier: Apache-2.0 */
/* activations.h - activations and their slopes in float32, one element at a
 * time, for fast kernels. The order of operations is that of
 * reference/elementwise.c. */
#ifndef LOCKSTEP_KERNELS_ACTIVATIONS_H
#define LOCKSTEP_KERNELS_ACTIVATIONS_H

#include "kernels/elementary.h"

#define GELU_A 0.79788456080286535588
#define GELU_B (0.044715 * GELU_A)
#define SQRT_HALF 0.70710678118654752440
#define INVERSE_SQRT_TWO_PI 0.39894228040143267794

ELEMENTARY float gelu_inner(float x)
{
    return tanh_f32(x * __builtin_fmaf(x * x, (float)GELU_B, (float)GELU_A));
}

ELEMENTARY float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + gelu_inner(x));
}

ELEMENTARY float gelu_tanh_slope(float x)
{
    const float t = gelu_inner(x);
    const float inner =
        __builtin_fmaf(x * x, (float)(3 * GELU_B), (float)GELU_A);

    return __builtin_fmaf(0.5f * x * inner, __builtin_fmaf(-t, t, 1.0f),
                          0.5f * (1.0f + t));
}

ELEMENTARY float normal_cumulative(float x)
{
    return 0.5f * (1.0f + erf_f32(x * (float)SQRT_HALF));
}

ELEMENTARY float gelu_erf_slope(float x)
{
    const float density =
        exp_f32(-0.5f * x * x) * (float)INVERSE_SQRT_TWO_PI;

    return __builtin_fmaf(x, density, normal_cumulative(x));
}

/* NaN passes through the factor x. */
ELEMENTARY float silu_slope(float x)
{
    const float s = 1.0f / one_plus_exp_f32(x);

    return __builtin_fmaf(x * s, 1.0f - s, s);
}

#endif
