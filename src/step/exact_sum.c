/* SPDX-License-Identifier: Apache-2.0 */
/* exact_sum.c - sums whose bits do not depend on who adds what in which
 * order. */
#include "step/exact_sum.h"

#include <math.h>

/* A bin in two halves: 26 bits below, the rest above. */
static const int64_t HALF = (int64_t)1 << 26;

void exact_join(struct exact_sum *to, const struct exact_sum *from)
{
    for (int i = 0; i < EXACT_BINS; i++) to->bins[i] += from->bins[i];
    to->bad += from->bad;
}

/* 2^exponent, made of its bits: of normal numbers. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

double exact_value(const struct exact_sum *sum)
{
    double total = 0;

    if (sum->bad > 0) return (double)NAN;
    for (int i = 0; i < EXACT_BINS; i++)
        if (sum->bins[i] != 0)
            total += (double)sum->bins[i] *
                     power_of_two(EXACT_LEAST + i - 23);
    return total;
}

void exact_pack(const struct exact_sum *sum, double *values)
{
    for (int i = 0; i < EXACT_BINS; i++) {
        int64_t low = sum->bins[i] % HALF;

        if (low < 0) low += HALF;
        values[2 * i] = (double)low;
        values[2 * i + 1] = (double)((sum->bins[i] - low) / HALF);
    }
    values[2 * EXACT_BINS] = (double)sum->bad;
}

void exact_unpack(struct exact_sum *sum, const double *values)
{
    for (int i = 0; i < EXACT_BINS; i++)
        sum->bins[i] = (int64_t)values[2 * i] +
                       (int64_t)values[2 * i + 1] * HALF;
    sum->bad = (int64_t)values[2 * EXACT_BINS];
}
