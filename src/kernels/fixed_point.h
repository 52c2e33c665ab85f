/* SPDX-License-Identifier: Apache-2.0 */
/* fixed_point.h - numbers of float32 as integers whose sums do not depend on
 * their order (docs/numerics.md, integer sums). */
#ifndef LOCKSTEP_KERNELS_FIXED_POINT_H
#define LOCKSTEP_KERNELS_FIXED_POINT_H

#include <stdbool.h>
#include "kernels/elementary.h"

/* How numbers become integers, of which at most 2^spare are added to one
 * sum. */
struct fixed {
    double scale; /* a power of two: the integer of v is v scale, rounded */
    int spare;
    bool first;   /* the sum is set, not added to */
};

enum { FIXED_SPARE_MOST = 12 };

/* Integers are at most 2^(61 - 2 spare), so that all of them together are at
 * most 2^(61 - spare); what is larger, and what is not finite, is the
 * mark 2^(62 - spare). A sum with at least one mark is above 2^(61 - spare),
 * and 2^spare marks are 2^62. */
struct fixed_limits {
    double scale, most;
    int64_t mark, last; /* last: the largest sum without a mark */
};

ELEMENTARY struct fixed_limits fixed_limits_of(double scale, int spare)
{
    struct fixed_limits limits;

    limits.scale = scale;
    limits.most = (double)((int64_t)1 << (61 - 2 * spare));
    limits.mark = (int64_t)1 << (62 - spare);
    limits.last = (int64_t)1 << (61 - spare);
    return limits;
}

/* v scale is exact in float64. The sum with 1.5 x 2^52, whose last bit has the
 * value 1, rounds to an integer: first the upper 32 bits, then the lower ones,
 * which decide ties. */
ELEMENTARY int64_t fixed_of(float v, const struct fixed_limits *limits)
{
    const double large = 0x1.8p52, x = (double)v * limits->scale;
    union { double number; uint64_t bits; } one, high, low;

    one.number = large;
    high.number = x * 0x1p-32 + large;
    low.number = x - (high.number - large) * 0x1p32 + large;
    const uint64_t q = ((high.bits - one.bits) << 32) +
                       (low.bits - one.bits);

    return x <= limits->most && x >= -limits->most ? (int64_t)q
                                                   : limits->mark;
}

/* Without overflow where a gap between sums holds anything at all. */
ELEMENTARY int64_t fixed_sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* back: 1 / scale. */
ELEMENTARY float fixed_back(int64_t sum, float back,
                            const struct fixed_limits *limits)
{
    return sum > limits->last ? __builtin_nanf("") : (float)sum * back;
}

#endif
