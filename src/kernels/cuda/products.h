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

#endif
