/* SPDX-License-Identifier: Apache-2.0 */
/* accumulator.c - a granule of products as a matrix unit of few bits adds it.
 *
 * All columns take the same steps, in loops that become vectors. */
#include "kernels/reference/accumulator.h"

#include <float.h>
#include <string.h>
#include "kernels/reference/real.h"

#if REAL_BITS == 32

enum { COLUMNS = ACCUMULATOR_COLUMNS, MANTISSA = 52 };

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

/* The largest magnitude of a column's products; plain: their float64 sum. */
REAL_CLONES static void products_survey(const struct widened *w, int64_t count,
                                        double *largest, double *plain)
{
    for (int64_t k = 0; k < count; k++) {
        const double a = (double)w->a[k];

        _Pragma("omp simd")
        for (int j = 0; j < COLUMNS; j++) {
            const double p = a * (double)w->b[k][j];
            const double size = __builtin_fabs(p);

            plain[j] = plain[j] + p;
            largest[j] = size > largest[j] ? size : largest[j];
        }
    }
}

/* sums[j] = sum of the integers of p times inverse[j], each below 2^bits. */
REAL_CLONES static void products_add(const struct widened *w, int64_t count,
                                     const double *inverse, double *sums)
{
    for (int64_t k = 0; k < count; k++) {
        const double a = (double)w->a[k];

        _Pragma("omp simd")
        for (int j = 0; j < COLUMNS; j++)
            sums[j] = sums[j] +
                      (double)(int32_t)(a * (double)w->b[k][j] * inverse[j]);
    }
}

/* The same of a column that may have what is not finite, which has no such
 * integer. */
static void products_add_some(const struct widened *w, int64_t count,
                              const double *plain, const double *inverse,
                              double *sums)
{
    for (int j = 0; j < COLUMNS; j++) {
        if (!(__builtin_fabs(plain[j]) <= DBL_MAX)) continue;
        for (int64_t k = 0; k < count; k++)
            sums[j] = sums[j] +
                      (double)(int32_t)((double)w->a[k] *
                                        (double)w->b[k][j] * inverse[j]);
    }
}

void reference_accumulate(int bits, const struct widened *w, int64_t count,
                          double *c)
{
    const uint64_t exponent = UINT64_C(0x7FF) << MANTISSA;
    const double low = of_bits((uint64_t)(1023 + 1 - bits) << MANTISSA);
    double largest[COLUMNS] = {0}, plain[COLUMNS] = {0};
    double inverse[COLUMNS], sums[COLUMNS] = {0}, unit[COLUMNS];
    bool finite = true;

    products_survey(w, count, largest, plain);
    for (int j = 0; j < COLUMNS; j++) {
        /* Any unit is right where all products are 0. */
        const double size = largest[j] > 0 && largest[j] <= DBL_MAX
                                ? largest[j] : 1;

        unit[j] = of_bits(bits_of(size) & exponent) * low;
        inverse[j] = 1 / unit[j];
        finite = finite && __builtin_fabs(plain[j]) <= DBL_MAX;
    }
    if (finite) products_add(w, count, inverse, sums);
    else products_add_some(w, count, plain, inverse, sums);
    for (int j = 0; j < COLUMNS; j++) {
        const bool sum = __builtin_fabs(plain[j]) <= DBL_MAX;
        const double t = sum ? cut(sums[j] * unit[j], bits) : plain[j];

        c[j] = cut(c[j] + t, bits);
    }
}

#endif
