/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the rows of struct kernels that kernels of CUDA fill: all of
 * float32, and those that take narrow operands, too. */
#ifndef LOCKSTEP_KERNELS_CUDA_ROWS_H
#define LOCKSTEP_KERNELS_CUDA_ROWS_H

#include "kernels/narrow_product.h"

#define KERNELS_CUDA_NARROW_ROWS(X)                                       \
    X(add) X(scale) X(swiglu_forward) X(swiglu_backward)                  \
    X(geglu_forward) X(geglu_backward) X(softcap_forward)                 \
    X(softcap_backward) X(activation_forward) X(activation_backward)      \
    X(clamped_forward) X(clamped_backward) X(adamw) X(descend)            \
    X(update_elements) X(block_encode) X(block_decode) X(quantize)        \
    X(rotate) X(unrotate) X(integer_product) X(sum_rows)                  \
    X(rmsnorm_forward) X(rmsnorm_backward) X(layernorm_forward)           \
    X(layernorm_backward) X(rope) X(fold) X(sum_squares) X(normalize)     \
    X(gather_rows)                                                        \
    X(scatter_rows) X(dropout) X(cross_entropy) X(attention_merge)        \
    X(attention_finish) X(attention_heads) X(attention_delta)             \
    X(experts_sums) X(experts_combine) X(experts_gates) X(router_choose)  \
    X(router_losses) X(router_backward) X(jitter) X(matmul)               \
    X(experts_product) X(experts_gradient) X(attention_forward)           \
    X(attention_backward) X(fixed_add) X(fixed_read) X(add_norm)          \
    X(masters_join) X(masters_split) X(factored) X(turned)
#define KERNELS_CUDA_ROWS(X) KERNELS_CUDA_NARROW_ROWS(X)

#define DECLARE_CUDA_ROW(row) extern KERNELS_TYPE(row) cuda_##row;
KERNELS_CUDA_ROWS(DECLARE_CUDA_ROW)
/* Rows of narrow tables that take the place of one of float32. */
extern KERNELS_TYPE(cross_entropy) cuda_cross_entropy_bf16;
extern KERNELS_TYPE(cross_entropy) cuda_cross_entropy_f16;
#undef DECLARE_CUDA_ROW
#define DECLARE_CUDA_PRODUCT(name) extern KERNELS_TYPE(matmul) cuda_##name;
NARROW_PRODUCTS(DECLARE_CUDA_PRODUCT)
#undef DECLARE_CUDA_PRODUCT
#define DECLARE_CUDA_EXPERTS(name)                                         \
    extern KERNELS_TYPE(experts_product) cuda_experts_product_##name;      \
    extern KERNELS_TYPE(experts_gradient) cuda_experts_gradient_##name;
NARROW_EXPERTS(DECLARE_CUDA_EXPERTS)
#undef DECLARE_CUDA_EXPERTS

#endif
