/* SPDX-License-Identifier: Apache-2.0 */
/* accumulator.c - a granule of products as a matrix unit of few bits adds it.
 *
 * All columns take the same steps, in loops that become vectors. Products of
 * bfloat16 are exact in float64, and in float32 too where they are not near its
 * ends. */
#include "kernels/reference/accumulator.h"

#include <float.h>
#include <string.h>
#include "kernels/reference/real.h"

#if REAL_BITS == 32

enum { COLUMNS = ACCUMULATOR_COLUMNS, MANTISSA = 52 };

/* As REAL_CLONES, with vectors of integers. */
#if defined(__x86_64__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES \
    __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define CLONES
#endif

static inline uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double of_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To so many significant bits, towards zero. No operand here is a denormal of
 * float64. The highest bit of a NaN stays. */
static inline double cut(double x, int bits)
{
    return of_bits(bits_of(x) & ~((UINT64_C(1) << (MANTISSA + 1 - bits)) - 1));
}

/* ---- any numbers, one column after the other ---- */

static double column_sum(const struct widened *w, int64_t count, int j,
                         int bits)
{
    double largest = 0, plain = 0, sum = 0;

    for (int64_t k = 0; k < count; k++) {
        const double p = (double)w->a[k] * (double)w->b[k][j];
        const double size = __builtin_fabs(p);

        plain = plain + p;
        largest = size > largest ? size : largest;
    }
    if (!(__builtin_fabs(plain) <= DBL_MAX)) return plain;
    if (!(largest > 0)) return 0;
    const double unit = of_bits(bits_of(largest) & UINT64_C(0x7FF)
                                                       << MANTISSA) *
                        of_bits((uint64_t)(1023 + 1 - bits) << MANTISSA);

    for (int64_t k = 0; k < count; k++)
        sum = sum + (double)(int32_t)((double)w->a[k] * (double)w->b[k][j] /
                                      unit);
    return cut(sum * unit, bits);
}

/* ---- numbers that are not near the ends of float32 ---- */

/* Products, and the largest magnitude of each column as bits: what is not
 * finite is larger than all. */
CLONES static void products_make(const struct widened *w, int64_t count,
                                 float (*p)[COLUMNS], int32_t *most)
{
    memset(most, 0, COLUMNS * sizeof *most);
    for (int64_t k = 0; k < count; k++) {
        const float a = w->a[k];

        _Pragma("omp simd")
        for (int j = 0; j < COLUMNS; j++) {
            const float x = a * w->b[k][j];
            const int32_t size = (int32_t)(bits_of_f32(x) & 0x7FFFFFFFu);

            p[k][j] = x;
            most[j] = size > most[j] ? size : most[j];
        }
    }
}

/* sums[j] = sum of the integers of p times inverse[j]. */
CLONES static void products_add(float (*p)[COLUMNS], int64_t count,
                                const float *inverse, int32_t *sums)
{
    memset(sums, 0, COLUMNS * sizeof *sums);
    for (int64_t k = 0; k < count; k++)
        _Pragma("omp simd")
        for (int j = 0; j < COLUMNS; j++)
            sums[j] += (int32_t)(p[k][j] * inverse[j]);
}

enum {
    UNIT_LEAST = 127 - 110, /* exponents: what is lost below it in float32 is */
    PRODUCT_MOST = 253      /* less than the unit */
};

/* Whether all products are finite, and their integers and sums fit 32 bits. */
static bool are_ordinary(int64_t count, const int32_t *most, int bits)
{
    int32_t all = 0;

    for (int j = 0; j < COLUMNS; j++) all = most[j] > all ? most[j] : all;
    return all >> 23 <= PRODUCT_MOST &&
           (double)count * (double)(1 << bits) <= 0x1p30;
}

/* Columns of tiny numbers, or of zeros, are made in float64. */
static void tiny_fix(const struct widened *w, int64_t count, int bits,
                     const bool *tiny, double *t)
{
    for (int j = 0; j < COLUMNS; j++)
        if (tiny[j]) t[j] = column_sum(w, count, j, bits);
}

void reference_accumulate(int bits, const struct widened *w, int64_t count,
                          double *c)
{
    float p[GRANULE][COLUMNS], inverse[COLUMNS];
    int32_t most[COLUMNS], sums[COLUMNS];
    double t[COLUMNS];
    bool tiny[COLUMNS], any = false;

    products_make(w, count, p, most);
    if (!are_ordinary(count, most, bits)) {
        for (int j = 0; j < COLUMNS; j++)
            c[j] = cut(c[j] + column_sum(w, count, j, bits), bits);
        return;
    }
    for (int j = 0; j < COLUMNS; j++) {
        const int32_t exponent = most[j] >> 23;

        tiny[j] = exponent - bits + 1 < UNIT_LEAST;
        any = any || tiny[j];
        inverse[j] = tiny[j] ? 0
                             : f32_of_bits((uint32_t)(2 * 127 + bits - 1 -
                                                      exponent) << 23);
    }
    products_add(p, count, inverse, sums);
    _Pragma("omp simd")
    for (int j = 0; j < COLUMNS; j++) {
        const double unit = of_bits(
            (uint64_t)((most[j] >> 23) - 127 - bits + 1 + 1023) << MANTISSA);

        t[j] = cut((double)sums[j] * unit, bits);
    }
    if (any) tiny_fix(w, count, bits, tiny, t);
    for (int j = 0; j < COLUMNS; j++) c[j] = cut(c[j] + t[j], bits);
}

#endif
