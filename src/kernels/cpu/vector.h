/* SPDX-License-Identifier: Apache-2.0 */
/* vector.h - the widest float32 vector of the instruction set that this object
 * is compiled for, as a GNU vector type. Operations are elementwise and IEEE,
 * so the width never shows in the bits.
 *
 * A product tile is TILE_ROWS x TILE_COLUMNS accumulators: as many as leave
 * registers for one row of b and one broadcast of a. */
#ifndef LOCKSTEP_KERNELS_CPU_VECTOR_H
#define LOCKSTEP_KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16, TILE_ROWS = 14, TILE_VECTORS = 2 }; /* 28 of 32 */
#elif defined(__AVX2__)
enum { WIDTH = 8, TILE_ROWS = 6, TILE_VECTORS = 2 };   /* 12 of 16 */
#else
enum { WIDTH = 4, TILE_ROWS = 6, TILE_VECTORS = 3 };   /* 18 of 32 (ARM) */
#endif
enum { TILE_COLUMNS = TILE_VECTORS * WIDTH };

#define INLINE static inline __attribute__((always_inline))
#ifndef UNROLL /* checked builds have none: minutes less to compile */
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef float vector_anywhere
    __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE vector vector_load(const float *from)
{
    return *(const vector_anywhere *)from;
}

INLINE void vector_store(float *to, vector x)
{
    *(vector_anywhere *)to = x;
}

/* Words of any type at any address. */
typedef float vector_words
    __attribute__((vector_size(4 * WIDTH), aligned(1), may_alias));

INLINE vector vector_load_words(const void *from)
{
    return *(const vector_words *)from;
}

INLINE void vector_store_words(void *to, vector x)
{
    *(vector_words *)to = x;
}

INLINE vector vector_fill(float x)
{
    vector v;

    UNROLL for (int j = 0; j < WIDTH; j++) v[j] = x;
    return v;
}

/* a * b + c, rounded once; the compiler makes one instruction of it. */
INLINE vector vector_fma(vector a, vector b, vector c)
{
    vector v;

    UNROLL for (int j = 0; j < WIDTH; j++)
        v[j] = __builtin_fmaf(a[j], b[j], c[j]);
    return v;
}

/* a b + sum, as an instruction by name: gcc 12 takes vector_fma apart when its
 * operand comes out of a transposition. */
INLINE vector vector_fma_lanes(float a, vector b, vector sum)
{
#if defined(__AVX512F__)
    return (vector)_mm512_fmadd_ps(_mm512_set1_ps(a), (__m512)b, (__m512)sum);
#elif defined(__AVX2__)
    return (vector)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)sum);
#else
    return vector_fma(vector_fill(a), b, sum);
#endif
}

/* Elements of bfloat16, widened: of words their low and their high halves, and
 * WIDTH that are adjacent. */
typedef uint32_t vector_bits __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t vector_halves
    __attribute__((vector_size(2 * WIDTH), aligned(1), may_alias));

INLINE vector vector_even(vector words)
{
    return (vector)((vector_bits)words << 16);
}

INLINE vector vector_odd(vector words)
{
    return (vector)((vector_bits)words & 0xFFFF0000u);
}

INLINE vector vector_widen(const void *from)
{
    return (vector)(__builtin_convertvector(*(const vector_halves *)from,
                                            vector_bits) << 16);
}

/* The elements of a and b in turns: a0 b0 a1 b1 ..., first and second half. */
#if defined(__AVX512F__)
#define WEAVE_LOW(a, b) __builtin_shufflevector( \
    a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define WEAVE_HIGH(a, b) __builtin_shufflevector( \
    a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX2__)
#define WEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define WEAVE_HIGH(a, b) \
    __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define WEAVE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define WEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transposes a square of WIDTH vectors in place: log2(WIDTH) perfect
 * shuffles of the whole square are one transposition. */
INLINE void vector_transpose(vector *rows)
{
    vector next[WIDTH];

    UNROLL for (int stage = 1; stage < WIDTH; stage *= 2) {
        UNROLL for (int i = 0; i < WIDTH / 2; i++) {
            next[2 * i] = WEAVE_LOW(rows[i], rows[i + WIDTH / 2]);
            next[2 * i + 1] = WEAVE_HIGH(rows[i], rows[i + WIDTH / 2]);
        }
        UNROLL for (int i = 0; i < WIDTH; i++) rows[i] = next[i];
    }
}

#endif
