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
           width % ATTENDED_WIDTH_STEP == 0 && width <= ATTENDED_WIDTH_MOST &&
           attended_is_heads(&p->q, width) &&
           attended_is_heads(&p->k, width) &&
           attended_is_heads(&p->v, width) &&
           attended_is_heads(&p->out, width);
}

/* In float32 where other ranks' leaves are added. */
static bool is_gradient(const struct tensor *t, int width)
{
    return attended_is_heads(t, width) ||
           (t->dtype == DTYPE_F32 && t->stride[2] == 1);
}

/* A leaf has whole groups of heads that read one key-value head, or a group has
 * whole leaves. */
bool cuda_flash_takes_back(const struct attention *p)
{
    const int width = p->head_width, group = p->heads / p->kv_heads;

    if (!cuda_flash_takes(p) || p->leaves < 1) return false;
    const int leaf = p->heads / p->leaves;

    return (leaf % group == 0 || group % leaf == 0) &&
           attended_is_heads(&p->dout, width) &&
           attended_is_heads(&p->dq, width) && is_gradient(&p->dk, width) &&
           is_gradient(&p->dv, width);
}

/* Starts a kernel for `units` heads of sequences, whose blocks have so many
 * rows. */
static status start(struct stream *stream, const struct attention *p,
                    int64_t units, int rows, enum cuda_kernel kernel)
{
    struct flash_call call = {
        .scale = (float)(p->scale * 0x1.71547652b82fep+0),
        .is_plain = p->softcap == 0 && p->alibi.heads == 0};

    TRY(cuda_attention_call(stream, p, &call.of));
    call.of.tiles = parts_of(p->queries, rows);
    return cuda_launch(stream, kernel, units * call.of.tiles, &call,
                       sizeof call);
}

/* The kernel of the width's class. */
#define KERNEL(kernel, width)                                              \
    ((width) <= 64   ? CUDA_##kernel##_64                                  \
     : (width) <= 96  ? CUDA_##kernel##_96                                 \
     : (width) <= 128 ? CUDA_##kernel##_128                                \
     : (width) <= 192 ? CUDA_##kernel##_192 : CUDA_##kernel##_256)

status cuda_flash_forward(struct stream *stream, const struct attention *p)
{
    const int width = p->head_width;

    return start(stream, p, p->sequences * p->heads * FLASH_PARTS(width),
                 FLASH_ROWS, KERNEL(flash_forward, width));
}

/* dk, dv. */
static status keys_backward(struct stream *stream, const struct attention *p)
{
    const int64_t units = p->sequences * p->kv_heads;
    const int width = p->head_width, rows = FLASH_ROOM(width);

    TRY(start(stream, p, units, rows, KERNEL(flash_keys, width)));
    if (width <= 64) return OK;
    return start(stream, p, units, rows,
                 width <= 96    ? CUDA_flash_values_96
                 : width <= 128 ? CUDA_flash_values_128
                 : width <= 192 ? CUDA_flash_values_192
                                : CUDA_flash_values_256);
}

/* A leaf's share of a key-value head is a head of its own, whose gradients are
 * float32; then leaves are added by the tree. */
static status shares_backward(struct stream *stream, const struct attention *p,
                              float *room)
{
    const int64_t rows = p->sequences * p->queries;
    const int64_t numbers = rows * p->leaves * p->head_width;
    struct attention with = *p;

    with.kv_heads = p->leaves;
    with.dk = tensor_3d(room, DTYPE_F32, rows, p->leaves, p->head_width);
    with.dv = tensor_3d(room + numbers, DTYPE_F32, rows, p->leaves,
                        p->head_width);
    TRY(keys_backward(stream, &with));
    TRY(cuda_attention_heads(stream, p->dk, with.dk, p->leaves));
    return cuda_attention_heads(stream, p->dv, with.dv, p->leaves);
}

status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *room)
{
    const int64_t rows = p->sequences * p->queries;
    struct attention with = *p;

    with.delta = tensor_2d(room, DTYPE_F32, rows, p->heads);
    TRY(cuda_attention_delta(stream, &with));
    TRY(start(stream, &with, p->sequences * p->heads,
              FLASH_ROOM(p->head_width),
              KERNEL(flash_queries, p->head_width)));
    return flash_shares(p->heads, p->kv_heads, p->leaves) == 0
               ? keys_backward(stream, &with)
               : shares_backward(stream, &with, room + rows * p->heads);
}
