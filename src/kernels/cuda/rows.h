/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the rows of struct kernels that kernels of CUDA fill: all of
 * float32, and those that take narrow operands, too. */
#ifndef LOCKSTEP_KERNELS_CUDA_ROWS_H
#define LOCKSTEP_KERNELS_CUDA_ROWS_H

#include "kernels/kernels.h"

#define KERNELS_CUDA_NARROW_ROWS(X)                                       \
    X(add) X(scale) X(swiglu_forward) X(swiglu_backward)                  \
    X(geglu_forward) X(geglu_backward) X(softcap_forward)                 \
    X(softcap_backward) X(activation_forward) X(activation_backward)      \
    X(clamped_forward) X(clamped_backward) X(adamw) X(descend)            \
    X(update_elements) X(block_encode) X(block_decode) X(quantize)        \
    X(rotate) X(unrotate) X(integer_product) X(sum_rows)                  \
    X(rmsnorm_forward) X(rmsnorm_backward) X(layernorm_forward)           \
    X(layernorm_backward) X(rope) X(fold) X(sum_squares) X(gather_rows)   \
    X(scatter_rows) X(dropout) X(cross_entropy) X(attention_merge)        \
    X(attention_finish) X(attention_heads) X(attention_delta)             \
    X(experts_sums) X(experts_combine) X(experts_gates) X(router_choose)  \
    X(router_losses) X(router_backward) X(jitter)
#define KERNELS_CUDA_ROWS(X)                                              \
    KERNELS_CUDA_NARROW_ROWS(X) X(matmul) X(attention_forward)            \
    X(attention_backward) X(experts_product) X(experts_gradient)

#define DECLARE_CUDA_ROW(row) extern KERNELS_TYPE(row) cuda_##row;
KERNELS_CUDA_ROWS(DECLARE_CUDA_ROW)
/* The loss's gradient is of these types. */
extern KERNELS_TYPE(cross_entropy) cuda_cross_entropy_bf16;
extern KERNELS_TYPE(cross_entropy) cuda_cross_entropy_f16;
#undef DECLARE_CUDA_ROW

#endif
