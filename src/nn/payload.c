/* SPDX-License-Identifier: Apache-2.0 */
/* payload.c - rows that go round a ring of ranks. */
#include "nn/payload.h"


#include "comm/progress.h"

int64_t share_tokens(const struct share *s)
{
    return s->sequences * 2 * s->span;
}

struct tensor rows_take(struct room *room, const struct share *s,
                        enum dtype dtype, int64_t heads, int64_t width)
{
    const int64_t rows = share_tokens(s);

    return tensor_3d(room_take(room, rows * heads * width *
                                         dtype_bytes(dtype)),
                     dtype, rows, heads, width);
}

struct tensor rows_from(struct tensor t, int64_t first, int64_t rows)
{
    t.data = (char *)t.data + first * t.stride[0] * dtype_bytes(t.dtype);
    t.shape[0] = rows;
    return t;
}

struct tensor rows_numbers(struct tensor t)
{
    return tensor_2d(t.data, t.dtype, t.shape[0], t.shape[1]);
}

static status rows_copy(struct run *run, struct tensor to, struct tensor from)
{
    const int64_t bytes = dtype_bytes(to.dtype);

    return device_copy_rows(
        run->stream, (struct device_rows){to.data, to.stride[0] * bytes},
        (struct device_rows){from.data, from.stride[0] * bytes}, to.shape[0],
        (size_t)(to.shape[1] * to.shape[2] * bytes));
}

status rows_round(struct run *run, struct tensor to, struct tensor from)
{
    if (to.dtype != from.dtype) /* each head is the sum of itself */
        return run->kernels->attention_heads(run->stream, to, from, 1);
    return rows_copy(run, to, from);
}

int64_t share_bytes(const struct share *s, int64_t elements)
{
    return elements * dtype_bytes(s->dtype);
}

int64_t share_real_bytes(const struct share *s, int64_t numbers)
{
    return numbers * dtype_bytes(dtype_real(s->dtype));
}

/* Rows of one array, right after those before them. */
static struct tensor payload_rows(struct payload *b, const struct share *s,
                                  enum dtype dtype, int64_t heads,
                                  int64_t width)
{
    const struct tensor rows =
        tensor_3d(b->data + b->bytes, dtype, share_tokens(s), heads, width);

    b->bytes += tensor_bytes(&rows);
    return rows;
}

static int64_t payload_bytes(const struct share *s, const struct attention *own,
                             bool backward)
{
    const int64_t q = (int64_t)own->heads * own->head_width;
    const int64_t k = (int64_t)own->kv_heads * own->head_width;

    const int64_t bytes = share_bytes(s, 2 * (k + (backward ? q : 0)));

    return share_tokens(s) *
           (bytes + share_real_bytes(s, backward ? 2 * own->heads : 0));
}

static void payload_take(struct payload *b, struct room *room,
                         const struct share *s, const struct attention *own,
                         bool backward)
{
    const enum dtype dtype = own->k.dtype;

    *b = (struct payload){
        .data = room_take(room, payload_bytes(s, own, backward))};
    b->k = payload_rows(b, s, dtype, own->kv_heads, own->head_width);
    b->v = payload_rows(b, s, dtype, own->kv_heads, own->head_width);
    if (!backward) return;
    b->q = payload_rows(b, s, dtype, own->heads, own->head_width);
    b->dout = payload_rows(b, s, dtype, own->heads, own->head_width);
    b->lse = payload_rows(b, s, dtype_real(dtype), own->heads, 1);
    b->delta = payload_rows(b, s, dtype_real(dtype), own->heads, 1);
}

static status payload_fill(struct run *run, struct payload *b,
                           const struct attention *own, bool backward)
{
    const struct tensor lse = tensor_3d(own->lse.data, own->lse.dtype,
                                        b->k.shape[0], own->heads, 1);
    struct tensor delta = own->delta;

    TRY(rows_copy(run, b->k, own->k));
    TRY(rows_copy(run, b->v, own->v));
    if (!backward) return OK;
    delta = tensor_3d(delta.data, delta.dtype, b->k.shape[0], own->heads, 1);
    TRY(rows_copy(run, b->q, own->q));
    TRY(rows_copy(run, b->dout, own->dout));
    TRY(rows_copy(run, b->lse, lse));
    return rows_copy(run, b->delta, delta);
}

status payload_begin(struct run *run, struct payload block[2],
                     struct room *room, const struct share *s,
                     const struct attention *own, bool backward)
{
    for (int i = 0; i < 2; i++)
        payload_take(&block[i], room, s, own, backward);
    return payload_fill(run, &block[0], own, backward);
}

void payload_documents(const struct run *run, const struct share *s, int owner,
                       int32_t *out)
{
    const int64_t length = 2 * s->span;
    const int32_t *whole = run->batch.whole_documents;

    if (whole == NULL) return;
    for (int64_t i = 0; i < s->sequences; i++)
        for (int64_t t = 0; t < length; t++)
            out[i * length + t] =
                whole[i * s->length + share_position(s, owner, t)];
}

status payload_travel(const struct share *s, struct payload two[2],
                      payload_visit *visit, void *argument)
{
    const int next = share_member(s, (s->rank + 1) % s->ranks);
    const int before = share_member(s, (s->rank + s->ranks - 1) % s->ranks);

    for (int i = 0; i < s->ranks; i++) {
        const struct payload *block = &two[i % 2];
        const struct comm_call call = run_exchange(s->run, s->group);
        struct comm_handle handle = {0};
        status result, moved;

        s->run->peers.send[next] = (struct comm_block){
            .data = block->data, .bytes = block->bytes};
        s->run->peers.receive[before] = (struct comm_block){
            .data = two[1 - i % 2].data, .bytes = block->bytes};
        if (i + 1 < s->ranks) TRY(comm_start(s->group, &call, &handle));
        result = visit(argument, block, (s->rank + s->ranks - i) % s->ranks);
        moved = comm_wait(&handle);
        TRY(result);
        TRY(moved);
    }
    return OK;
}
