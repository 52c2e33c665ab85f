/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - counter-based random numbers.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
 * section 3.3, Philox4x32-10. */
#include "base/philox.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/status.h"

enum { FEISTEL_ROUNDS = 8 };

__extension__ typedef unsigned __int128 wide;

/* FNV-1a, 64 bits. */
#define FNV_OFFSET 0xCBF29CE484222325u
#define FNV_PRIME 0x100000001B3u

/* Every bit of the result depends on every bit of x. Source: Steele et al.
 * 2014, "Fast splittable pseudorandom number generators", the finaliser. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

struct random_key random_key_make(uint64_t seed, const char *name)
{
    uint64_t hash = FNV_OFFSET;

    for (int i = 0; i < 8; i++)
        hash = (hash ^ (seed >> 8 * i & 0xFF)) * FNV_PRIME;
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * FNV_PRIME;
    hash = mix(hash);
    return (struct random_key){{(uint32_t)hash, (uint32_t)(hash >> 32)}};
}

void random_block(struct random_key key, uint64_t low, uint64_t high,
                  uint32_t out[4])
{
    philox_block(key, low, high, out);
}

static uint64_t word64(struct random_key key, uint64_t low, uint64_t high)
{
    uint32_t block[4];

    random_block(key, low, high, block);
    return (uint64_t)block[1] << 32 | block[0];
}

double random_uniform(struct random_key key, uint64_t index)
{
    return (double)(word64(key, index, 0) >> 11) * 0x1p-53;
}

/* The second word of blocks at low counters, one after the other. */
static void tops_plain(struct random_key key, uint64_t first, uint32_t *out)
{
    for (uint64_t i = 0; i < RANDOM_MANY; i++)
        out[i] = (uint32_t)(word64(key, first + i, 0) >> 32);
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))

/* Words of four blocks in the lower halves of lanes; what the upper ones hold
 * is nobody's: products are of lower halves. */
struct four_blocks { __m256i x0, x1, x2, x3; };

WIDE static inline void round_of_four(struct four_blocks *b, __m256i k0,
                                      __m256i k1)
{
    const __m256i p0 = _mm256_mul_epu32(b->x0, _mm256_set1_epi64x(PHILOX_M0));
    const __m256i p1 = _mm256_mul_epu32(b->x2, _mm256_set1_epi64x(PHILOX_M1));

    b->x0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32),
                                              b->x1), k0);
    b->x1 = p1;
    b->x2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32),
                                              b->x3), k1);
    b->x3 = p0;
}

WIDE static inline struct four_blocks begin_four(uint64_t first)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_add_epi64(_mm256_set1_epi64x((long long)first),
                                         _mm256_setr_epi64x(0, 1, 2, 3));

    return (struct four_blocks){low, _mm256_srli_epi64(low, 32), zero, zero};
}

WIDE static inline void store_four(const struct four_blocks *b, uint32_t *out)
{
    const __m256i lower = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);

    _mm_storeu_si128((__m128i *)(void *)out,
                     _mm256_castsi256_si128(
                         _mm256_permutevar8x32_epi32(b->x1, lower)));
}

/* Three chains that do not wait for each other keep the multipliers busy, and
 * fit into the registers. */
WIDE static void tops_wide(struct random_key key, uint64_t first,
                           uint32_t *out)
{
    for (int at = 0; at < RANDOM_MANY; at += 12) {
        struct four_blocks a = begin_four(first + (uint64_t)at);
        struct four_blocks b = begin_four(first + (uint64_t)at + 4);
        struct four_blocks c = begin_four(first + (uint64_t)at + 8);
        uint32_t k0 = key.word[0], k1 = key.word[1];

        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            const __m256i wide0 = _mm256_set1_epi64x(k0);
            const __m256i wide1 = _mm256_set1_epi64x(k1);

            round_of_four(&a, wide0, wide1);
            round_of_four(&b, wide0, wide1);
            round_of_four(&c, wide0, wide1);
            k0 += PHILOX_W0;
            k1 += PHILOX_W1;
        }
        store_four(&a, out + at);
        store_four(&b, out + at + 4);
        store_four(&c, out + at + 8);
    }
}
#endif

void random_uniform_tops(struct random_key key, uint64_t first,
                         uint32_t out[RANDOM_MANY])
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        tops_wide(key, first, out);
        return;
    }
#endif
    tops_plain(key, first, out);
}

/* Source: Lemire 2019, arXiv:1805.10941, without the rejection: the bias is
 * below bound / 2^64. */
uint64_t random_below(struct random_key key, uint64_t index, uint64_t bound)
{
    CHECK(bound > 0);
    return (uint64_t)((wide)word64(key, index, 0) * bound >> 64);
}

/* Bits that hold every number below count. */
static int bits_of(uint64_t count)
{
    int bits = 0;

    while (bits < 64 && (count - 1) >> bits != 0) bits++;
    return bits;
}

/* A balanced Feistel network on the smallest even number of bits that holds
 * `count`; images outside walk on until they fall inside, fewer than four
 * times on average. Source: Black and Rogaway 2002, "Ciphers with arbitrary
 * finite domains", method 2. */
uint64_t random_permute(struct random_key key, uint64_t count, uint64_t index)
{
    const int bits = count > 1 ? bits_of(count) : 2;
    const int half = (bits + 1) / 2;
    const uint64_t mask = (1ull << half) - 1;

    CHECK(index < count);
    do {
        uint64_t left = index >> half, right = index & mask;

        for (int round = 0; round < FEISTEL_ROUNDS; round++) {
            const uint64_t next =
                left ^ (word64(key, right, 1 + (uint64_t)round) & mask);

            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}
