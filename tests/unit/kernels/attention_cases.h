/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cases.h - calls of attention for tests: every edge of granules,
 * heads, leaves, documents, windows and what is done to scores. */
#ifndef LOCKSTEP_TESTS_KERNELS_ATTENTION_CASES_H
#define LOCKSTEP_TESTS_KERNELS_ATTENTION_CASES_H

#include "tests/unit/kernels/room.h"

struct attention_case {
    int sequences, queries, first_query;
    int heads, kv_heads, width, leaves;
    int document; /* tokens of a document; 0: no documents */
    bool fused;   /* q, k and v in one row */
    int window;   /* keys that a query sees; 0: all; below 0: chunks of so
                   * many */
    double cap;   /* of scores; 0: none */
    double drop;  /* of weights, with that probability */
    int alibi;    /* heads of a model, these its last; 0: no biases */
};

static const struct attention_case cases[] = {
    {1, 1, 0, 1, 1, 1, 1, 0, false, 0, 0, 0, 0},
    {2, 5, 0, 2, 2, 8, 1, 0, true, 0, 0, 0, 0},
    {1, 127, 0, 2, 1, 12, 1, 0, true, 0, 0, 0, 0},
    {1, 128, 0, 1, 1, 16, 1, 50, true, 0, 0, 0, 0},
    {2, 129, 0, 4, 2, 48, 2, 0, true, 0, 0, 0, 0},
    {1, 257, 0, 4, 1, 64, 4, 0, true, 0, 0, 0, 0},
    {1, 300, 0, 3, 1, 80, 3, 0, false, 0, 0, 0, 0},
    {1, 384, 0, 4, 2, 32, 2, 100, true, 0, 0, 0, 0},
    {1, 270, 0, 8, 1, 33, 8, 130, true, 0, 0, 0, 0},
    {1, 131, 0, 12, 3, 20, 4, 0, true, 0, 0, 0, 0},
    {1, 200, 0, 16, 1, 7, 16, 0, true, 0, 0, 0, 0},
    {1, 300, 0, 2, 2, 128, 2, 0, true, 0, 0, 0, 0},
    {1, 140, 0, 1, 1, 256, 1, 200, false, 0, 0, 0, 0},
    {1, 1030, 0, 1, 1, 12, 1, 333, true, 0, 0, 0, 0},
    {1, 1, 0, 2, 1, 64, 1, 0, false, 0, 0, 0, 0},
    {2, 1, 1, 2, 1, 64, 1, 0, false, 0, 0, 0, 0},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 0, 0, 0, 0},
    {1, 3, 126, 2, 2, 96, 1, 0, false, 0, 0, 0, 0},
    {2, 300, 77, 2, 1, 40, 1, 90, false, 0, 0, 0, 0},
    {1, 300, 0, 2, 1, 16, 1, 0, true, 40, 0, 0, 0},
    {2, 513, 0, 2, 1, 24, 2, 0, true, 129, 0, 0, 0},
    {1, 700, 0, 2, 2, 32, 1, 90, true, 128, 0, 0, 0},
    {2, 300, 77, 2, 1, 40, 1, 0, false, 100, 0, 0, 0},
    {1, 270, 0, 3, 1, 20, 3, 0, true, 1, 0, 0, 0},
    {1, 260, 0, 4, 2, 32, 2, 0, true, 0, 0.7, 0, 0},
    {1, 400, 0, 2, 1, 48, 1, 130, true, 150, 5, 0, 0},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 20, 5, 0, 0},
    {1, 1100, 0, 2, 1, 24, 1, 0, true, 70, 0, 0, 0},
    {1, 900, 0, 2, 2, 24, 2, 350, true, 260, 0, 0, 0},
    {1, 3, 1500, 4, 2, 32, 1, 0, false, 129, 0, 0, 0},
    {1, 300, 0, 4, 2, 32, 2, 0, true, 0, 0, 0.3, 0},
    {2, 391, 0, 2, 1, 24, 1, 130, true, 90, 5, 0.5, 0},
    {1, 3, 126, 2, 2, 96, 1, 0, false, 0, 0, 0.1, 0},
    {1, 300, 0, 3, 1, 16, 1, 0, true, 0, 0, 0, 3},
    {2, 391, 0, 6, 2, 24, 2, 130, true, 0, 0, 0, 12},
    {1, 260, 0, 8, 1, 33, 8, 130, true, 0, 0, 0, 14},
    {2, 1, 511, 4, 2, 64, 1, 0, false, 0, 0, 0, 5},
    {1, 260, 0, 4, 2, 32, 1, 75, false, 90, 5, 0.3, 71},
    {1, 1030, 0, 1, 1, 8, 1, 0, true, 0, 0, 0, 16},
    {1, 1, 77, 12, 12, 64, 1, 0, false, 0, 0, 0, 0},
    {1, 300, 0, 2, 1, 16, 1, 0, true, -40, 0, 0, 0},
    {2, 513, 0, 2, 1, 24, 2, 0, true, -129, 0, 0, 0},
    {1, 700, 0, 2, 2, 32, 1, 90, true, -128, 0, 0, 0},
    {2, 300, 77, 2, 1, 40, 1, 0, false, -100, 0, 0, 0},
    {1, 270, 0, 3, 1, 20, 3, 0, true, -1, 0, 0, 0},
    {2, 1, 511, 4, 2, 64, 1, 0, false, -20, 5, 0, 0},
    {1, 900, 0, 2, 2, 24, 2, 350, true, -260, 0, 0, 0},
    {2, 391, 0, 2, 1, 24, 1, 130, true, -90, 5, 0.5, 0},
    {1, 3, 1500, 4, 2, 32, 1, 0, false, -300, 0, 0, 0},
    {2, 1, 128, 6, 2, 24, 1, 0, false, 0, 0, 0, 0},
    {1, 1, 1001, 3, 3, 48, 1, 0, false, 0, 0, 0, 0},
    {1, 1, 299, 2, 1, 256, 1, 0, false, 0, 0, 0, 0},
    {1, 140, 0, 1, 1, 32, 1, 0, true, 0, 0, 0, 0},
    {1, 1100, 0, 1, 1, 256, 1, 0, true, 40, 0, 0, 0},
    {1, 133, 0, 2, 1, 64, 1, 50, true, 0, 0, 0, 0},
};

