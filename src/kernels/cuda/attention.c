/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - starts the kernels of attention.cu and of
 * attention_backward.cu. */
#include "kernels/alibi.h"
#include "kernels/cuda/attended.h"
#include "kernels/cuda/attention_call.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/rows.h"
#include "device/gpu.h"

enum { HEADS_MOST = 1024 };

static void tensor_check(const struct tensor *t, int heads, int width)
{
    CHECK(dtype_real(t->dtype) == DTYPE_F32 && t->dimensions == 3);
    CHECK(t->shape[1] == heads && t->shape[2] == width && t->stride[2] == 1);
}

static void call_check(const struct attention *p)
{
    const int64_t end = p->first_query + p->queries;
    const int64_t key_end = p->first_key + p->keys;

    CHECK(p->head_width >= 1 && p->head_width <= HEAD_WIDTH_MAX);
    CHECK(p->heads >= 1 && p->heads <= HEADS_MOST && p->kv_heads >= 1);
    CHECK(p->heads % p->kv_heads == 0 && p->sequences >= 1);
    CHECK(p->queries >= 1 && p->keys >= 1);
    CHECK(p->first_key % ATTENTION_GRANULE == 0 ||
          p->half == ATTENTION_OF_KEYS);
    CHECK((end > key_end ? end : key_end) / ATTENTION_GRANULE <
          (1 << CUDA_ATTENTION_LEVELS) - 1);
    tensor_check(&p->q, p->heads, p->head_width);
    tensor_check(&p->k, p->kv_heads, p->head_width);
    tensor_check(&p->v, p->kv_heads, p->head_width);
    CHECK(p->lse.dtype == DTYPE_F32);
}

status cuda_attention_call(struct stream *stream, const struct attention *p,
                           struct attention_call *out)
{
    *out = (struct attention_call){
        .of = *p, .scale = (float)p->scale, .cap = (float)p->softcap,
        .inverse_cap = p->softcap > 0 ? (float)(1 / p->softcap) : 0,
        .keep = (float)(1 / (1 - p->drop.rate)),
        .least = dropout_least(p->drop.rate), .drops = p->drop.rate > 0};
    if (p->alibi.heads == 0) return OK;
    float slopes[HEADS_MOST];

    for (int head = 0; head < p->heads; head++)
        slopes[head] = alibi_slope(&p->alibi, head);
    return cuda_copy(stream, slopes, (size_t)p->heads * sizeof *slopes,
                     (const void **)&out->slopes);
}

/* Starts the kernel of the width's class: a block has 4096 / class of `count`
 * queries or keys, of each of `units` heads of sequences. */
