/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - sums and maxima of a row in LANES lanes of float32.
 *
 * Element j goes to lane j % LANES; lanes are folded by halves. An array of
 * sixteen is one AVX-512 register, two of AVX2, four of NEON: the inner loops
 * become one instruction or a few, and the bits do not depend on which. */
#ifndef LOCKSTEP_KERNELS_LANES_H
#define LOCKSTEP_KERNELS_LANES_H

#include "kernels/element.h"
#include "kernels/kernels.h"

#define EACH_LANE _Pragma("omp simd") for (int j = 0; j < LANES; j++)

ELEMENTARY float lanes_fold(float *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

/* Sum of x. */
ELEMENTARY float lanes_sum(struct elements x, int64_t count)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        EACH_LANE lanes[j] = lanes[j] + element_of(x, i + j);
    for (int j = 0; i + j < count; j++)
        lanes[j] = lanes[j] + element_of(x, i + j);
    return lanes_fold(lanes);
}

/* Sum of a * b by FMAs. */
ELEMENTARY float lanes_dot(struct elements a, struct elements b, int64_t count)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        EACH_LANE lanes[j] = __builtin_fmaf(
            element_of(a, i + j), element_of(b, i + j), lanes[j]);
    for (int j = 0; i + j < count; j++)
        lanes[j] = __builtin_fmaf(element_of(a, i + j), element_of(b, i + j),
                                  lanes[j]);
    return lanes_fold(lanes);
}

/* Sum of (x - mean)^2. */
ELEMENTARY float lanes_squares(struct elements x, float mean, int64_t count)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        EACH_LANE {
            float apart = element_of(x, i + j) - mean;

            lanes[j] = __builtin_fmaf(apart, apart, lanes[j]);
        }
    for (int j = 0; i + j < count; j++) {
        float apart = element_of(x, i + j) - mean;

        lanes[j] = __builtin_fmaf(apart, apart, lanes[j]);
    }
    return lanes_fold(lanes);
}

/* Sum of (a * b) * (x - mean); with mean 0, x is taken as it is. */
ELEMENTARY float lanes_triple(struct elements a, struct elements b,
                              struct elements x, float mean, int64_t count)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        EACH_LANE {
            float product = element_of(a, i + j) * element_of(b, i + j);

            lanes[j] = __builtin_fmaf(product, element_of(x, i + j) - mean,
                                      lanes[j]);
        }
    for (int j = 0; i + j < count; j++) {
        float product = element_of(a, i + j) * element_of(b, i + j);

        lanes[j] = __builtin_fmaf(product, element_of(x, i + j) - mean,
                                  lanes[j]);
    }
    return lanes_fold(lanes);
}

/* A maximum is exact, so its order is free: four registers hide its latency. */
ELEMENTARY float lanes_max(const float *x, int64_t count)
{
    enum { WIDE = 4 * LANES };
    float lanes[WIDE], max;
    int64_t i = 0;

    for (int j = 0; j < WIDE; j++) lanes[j] = -__builtin_inff();
    for (; i + WIDE <= count; i += WIDE) {
        _Pragma("omp simd")
        for (int j = 0; j < WIDE; j++)
            lanes[j] = lanes[j] > x[i + j] ? lanes[j] : x[i + j];
    }
    max = lanes[0];
    for (int j = 1; j < WIDE; j++) max = max > lanes[j] ? max : lanes[j];
    for (; i < count; i++) max = max > x[i] ? max : x[i];
    return max;
}

#endif
