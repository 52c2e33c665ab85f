/* SPDX-License-Identifier: Apache-2.0 */
/* integers.h - y = x W' of codes: x in int8, W in -1, 0 and 1, as quantize
 * writes them with their scales (docs/numerics.md, "Products of integers").
 *
 *   t        sum of x[i] W[j] over a leaf, exact
 *   v        t, rounded to float32, times (scale of x[i] times that of W[j])
 *   result   v of the leaves by the tree; bias and left as of matmul
 *
 * Source: Ma et al. 2024 (BitNet b1.58), arXiv:2402.17764, section 2. */
#ifndef LOCKSTEP_KERNELS_INTEGERS_H
#define LOCKSTEP_KERNELS_INTEGERS_H

#include "tensor/tensor.h"

/* Elements of a leaf, at most: sums are below 2^31. */
enum { INTEGER_LEAF_MOST = 1 << 24 };

struct sum_order;
struct integer_product {
    struct tensor c;        /* [m, n] float32 or narrow, rounded once */
    struct tensor a, b;     /* [m, k] and [n, k] U8, codes as int8, none -128,
                             * those of b -1, 0 or 1; rows of any stride */
    const float *a_scales;  /* [m, leaves] */
    const float *b_scales;  /* [n, leaves] */
    const struct sum_order *order; /* over k, one segment for each leaf */
    const struct tensor *bias; /* [n] float32 or narrow; NULL: none */
    const struct tensor *left; /* [m, n] float32 or narrow; == c allowed */
};
void integer_product_check(const struct integer_product *p);

#endif
