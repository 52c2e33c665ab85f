/* SPDX-License-Identifier: Apache-2.0 */
/* exact_sum.h - sums whose bits do not depend on who adds what in which order.
 *
 * An addend is rounded to 24 bits and added, as an integer, to the bin of its
 * exponent. Integers add exactly, so bins can be filled by any threads and
 * ranks and joined in any order; the bins become one number at the end, from
 * the smallest to the largest. The sum differs from the true one by no more
 * than 2^-24 of the sum of sizes. Source of the idea: Demmel and Nguyen 2013,
 * "Fast reproducible floating-point summation", section 4 (bins by exponent).
 */
#ifndef LOCKSTEP_STEP_EXACT_SUM_H
#define LOCKSTEP_STEP_EXACT_SUM_H

#include <stdint.h>
#include <string.h>

enum {
    EXACT_LEAST = -448, /* exponents below count as 0 ... */
    EXACT_BINS = 1024,  /* ... and those from 576 on as infinity */
    EXACT_VALUES = 2 * EXACT_BINS + 1 /* of exact_pack */
};

/* Zeroed: 0. */
struct exact_sum {
    int64_t bins[EXACT_BINS]; /* of 2^(EXACT_LEAST + i - 23) each */
    int64_t bad;              /* addends that were not finite, or too large */
};

static inline void exact_add(struct exact_sum *sum, double value)
{
    const int64_t one = (int64_t)1 << 52;
    uint64_t bits;
    int64_t bin, mantissa;

    memcpy(&bits, &value, sizeof bits);
    bin = (int64_t)(bits >> 52 & 0x7FF) - 1023 - EXACT_LEAST;
    if (bin < 0) return;
    if (bin >= EXACT_BINS) {
        sum->bad++;
        return;
    }
    mantissa = (((int64_t)(bits & 0xFFFFFFFFFFFFFu) | one) + (1 << 28)) >> 29;
    sum->bins[bin] += bits >> 63 ? -mantissa : mantissa;
}

/* to += from. */
void exact_join(struct exact_sum *to, const struct exact_sum *from);
/* NaN when an addend was bad. */
double exact_value(const struct exact_sum *sum);

/* As numbers that ranks may add up in float64 without rounding, in any order:
 * values [EXACT_VALUES]. Up to 2^20 ranks and 2^39 addends. */
void exact_pack(const struct exact_sum *sum, double *values);
void exact_unpack(struct exact_sum *sum, const double *values);

#endif
