/* SPDX-License-Identifier: Apache-2.0 */
/* code8.h - states of an optimizer in 8 bits.
 *
 * A block of numbers has one float32 scale, its largest magnitude; a number is
 * a code for its part of that, between 0 and 1. Code numbers i of `bits` bits
 * (7 and a sign, or 8 for what is never negative) have one decade for each
 * place of their first one: decade d, 0 <= d < bits, from 10^(d - bits) to
 * 10^(d - bits + 1), is cut into 2^d equal bins; code 2^d + j stands for the
 * middle of bin j, 0 for 0, and the last code for 1. So small numbers keep
 * their order of magnitude, and large ones more than two digits.
 * Source: Dettmers et al. 2021, arXiv:2110.02861, section 2 (dynamic tree
 * quantization, blocks); here the ends are exactly 1 for both signs, so what
 * was decoded encodes to the same codes and the same scale. */
#ifndef LOCKSTEP_KERNELS_CODE8_H
#define LOCKSTEP_KERNELS_CODE8_H

#include <stdbool.h>
#include "kernels/elementary.h"

enum { CODE8_COUNT = 256, CODE8_SIGNED_BITS = 7, CODE8_BITS_MAX = 8 };

/* Blocks whose largest magnitude is less are zero: no decoded number is then a
 * denormal. */
#define CODE8_LEAST 0x1p-100f

/* 10^(d - bits), where decade d begins. */
ELEMENTARY double code8_begin(int bits, int d)
{
    static const double powers[] = {1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6,
                                    1e-7, 1e-8};

    return powers[bits - d];
}

/* The values of the codes, before they are multiplied by the scale. */
ELEMENTARY void code8_table(int bits, float out[CODE8_COUNT])
{
    const int codes = 1 << bits;

    out[0] = 0;
    for (int d = 0; d < bits; d++)
        for (int j = 0; j < 1 << d; j++)
            out[(1 << d) + j] =
                (float)(code8_begin(bits, d) *
                        (1 + 9 * ((double)j + 0.5) / (double)(1 << d)));
    out[codes - 1] = 1;
    for (int i = codes; i < CODE8_COUNT; i++) out[i] = -out[i - codes];
}

/* Bins of a number: 1 / width, and where they are counted from. */
struct code8_bins {
    float begin[CODE8_BITS_MAX], slope[CODE8_BITS_MAX];
    float from[CODE8_BITS_MAX];
    float least; /* smaller ones are 0 */
    int bits;
};

/* positive: 8 bits. Their smallest code stands for whatever is above zero: a
 * second moment that became zero would make a step of any size. */
ELEMENTARY void code8_bins(int bits, struct code8_bins *out)
{
    out->bits = bits;
    out->least = bits > CODE8_SIGNED_BITS
                     ? 0
                     : (float)(code8_begin(bits, 0) * 5.5 / 2);
    for (int d = 0; d < bits; d++) {
        const double bins = (double)(1 << d);

        out->begin[d] = (float)code8_begin(bits, d);
        out->slope[d] = (float)(bins / (9 * code8_begin(bits, d)));
        out->from[d] = (float)(bins - bins / 9);
    }
}

/* 1 / the scale of a block with this largest magnitude; 0: it is zero. */
ELEMENTARY float code8_inverse(float largest)
{
    return largest >= CODE8_LEAST ? 1 / largest : 0;
}

/* The code of x in a block. bits a constant, so that loops become vectors. A
 * number at the edge of two bins may come to the one or the other, but the same
 * on every machine. */
ELEMENTARY uint32_t code8_of(const struct code8_bins *bins, int bits, float x,
                             float inverse)
{
    const float y = (x < 0 ? -x : x) * inverse;
    const float last = (float)((1 << bits) - 1);
    float slope = bins->slope[0], from = bins->from[0], t;
    uint32_t code;

    for (int d = 1; d < bits; d++) {
        const bool above = y >= bins->begin[d];

        slope = above ? bins->slope[d] : slope;
        from = above ? bins->from[d] : from;
    }
    t = __builtin_fmaf(y, slope, from);
    t = t < last ? t : last;
    t = t < 1 ? 1 : t;
    code = y > bins->least ? (uint32_t)(int32_t)t : 0;
    return bits == CODE8_SIGNED_BITS && x < 0 && code > 0 ? code | 0x80u
                                                          : code;
}

#endif
