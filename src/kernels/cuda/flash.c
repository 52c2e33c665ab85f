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

static status call_of(struct stream *stream, const struct attention *p,
                      struct flash_call *out)
{
    TRY(cuda_attention_call(stream, p, &out->of));
    out->scale = (float)(p->scale * 0x1.71547652b82fep+0);
    out->is_plain = p->softcap == 0 && p->alibi.heads == 0;
    out->of.tiles = parts_of(p->queries, FLASH_ROWS);
    return OK;
}

/* Starts the kernel of the width's class for `units` heads of sequences. */
#define LAUNCH_SPAN(stream, kernel, width, units, call)                        \
    do {                                                                       \
        const int64_t blocks = (units) * (call)->of.tiles;                     \
                                                                               \
        if ((width) <= 64) LAUNCH(stream, kernel##_64, blocks, call);          \
        else if ((width) <= 96) LAUNCH(stream, kernel##_96, blocks, call);     \
        else LAUNCH(stream, kernel##_128, blocks, call);                       \
    } while (0)

status cuda_flash_forward(struct stream *stream, const struct attention *p)
{
    struct flash_call call;

    TRY(call_of(stream, p, &call));
    LAUNCH_SPAN(stream, flash_forward, p->head_width,
                p->sequences * p->heads, &call);
    return OK;
}

static status queries_backward(struct stream *stream,
                               const struct attention *p)
{
    struct flash_call call;

    TRY(call_of(stream, p, &call));
    LAUNCH_SPAN(stream, flash_queries, p->head_width,
                p->sequences * p->heads, &call);
    return OK;
}

static status keys_backward(struct stream *stream, const struct attention *p)
{
    struct flash_call call;

    TRY(call_of(stream, p, &call));
    LAUNCH_SPAN(stream, flash_keys, p->head_width,
                p->sequences * p->kv_heads, &call);
    return OK;
}

/* For wide heads; dk is made with it of others. */
static status values_backward(struct stream *stream, const struct attention *p)
{
    struct flash_call call;
    int64_t blocks;

    TRY(call_of(stream, p, &call));
    blocks = p->sequences * p->kv_heads * call.of.tiles;
    if (p->head_width <= 96) LAUNCH(stream, flash_values_96, blocks, &call);
    else LAUNCH(stream, flash_values_128, blocks, &call);
    return OK;
}

status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *deltas)
{
    struct attention with = *p;

    with.delta = tensor_2d(deltas, DTYPE_F32, p->sequences * p->queries,
                           p->heads);
    TRY(cuda_attention_delta(stream, &with));
    TRY(queries_backward(stream, &with));
    TRY(keys_backward(stream, &with));
    return p->head_width > 64 ? values_backward(stream, &with) : OK;
}
