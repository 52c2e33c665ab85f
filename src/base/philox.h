/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - the rounds of the generator of base/random.h, for code that makes
 * blocks beside other work.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
 * section 3.3, Philox4x32-10; multipliers and key increments: table 2. */
#ifndef LOCKSTEP_BASE_PHILOX_H
#define LOCKSTEP_BASE_PHILOX_H

#include "base/random.h"

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u
enum { PHILOX_ROUNDS = 10 };

/* As random_block. */
static inline void philox_block(struct random_key key, uint64_t low,
                                uint64_t high, uint32_t out[4])
{
    uint32_t x0 = (uint32_t)low, x1 = (uint32_t)(low >> 32);
    uint32_t x2 = (uint32_t)high, x3 = (uint32_t)(high >> 32);
    uint32_t k0 = key.word[0], k1 = key.word[1];

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)PHILOX_M0 * x0;
        const uint64_t p1 = (uint64_t)PHILOX_M1 * x2;

        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

#endif
