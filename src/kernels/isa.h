/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h - numbers that an instruction set of the host makes beside the rows of
 * struct kernels: its own speed, normal numbers, exponentials. */
#ifndef LOCKSTEP_KERNELS_ISA_H
#define LOCKSTEP_KERNELS_ISA_H

#include "kernels/kernels.h"

/* The most float32 operations (an FMA is two) a second that the threads of the
 * stream do together, measured for about `seconds`. */
double kernels_peak_flops(struct stream *stream, enum isa isa, double seconds);
/* Like kernels_peak_flops, for products of the table's type: by FMAs or by
 * instructions for pairs or tiles of bfloat16, whichever is faster. */
double kernels_peak_product(struct stream *stream, const struct kernels *table,
                            enum isa isa, double seconds);
/* Normal numbers with mean 0: pair i, elements 2i and 2i + 1, is made of block
 * i of the key (base/random.h). Words 0 and 1 are a uniform u, words 2 and 3 v:
 * deviation * sqrt(-2 log(1 - u)) times cos(2 pi v) and sin(2 pi v), in float64
 * by kernels/math.h. The same bits for every instruction set. */
struct normals {
    struct random_key key;
    int64_t first, pairs;
    double deviation;
};
/* out [2 pairs] = pairs [first, first + pairs). */
void kernels_normals(enum isa isa, const struct normals *normals, double *out);
/* out [count] = e^((x - top) / divisor) in float64, by math_exp; 0 where the
 * exponent is below `least`. The same bits for every instruction set. */
struct exponentials {
    const float *x; /* [count] */
    int64_t count;
    double top, divisor, least;
};
void kernels_exponentials(enum isa isa, const struct exponentials *of,
                          double *out);

#endif
