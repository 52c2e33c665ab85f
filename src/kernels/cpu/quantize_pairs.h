/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_pairs.h - rounds bfloat16 to the numbers of a format, to nearest,
 * two elements of a word at a time: the bits are those of grid_nearest.
 *
 * Code times scale is exact in bfloat16 there, so it is cut out of float32, not
 * rounded. Scales that are powers of two are never divided by: elements are
 * rounded to multiples of quantum times scale. */
#ifndef LOCKSTEP_KERNELS_CPU_QUANTIZE_PAIRS_H
#define LOCKSTEP_KERNELS_CPU_QUANTIZE_PAIRS_H

#include "kernels/cpu/cpu.h"

/* Rows [row, row + rows) of a matrix, one span of its columns. */
struct pairs_part {
    const struct quantize *p;
    struct grid_format format, e4m3;
    int64_t row, rows, span;
    float outer;             /* of block_scale */
    bool fixed;              /* all have one scale, of the magnitude */
    uint32_t most;           /* as bits */
};

/* Whether the operand is such. */
bool CPU(pairs_can)(const struct quantize *p, const struct grid_format *f);
/* false: something was not finite, or a scale far off. What has been written
 * then is anything. */
bool CPU(pairs_round)(const struct pairs_part *part);
/* Bits of the largest magnitude of a row of bfloat16, of what is not finite,
 * too. */
uint32_t CPU(pairs_peak)(const uint16_t *row, int64_t count);

#endif
