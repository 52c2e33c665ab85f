/* SPDX-License-Identifier: Apache-2.0 */
/* flash.c - starts the kernels of flash_forward.cu and flash_backward.cu. */
#include "kernels/cuda/flash.h"

#include "kernels/cuda/attended.h"
#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/rows.h"

/* Whole sequences, halves of the gradients, or nodes that others merge. */
static bool is_window(const struct attention *p)
{
    return p->half != ATTENTION_WHOLE || p->denominator.data != NULL ||
           attended_is_whole(p);
}

/* Heads may read the same keys. */
static bool is_keys(struct tensor t, int width)
{
    if (t.stride[1] == 0) t.stride[1] = width;
    return attended_is_heads(&t, width);
}

/* In float32 where others are added or merged. */
static bool is_result(const struct tensor *t, int width)
{
    return attended_is_heads(t, width) ||
           (t->dtype == DTYPE_F32 && t->stride[2] == 1);
}

static bool takes(const struct attention *p)
{
    const int width = p->head_width;

    return is_window(p) && p->drop.rate == 0 &&
           width % ATTENDED_WIDTH_STEP == 0 && width <= ATTENDED_WIDTH_MOST &&
           attended_is_heads(&p->q, width) &&
           is_keys(p->k, width) && is_keys(p->v, width);
}

bool cuda_flash_takes(const struct attention *p)
{
    return takes(p) && p->half != ATTENTION_OF_KEYS &&
           is_result(&p->out, p->head_width);
}

/* A leaf has whole groups of heads that read one key-value head, or a group has
 * whole leaves. */
bool cuda_flash_takes_back(const struct attention *p)
{
    const int width = p->head_width, group = p->heads / p->kv_heads;

    const bool dq = p->half != ATTENTION_OF_KEYS;
    const bool dkv = p->half != ATTENTION_OF_QUERIES;

    if (!takes(p) || p->leaves < 1) return false;
    const int leaf = p->heads / p->leaves;

    return (leaf % group == 0 || group % leaf == 0) &&
           attended_is_heads(&p->dout, width) &&
           (p->delta.data != NULL || attended_is_heads(&p->out, width)) &&
           (!dq || is_result(&p->dq, width)) &&
           (!dkv || (is_result(&p->dk, width) && is_result(&p->dv, width)));
}

/* Blocks of so many rows that `count` positions from `first` on lie in. */
static int64_t tiles_of(int64_t first, int64_t count, int rows)
{
    return parts_of(first + count, rows) - first / rows;
}

/* Starts a kernel for so many tiles of `units` heads of sequences. */
static status start(struct stream *stream, const struct attention *p,
                    int64_t units, int64_t tiles, enum cuda_kernel kernel)
{
    struct flash_call call = {
        .scale = (float)(p->scale * 0x1.71547652b82fep+0),
        .is_plain = p->softcap == 0 && p->alibi.heads == 0};

    TRY(cuda_attention_call(stream, p, &call.of));
    call.of.tiles = tiles;
    return cuda_launch(stream, kernel, units * tiles, &call, sizeof call);
}

/* Elements of a value that are not zeros, where kernels have a class for it. */
static int value_of(const struct attention *p)
{
    const bool is_short = p->head_width > 128 && p->head_width <= 192 &&
                          p->value_width > 0 && p->value_width <= 128;

    return is_short ? 128 : p->head_width;
}

/* The number of the class of the call's heads. */
static int class_of(const struct attention *p)
{
    const int width = p->head_width;

    return width <= 64               ? 0
           : width <= 96             ? 1
           : width <= 128            ? 2
           : value_of(p) != width    ? 3
           : width <= 192            ? 4 : 5;
}

status cuda_flash_forward(struct stream *stream, const struct attention *p)
{
    static const enum cuda_kernel kernels[] = {
        FLASH_NAMES(CUDA_KERNEL_NUMBER, flash_forward)};
    const int parts = FLASH_PARTS(value_of(p));

    return start(stream, p, p->sequences * p->heads * parts,
                 tiles_of(p->first_query, p->queries, FLASH_ROWS),
                 kernels[class_of(p)]);
}

static status queries_backward(struct stream *stream,
                               const struct attention *p)
{
    static const enum cuda_kernel kernels[] = {
        FLASH_NAMES(CUDA_KERNEL_NUMBER, flash_queries)};

    return start(stream, p, p->sequences * p->heads,
                 tiles_of(p->first_query, p->queries,
                          FLASH_ROOM(p->head_width)),
                 kernels[class_of(p)]);
}

/* dk, dv: of the narrowest heads at once. */
static status keys_backward(struct stream *stream, const struct attention *p)
{
    static const enum cuda_kernel keys[] = {
        FLASH_NAMES(CUDA_KERNEL_NUMBER, flash_keys)};
    static const enum cuda_kernel values[] = {
        CUDA_KERNEL_COUNT,
        FLASH_WIDER_NAMES(CUDA_KERNEL_NUMBER, flash_values)};
    const int64_t units = p->sequences * p->kv_heads;
    const int64_t tiles =
        tiles_of(p->first_key, p->keys, FLASH_ROOM(p->head_width));
    const int class = class_of(p);

    TRY(start(stream, p, units, tiles, keys[class]));
    return class == 0 ? OK : start(stream, p, units, tiles, values[class]);
}

static struct tensor rows_from(struct tensor t, int64_t first, int64_t count)
{
    t.data = (char *)t.data + first * t.stride[0] * dtype_bytes(t.dtype);
    t.shape[0] = count;
    return t;
}

/* Leaves are added by the tree. Between sequences may lie other keys. */
static status shares_add(struct stream *stream, const struct attention *p,
                         struct tensor out, struct tensor in)
{
    const int64_t all = flash_key_rows(p), apart = all / p->sequences;
    const int64_t each = apart > p->keys ? p->keys : all;

    for (int64_t at = 0; at < all; at += each == all ? all : apart)
        TRY(cuda_attention_heads(stream, rows_from(out, at, each),
                                 rows_from(in, at, each), p->leaves));
    return OK;
}

/* A leaf's share of a key-value head is a head of its own, whose gradients are
 * float32. */
static status shares_backward(struct stream *stream, const struct attention *p,
                              float *room)
{
    const int64_t rows = flash_key_rows(p);
    const int64_t numbers = rows * p->leaves * p->head_width;
    struct attention with = *p;

    with.kv_heads = p->leaves;
    with.dk = tensor_3d(room, DTYPE_F32, rows, p->leaves, p->head_width);
    with.dv = tensor_3d(room + numbers, DTYPE_F32, rows, p->leaves,
                        p->head_width);
    TRY(keys_backward(stream, &with));
    TRY(shares_add(stream, p, p->dk, with.dk));
    return shares_add(stream, p, p->dv, with.dv);
}

status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *room)
{
    const int64_t rows = p->sequences * p->queries;
    struct attention with = *p;

    if (p->delta.data == NULL) {
        with.delta = tensor_2d(room, DTYPE_F32, rows, p->heads);
        TRY(cuda_attention_delta(stream, &with));
        room += rows * p->heads;
    }
    if (p->half != ATTENTION_OF_KEYS)
        TRY(queries_backward(stream, &with));
    if (p->half == ATTENTION_OF_QUERIES) return OK;
    return flash_shares(p->heads, p->kv_heads, p->leaves) == 0
               ? keys_backward(stream, &with)
               : shares_backward(stream, &with, room);
}
