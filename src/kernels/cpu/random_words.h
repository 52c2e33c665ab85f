/* SPDX-License-Identifier: Apache-2.0 */
/* random_words.h - blocks of the generator (base/random.h) side by side, one in
 * each lane. */
#ifndef LOCKSTEP_KERNELS_CPU_RANDOM_WORDS_H
#define LOCKSTEP_KERNELS_CPU_RANDOM_WORDS_H

#include "base/philox.h"
#include "kernels/cpu/cpu.h"

enum { RANDOM_LANES = 16 };

/* out[w * RANDOM_LANES + i] = word w of the block at counter
 * (low, high + i step). */
ELEMENTARY void random_words(uint32_t *out, struct random_key key,
                             struct dropout_row at, uint64_t step)
{
    uint32_t *x0 = out, *x1 = out + RANDOM_LANES;
    uint32_t *x2 = x1 + RANDOM_LANES, *x3 = x2 + RANDOM_LANES;
    uint32_t k0 = key.word[0], k1 = key.word[1];

    SIMD for (int i = 0; i < RANDOM_LANES; i++) {
        const uint64_t high = at.high + (uint64_t)i * step;

        x0[i] = (uint32_t)at.low;
        x1[i] = (uint32_t)(at.low >> 32);
        x2[i] = (uint32_t)high;
        x3[i] = (uint32_t)(high >> 32);
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        SIMD for (int i = 0; i < RANDOM_LANES; i++) {
            const uint64_t p0 = (uint64_t)PHILOX_M0 * x0[i];
            const uint64_t p1 = (uint64_t)PHILOX_M1 * x2[i];

            x0[i] = (uint32_t)(p1 >> 32) ^ x1[i] ^ k0;
            x1[i] = (uint32_t)p1;
            x2[i] = (uint32_t)(p0 >> 32) ^ x3[i] ^ k1;
            x3[i] = (uint32_t)p0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

#endif
