/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the rows of struct kernels as lists, for code that treats all rows
 * alike. A backend's list names the rows that it fills itself. */
#ifndef LOCKSTEP_KERNELS_ROWS_H
#define LOCKSTEP_KERNELS_ROWS_H

#include "kernels/kernels.h"

#define KERNELS_ROWS(X)                                                   \
    X(matmul) X(add) X(scale) X(fold) X(sum_rows) X(rmsnorm_forward)      \
    X(rmsnorm_backward) X(layernorm_forward) X(layernorm_backward)        \
    X(rope) X(swiglu_forward) X(swiglu_backward) X(geglu_forward)         \
    X(geglu_backward) X(softcap_forward) X(softcap_backward)              \
    X(activation_forward) X(activation_backward) X(gather_rows)           \
    X(scatter_rows) X(dropout) X(quantize) X(integer_product)             \
    X(rotate) X(unrotate)                                                 \
    X(attention_forward) X(attention_backward) X(attention_delta)         \
    X(attention_merge) X(attention_finish) X(attention_heads)             \
    X(router_choose) X(router_losses) X(router_backward) X(jitter)        \
    X(experts_product) X(experts_gradient) X(experts_sums)                \
    X(experts_combine) X(experts_gates) X(clamped_forward)                \
    X(clamped_backward)                                                   \
    X(cross_entropy) X(sum_squares) X(adamw) X(update_elements)           \
    X(descend)

/* Rows in kernels/cpu/. */
#define KERNELS_CPU_ROWS(X)                                               \
    X(matmul) X(add) X(scale) X(fold) X(sum_rows) X(rmsnorm_forward)      \
    X(rmsnorm_backward) X(layernorm_forward) X(layernorm_backward)        \
    X(rope) X(swiglu_forward) X(swiglu_backward) X(geglu_forward)         \
    X(geglu_backward) X(softcap_forward) X(softcap_backward)              \
    X(activation_forward) X(activation_backward) X(gather_rows)           \
    X(scatter_rows) X(dropout) X(quantize) X(integer_product)             \
    X(rotate) X(unrotate)                                                 \
    X(attention_forward) X(attention_backward) X(attention_delta)         \
    X(attention_finish) X(attention_heads)                                \
    X(router_choose) X(router_losses) X(router_backward) X(jitter)        \
    X(experts_product) X(experts_gradient) X(experts_sums)                \
    X(experts_combine) X(experts_gates) X(clamped_forward)                \
    X(clamped_backward)                                                   \
    X(cross_entropy) X(sum_squares) X(adamw) X(update_elements)           \
    X(descend)

/* The function type of a row, to declare what fills it. */
#define KERNELS_TYPE(row) __typeof__(*((struct kernels *)0)->row)

#endif