#define LAUNCH_WIDTH(stream, kernel, width, count, units, call)                \
    do {                                                                       \
        const int span = (width) <= 64 ? 64 : (width) <= 128 ? 128 : 256;      \
        const int64_t tiles = parts_of(count, ATTENTION_TILE / span);          \
                                                                               \
        (call)->tiles = tiles;                                                 \
        if (span == 64) LAUNCH(stream, kernel##_64, (units) * tiles, call);    \
        else if (span == 128)                                                  \
            LAUNCH(stream, kernel##_128, (units) * tiles, call);               \
        else LAUNCH(stream, kernel##_256, (units) * tiles, call);              \
    } while (0)

/* Whether our own kernels on tensor cores may have calls. */
static bool has_flash(const struct stream *stream)
{
    return stream->gpu != NULL && gpu_has_flash(stream->gpu);
}

static status own_forward(struct stream *stream, const struct attention *p)
{
    struct attention_call call;

    if (has_flash(stream) && cuda_flash_takes(p))
        return cuda_flash_forward(stream, p);
    TRY(cuda_attention_call(stream, p, &call));
    LAUNCH_WIDTH(stream, attention_forward, p->head_width, p->queries,
                 p->sequences * p->heads, &call);
    return OK;
}

/* A library does not say the largest scores: they are those of our own kernel,
 * whose other results the library's take the place of. */
status cuda_attention_forward(struct stream *stream, const struct attention *p)
{
    bool done = false;

    call_check(p);
    tensor_check(&p->out, p->heads, p->head_width);
    if (p->peaks == NULL) TRY(cuda_attended_forward(stream, p, &done));
    if (done) return OK;
    TRY(own_forward(stream, p));
    return p->peaks != NULL ? cuda_attended_forward(stream, p, &done) : OK;
}

/* The plan has room for numbers of its micro-batches. */
static status flash_backward(struct stream *stream, const struct attention *p)
{
    const struct gpu_room room = gpu_attention_room(stream->gpu);
    const int shares =
        p->half == ATTENTION_OF_QUERIES
            ? 0 : flash_shares(p->heads, p->kv_heads, p->leaves);
    const size_t bytes = flash_bytes(
        flash_key_rows(p), p->delta.data != NULL ? 0 : p->heads, shares,
        p->head_width);

    CHECK(bytes <= room.bytes);
    return cuda_flash_backward(stream, p, room.data);
}

static status queries_backward(struct stream *stream,
                               const struct attention *p)
{
    struct attention_call call;

    tensor_check(&p->dq, p->heads, p->head_width);
    TRY(cuda_attention_call(stream, p, &call));
    LAUNCH_WIDTH(stream, attention_queries, p->head_width, p->queries,
                 p->sequences * p->heads, &call);
    return OK;
}

static status keys_backward(struct stream *stream, const struct attention *p)
{
    struct attention_call call;

    tensor_check(&p->dk, p->kv_heads, p->head_width);
    tensor_check(&p->dv, p->kv_heads, p->head_width);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    CHECK(p->heads % p->leaves == 0);
    TRY(cuda_attention_call(stream, p, &call));
    LAUNCH_WIDTH(stream, attention_keys, p->head_width, p->keys,
                 p->sequences * p->kv_heads, &call);
    return OK;
}

status cuda_attention_backward(struct stream *stream,
                               const struct attention *p)
{
    bool done;

    call_check(p);
    tensor_check(&p->dout, p->heads, p->head_width);
    if (!p->delta.data) tensor_check(&p->out, p->heads, p->head_width);
    TRY(cuda_attended_backward(stream, p, &done));
    if (done) return OK;
    if (has_flash(stream) && cuda_flash_takes_back(p))
        return flash_backward(stream, p);
    if (p->half != ATTENTION_OF_KEYS) TRY(queries_backward(stream, p));
    if (p->half != ATTENTION_OF_QUERIES) TRY(keys_backward(stream, p));
    return OK;
}

status cuda_attention_delta(struct stream *stream, const struct attention *p)
{
    const struct attention_delta_call call = {*p};
    const int64_t rows = p->sequences * p->queries * p->heads;

    CHECK(dtype_real(p->out.dtype) == DTYPE_F32);
    CHECK(p->dout.dtype == p->out.dtype && p->delta.dtype == DTYPE_F32);
    LAUNCH(stream, attention_delta, blocks_of(rows * LANES),
           &call);
    return OK;
}

status cuda_attention_merge(struct stream *stream,
                            const struct attention_node *left,
                            const struct attention_node *right)
{
    const int64_t *shape = left->values.shape;
    const struct attention_merge_call call = {*left, *right, shape[0],
                                              shape[1], shape[2]};

    LAUNCH(stream, attention_merge,
           blocks_of(call.rows * call.heads), &call);
    return OK;
}

status cuda_attention_finish(struct stream *stream, struct tensor out,
                             struct tensor lse,
                             const struct attention_node *root)
{
    const struct attention_finish_call call = {
        out, lse, *root, out.shape[0], out.shape[1], out.shape[2]};

    CHECK(dtype_real(out.dtype) == DTYPE_F32 && lse.dtype == DTYPE_F32);
    CHECK(root->values.dtype == DTYPE_F32);
    LAUNCH(stream, attention_finish,
           blocks_of(call.rows * call.heads * call.width), &call);
    return OK;
}

status cuda_attention_heads(struct stream *stream, struct tensor out,
                            struct tensor in, int leaves)
{
    const struct attention_heads_call call = {out, in, leaves};

    CHECK(in.shape[1] % out.shape[1] == 0 && in.shape[1] % leaves == 0);
    CHECK(dtype_real(out.dtype) == DTYPE_F32);
    CHECK(dtype_real(in.dtype) == DTYPE_F32);
    CHECK(leaves >= 1 && leaves <= LEAVES_MAX);
    LAUNCH(stream, attention_heads,
           blocks_of(out.shape[0] * out.shape[1] * out.shape[2]), &call);
    return OK;
}
