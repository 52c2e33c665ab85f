/* SPDX-License-Identifier: Apache-2.0 */
/* branches.c - sequences that begin alike, with the beginning there once. */
#include "nn/branches.h"

#include <string.h>

size_t branches_bytes(int64_t tokens, int64_t width, enum dtype dtype)
{
    return (size_t)tokens * (size_t)width * (size_t)dtype_bytes(dtype);
}

/* Rows [first, first + count) of [tokens, heads, head_width]. */
static struct tensor rows_of(struct tensor view, int64_t first, int64_t count)
{
    view.data = (char *)view.data +
                first * view.stride[0] * dtype_bytes(view.dtype);
    view.shape[0] = count;
    return view;
}

/* [tokens, heads, head_width] from column `first` of packed rows. */
static struct tensor packed(const struct attention *call, void *data,
                            int64_t first)
{
    const int64_t each = (int64_t)call->kv_heads * call->head_width;
    struct tensor view = call->k;

    view.data = (char *)data + first * dtype_bytes(view.dtype);
    view.stride[0] = 2 * each;
    return view;
}

/* Keys and values touch in the fused slot. */
static void copy_rows(const struct attention *call, int64_t first,
                      int64_t count, char *to)
{
    const size_t element = (size_t)dtype_bytes(call->k.dtype);
    const size_t bytes =
        2 * (size_t)call->kv_heads * (size_t)call->head_width * element;
    const char *from = call->k.data;

    for (int64_t t = 0; t < count; t++)
        memcpy(to + (size_t)t * bytes,
               from + (size_t)((first + t) * call->k.stride[0]) * element,
               bytes);
}

status branches_attend(const struct kernels *kernels, struct stream *stream,
                       const struct attention *call,
                       const struct branches *branches)
{
    const int64_t width = 2 * (int64_t)call->kv_heads * call->head_width;
    const int64_t row = width * dtype_bytes(call->k.dtype);
    char *const keys = branches->keys;
    int64_t trunk_first = -1, trunk = 0; /* that `keys` begins with */

    for (int64_t i = 0; i < branches->count; i++) {
        const struct branch *b = &branches->items[i];
        struct attention one = *call;

        one.q = rows_of(call->q, b->first, b->count);
        one.out = rows_of(call->out, b->first, b->count);
        one.query_documents = one.key_documents = NULL;
        one.sequences = 1;
        one.queries = b->count;
        one.keys = b->trunk + b->count;
        one.first_query = b->trunk;
        one.k = rows_of(call->k, b->first, b->count);
        one.v = rows_of(call->v, b->first, b->count);
        if (b->trunk > 0) {
            if (b->trunk_first != trunk_first || b->trunk != trunk)
                copy_rows(call, b->trunk_first, b->trunk, keys);
            trunk_first = b->trunk_first;
            trunk = b->trunk;
            copy_rows(call, b->first, b->count, keys + trunk * row);
            one.k = packed(call, keys, 0);
            one.v = packed(call, keys, width / 2);
            one.k.shape[0] = one.v.shape[0] = one.keys;
        }
        TRY(kernels->attention_forward(stream, &one));
    }
    return OK;
}
