/* SPDX-License-Identifier: Apache-2.0 */
/* narrow_product.h - kinds of products, and names of those of 16-bit operands,
 * which narrow tables have as their matmul. docs/numerics.md defines them. */
#ifndef LOCKSTEP_KERNELS_NARROW_PRODUCT_H
#define LOCKSTEP_KERNELS_NARROW_PRODUCT_H

#include "kernels/kernels.h"

enum { PRODUCT_BLOCK = 32 }; /* elements that `tiles` sums at a time */

/* A granule: of float32, of bfloat16 in two forms, of float16, of bfloat16 by
 * an accumulator of few bits. */
enum granule_kind { GRANULE_CHAIN, GRANULE_PAIRS, GRANULE_TILES,
                    GRANULE_WIDENED, GRANULE_CUT };

#define NARROW_PRODUCTS(X) X(matmul_bf16_pairs) X(matmul_bf16_tiles) \
    X(matmul_f16)

#define NARROW_REFERENCE(product) \
    extern KERNELS_TYPE(matmul) reference_##product;
NARROW_PRODUCTS(NARROW_REFERENCE)
#undef NARROW_REFERENCE

/* The products of experts. */
#define NARROW_EXPERTS(X) X(bf16_pairs) X(bf16_tiles) X(f16)
#define EXPERTS_REFERENCE(name) \
    extern KERNELS_TYPE(experts_product) reference_experts_product_##name; \
    extern KERNELS_TYPE(experts_gradient) reference_experts_gradient_##name;
NARROW_EXPERTS(EXPERTS_REFERENCE)
#undef EXPERTS_REFERENCE

#endif
