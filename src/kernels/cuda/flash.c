/* SPDX-License-Identifier: Apache-2.0 */
/* flash.c - starts the kernels of flash_forward.cu and flash_backward.cu. */
#include "kernels/cuda/flash.h"

#include "kernels/cuda/attended.h"
#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/rows.h"

bool cuda_flash_takes(const struct attention *p)
{
    const int width = p->head_width;

    return attended_is_whole(p) && p->drop.rate == 0 &&
           width % ATTENDED_WIDTH_STEP == 0 && width <= FLASH_WIDTH_MOST &&
           attended_is_heads(&p->q, width) &&
           attended_is_heads(&p->k, width) &&
           attended_is_heads(&p->v, width) &&
           attended_is_heads(&p->out, width);
}

bool cuda_flash_takes_back(const struct attention *p)
{
    const int width = p->head_width;

    return cuda_flash_takes(p) && p->leaves >= 1 &&
           p->heads / p->leaves % (p->heads / p->kv_heads) == 0 &&
           attended_is_heads(&p->dout, width) &&
           attended_is_heads(&p->dq, width) &&
           attended_is_heads(&p->dk, width) &&
           attended_is_heads(&p->dv, width);
}

/* Starts a kernel for each head of sequences, of so many heads. */
static status start(struct stream *stream, const struct attention *p,
                    int heads, enum cuda_kernel kernel)
{
    struct flash_call call = {
        .scale = (float)(p->scale * 0x1.71547652b82fep+0),
        .is_plain = p->softcap == 0 && p->alibi.heads == 0};

    TRY(cuda_attention_call(stream, p, &call.of));
    call.of.tiles = parts_of(p->queries, FLASH_ROWS);
    return cuda_launch(stream, kernel, p->sequences * heads * call.of.tiles,
                       &call, sizeof call);
}

/* The kernel of the width's class. */
#define KERNEL(kernel, width)                                              \
    ((width) <= 64   ? CUDA_##kernel##_64                                  \
     : (width) <= 96 ? CUDA_##kernel##_96 : CUDA_##kernel##_128)

status cuda_flash_forward(struct stream *stream, const struct attention *p)
{
    return start(stream, p, p->heads, KERNEL(flash_forward, p->head_width));
}

status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *deltas)
{
    struct attention with = *p;

    with.delta = tensor_2d(deltas, DTYPE_F32, p->sequences * p->queries,
                           p->heads);
    TRY(cuda_attention_delta(stream, &with));
    TRY(start(stream, &with, p->heads, KERNEL(flash_queries, p->head_width)));
    TRY(start(stream, &with, p->kv_heads, KERNEL(flash_keys, p->head_width)));
    if (p->head_width <= 64) return OK;
    return start(stream, &with, p->kv_heads,
                 p->head_width <= 96 ? CUDA_flash_values_96
                                     : CUDA_flash_values_128);
}
