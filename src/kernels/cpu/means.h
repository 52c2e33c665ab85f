/* SPDX-License-Identifier: Apache-2.0 */
/* means.h - exact sums of magnitudes (SCALE_MEAN of kernels/quantize.h). A
 * strip's numbers have few different exponents, so each group among them takes
 * a pass. */
#ifndef LOCKSTEP_KERNELS_CPU_MEANS_H
#define LOCKSTEP_KERNELS_CPU_MEANS_H

#include "kernels/cpu/cpu.h"
#include "kernels/element.h"
#include "kernels/quantize.h"

enum { MEAN_STRIP = 256 };

/* Adds elements [from, to) of a row, at most MEAN_STRIP. dtype: constant. */
ELEMENTARY void means_strip(enum dtype dtype, const void *row, int64_t from,
                            int64_t to, int64_t *groups)
{
    uint32_t units[MEAN_STRIP], group[MEAN_STRIP], present = 0;
    const int64_t count = to - from;

    SIMD for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = finite_bits(element_get(row, dtype, from + i));

        units[i] = mean_units(bits);
        group[i] = mean_group(bits);
    }
    for (int64_t i = 0; i < count; i++)
        present |= units[i] > 0 ? 1u << group[i] : 0;
    for (uint32_t g = 0; present >> g > 0; g++) {
        uint64_t sum = 0;

        if ((present >> g & 1) == 0) continue;
        for (int64_t i = 0; i < count; i++)
            sum += group[i] == g ? units[i] : 0;
        groups[g] += (int64_t)sum;
        if (g == 31) break;
    }
}

/* Elements [from, to) of a row of bfloat16 or float32. */
static inline void means_add(enum dtype dtype, const void *row, int64_t from,
                             int64_t to, int64_t *groups)
{
    for (int64_t at = from; at < to; at += MEAN_STRIP) {
        const int64_t end = at + MEAN_STRIP < to ? at + MEAN_STRIP : to;

        if (dtype == DTYPE_BF16)
            means_strip(DTYPE_BF16, row, at, end, groups);
        else
            means_strip(DTYPE_F32, row, at, end, groups);
    }
}

#endif
