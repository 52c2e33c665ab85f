/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - products that a library of the GPU makes (numerics.gpu=fast). */
#ifndef LOCKSTEP_KERNELS_CUDA_PRODUCTS_H
#define LOCKSTEP_KERNELS_CUDA_PRODUCTS_H

#include "kernels/cuda/launch.h"

typedef status exact_product(struct stream *, const struct matmul *,
                             enum granule_kind);

/* Whether the GPU of the stream has such a library for these operands. */
bool cuda_products_take(struct stream *stream, enum granule_kind kind);
/* exact: makes the product by our own kernels. */
status cuda_products_run(struct stream *stream, const struct matmul *p,
                         enum granule_kind kind, exact_product *exact);

/* The norm of x. */
status cuda_norm(struct stream *stream, struct tensor x,
                 const struct norm_after *norm);
/* y = left + (a + b), rounded once. */
status cuda_sum(struct stream *stream, struct tensor y, struct tensor left,
                struct tensor a, struct tensor b);
/* Fills the rest of a call that has x, y, left and bias, and starts it. */
status cuda_sum_norm(struct stream *stream, struct add_norm_call *call,
                     const struct norm_after *norm);

#endif
