/* SPDX-License-Identifier: Apache-2.0 */
/* accumulator.h - how matrix units add products of few bits
 * (docs/numerics.md). */
#ifndef LOCKSTEP_KERNELS_ACCUMULATOR_H
#define LOCKSTEP_KERNELS_ACCUMULATOR_H

/* A matrix unit that keeps few bits (docs/numerics.md, "Accumulators of
 * hardware"), for products of bfloat16: `granule` products are aligned to the
 * largest and cut to `bits` bits, so is the accumulator that they are added to,
 * and after `promote` elements of a segment (0: at its end) that goes to
 * float32. Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.3.2. */
enum { ACCUMULATOR_BITS_MOST = 24 };
struct accumulator {
    int bits;    /* 2 to ACCUMULATOR_BITS_MOST; 0: there is none */
    int granule; /* 1 to GRANULE */
    int promote; /* 0, or a multiple of granule */
};

#endif
