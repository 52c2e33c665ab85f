/* SPDX-License-Identifier: Apache-2.0 */
/* normals.c - normal numbers from counters, many at once.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
 * (Philox4x32-10, as in base/random.c); Box and Muller 1958. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"
#include "kernels/elementary64.h"
#include "kernels/isa.h"

enum { PHILOX_ROUNDS = 10 };

static const double two_pi = 0x1.921fb54442d18p+2;

void CPU(normals)(const struct normals *normals, double *out);

/* The number that an integer below 2^32 is. */
INLINE double number_of(uint64_t word)
{
    return f64_of_bits(0x4330000000000000u | word) - 0x1p52;
}

/* [0, 1) with 53 bits. */
INLINE double uniform(uint64_t high, uint64_t low)
{
    return (number_of(high) * 0x1p21 + number_of(low >> 11)) * 0x1p-53;
}

struct words {
    uint64_t first, second, third, fourth;
};

/* base/random.c says what these are. Words of 32 bits are kept in 64, so that
 * all of this has one width of vectors. */
INLINE struct words block_draw(uint64_t counter, struct random_key key)
{
    uint64_t x0 = (uint32_t)counter, x1 = counter >> 32, x2 = 0, x3 = 0;

    UNROLL for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = 0xD2511F53u * x0, p1 = 0xCD9E8D57u * x2;
        const uint32_t k0 = key.word[0] + round * 0x9E3779B9u;
        const uint32_t k1 = key.word[1] + round * 0xBB67AE85u;

        x0 = p1 >> 32 ^ x1 ^ k0;
        x1 = p1 & UINT32_MAX;
        x2 = p0 >> 32 ^ x3 ^ k1;
        x3 = p0 & UINT32_MAX;
    }
    return (struct words){x0, x1, x2, x3};
}

void CPU(normals)(const struct normals *normals, double *out)
{
    const struct random_key key = normals->key;
    const uint64_t first = (uint64_t)normals->first;
    const double deviation = normals->deviation;

    SIMD for (int64_t i = 0; i < normals->pairs; i++) {
        const struct words word = block_draw(first + (uint64_t)i, key);
        const double u = uniform(word.first, word.second);
        const double v = uniform(word.third, word.fourth);
        const double radius = deviation * __builtin_sqrt(-2 * log_f64(1 - u));
        double sine, cosine;
        const uint64_t turns = sine_reduce_f64(two_pi * v, &sine, &cosine);
        const double c = turns & 1 ? sine : cosine;
        const double s = turns & 1 ? cosine : sine;

        out[2 * i] = radius * ((turns + 1) & 2 ? -c : c);
        out[2 * i + 1] = radius * (turns & 2 ? -s : s);
    }
}