/* One tensor of [rows, heads, width] inside rows of `stride` elements. */
static inline struct tensor view(void *data, enum dtype dtype, int64_t rows,
                                 const int *shape, int64_t stride)
{
    struct tensor t = tensor_3d(data, dtype, rows, shape[0], shape[1]);

    t.stride[0] = stride;
    return t;
}

static inline void *at(void *data, enum dtype dtype, int64_t elements)
{
    return (char *)data + elements * dtype_bytes(dtype);
}

static inline void peak_set(struct attention *p, int head, enum dtype dtype,
                            double value)
{
    const struct tensor peaks = tensor_1d(p->peaks, dtype, head + 1);

    tensor_set(&peaks, head, value);
}

/* Training asks for them, generation does not: a query alone without anything
 * else has a path of its own there. */
static inline bool has_peaks(const struct attention_case *c)
{
    return c->queries > 1 || c->window != 0 || c->cap > 0 || c->drop > 0 ||
           c->alibi > 0;
}

static inline void attention_build(struct attention *p, struct arena *arena,
                                   const struct attention_case *c,
                                   enum dtype dtype)
{
    int64_t keys = c->first_query + c->queries, extra = c->fused ? 0 : 3;
    int64_t rows = c->sequences * c->queries;
    int64_t key_rows = c->sequences * (keys + extra);
    int query[2] = {c->heads, c->width}, key[2] = {c->kv_heads, c->width};
    int64_t q_width = c->heads * c->width, k_width = c->kv_heads * c->width;
    int64_t row = q_width + 2 * k_width + 5;
    int64_t most = rows > key_rows ? rows : key_rows;
    void *qkv = room_numbers(arena, most * row, dtype, 1);
    void *dqkv = room_numbers(arena, most * row, dtype, 2);

    memset(p, 0, sizeof *p);
    p->q = view(qkv, dtype, rows, query, row);
    p->k = view(at(qkv, dtype, q_width), dtype, key_rows, key, row);
    p->v = view(at(qkv, dtype, q_width + k_width), dtype, key_rows, key, row);
    p->dq = view(dqkv, dtype, rows, query, row);
    p->dk = view(at(dqkv, dtype, q_width), dtype, key_rows, key, row);
    p->dv = view(at(dqkv, dtype, q_width + k_width), dtype, key_rows, key,
                 row);
    p->out = view(room_numbers(arena, rows * q_width, dtype, 3), dtype, rows,
                  query, q_width);
    p->dout = view(room_numbers(arena, rows * q_width, dtype, 4), dtype, rows,
                   query, q_width);
    p->lse = tensor_2d(room_numbers(arena, rows * c->heads, dtype, 5), dtype,
                       rows, c->heads);
    p->sequences = c->sequences;
    p->queries = c->queries;
    p->keys = keys;
    p->key_stride = keys + extra;
    p->first_query = c->first_query;
    p->heads = c->heads;
    p->kv_heads = c->kv_heads;
    p->head_width = c->width;
    p->leaves = c->leaves;
    p->scale = 2.0 / sqrt((double)c->width);
    p->window = c->window > 0 ? c->window : 0;
    p->chunk = c->window < 0 ? -c->window : 0;
    p->softcap = c->cap;
    p->drop = (struct attention_dropout){c->drop, {{11, 12}}, 70, 5};
    if (c->alibi > 0)
        p->alibi = (struct attention_alibi){c->alibi, c->alibi - c->heads};
    if (has_peaks(c))
        p->peaks = room_take(arena, c->heads, dtype_bytes(dtype));
    for (int h = 0; p->peaks && h < c->heads; h++)
        peak_set(p, h, dtype, -(double)INFINITY);
    if (c->document) {
        int32_t *of_keys = room_take(arena, key_rows, 4);
        int32_t *of_queries = room_take(arena, rows, 4);

        for (int64_t i = 0; i < key_rows; i++)
            of_keys[i] = (int32_t)((i % (keys + extra) + 7) / c->document *
                                   c->document - 7);
        for (int64_t i = 0; i < rows; i++)
            of_queries[i] = of_keys[c->first_query + i % c->queries];
        p->key_documents = of_keys;
        p->query_documents = of_queries;
    }
}

#endif
