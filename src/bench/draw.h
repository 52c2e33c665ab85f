/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - numbers of operands: the same in each run and on each machine. */
#ifndef LOCKSTEP_BENCH_DRAW_H
#define LOCKSTEP_BENCH_DRAW_H

#include <stdint.h>

/* The next of 2^24 equally likely numbers.
 * Source: Knuth, The Art of Computer Programming, volume 2, 3.3.4. */
static inline uint32_t draw_bits(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ... as one between 0 and 1. */
static inline float draw_share(uint32_t *state)
{
    return (float)draw_bits(state) * 0x1p-24f;
}

#endif
