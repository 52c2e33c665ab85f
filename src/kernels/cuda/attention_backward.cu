/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.cu - gradients of attention: a block has a tile of queries
 * and goes over granules of keys (dq), or a tile of keys and goes over heads
 * and granules of queries (dk, dv). A granule in which nothing is seen adds +0,
 * which changes no bit (reference/attention_backward.c). */
#include "kernels/cuda/attention.h"

/* Sums that wait for their right neighbour, bit l of `waits` for level l. */
struct wait_chain {
    struct patch *levels;
    unsigned waits;
};

DEVICE void waiting_push(struct wait_chain *tree, int64_t number,
                         const struct patch *sum)
{
    struct patch node = *sum;
    bool there = true;
    int l = 0;

    LOOPED for (; number >> l & 1; l++) {
        if (!(tree->waits >> l & 1)) continue;
        node_merge(&node, &there, &tree->levels[l]);
        tree->waits &= ~(1u << l);
    }
    tree->levels[l] = node;
    tree->waits |= 1u << l;
}

/* +0 where there is none. */
DEVICE void waiting_root(const struct wait_chain *tree, struct patch *root)
{
    bool there = false;

    EACH_OF_PATCH root->at[i][j] = 0;
    LOOPED for (int l = 0; tree->waits >> l; l++)
        if (tree->waits >> l & 1) node_merge(root, &there, &tree->levels[l]);
}

/* q . k and dout . v of one pair; then P times dropout's factor, and dS. */
struct products { float qk, dov, lse, delta; };

DEVICE struct products pair_gradient(const struct attention_call *call,
                                     int head, struct attention_pair at,
                                     struct products of)
{
    const float keep = pair_keep(call, head, at);
    float score = of.qk, t = 0;

    if (call->slopes) score = score + pair_bias(call, head, at);
    score = score * call->scale;
    if (call->of.softcap > 0) {
        t = tanh_f32(score * call->inverse_cap);
        score = call->cap * t;
    }
    score = expz_f32(score - of.lse);
    of.dov = score * (of.dov * keep - of.delta);
    if (call->of.softcap > 0) of.dov = of.dov * __builtin_fmaf(-t, t, 1.0f);
    of.dov = pair_operand(&call->of, of.dov * call->scale);
    of.qk = pair_operand(&call->of, score * keep);
    return of;
}

/* ---- dq ---- */

struct query_tile {
    int64_t sequence, query, row; /* of the first */
    int head, queries;
};

DEVICE void queries_granule(struct attention_shared *s,
                            const struct attention_call *call, int rows,
                            const struct query_tile *tile, int64_t key,
                            struct patch *sum)
{
    const struct attention *p = &call->of;
    const int64_t left = p->first_key + p->keys - key;
    const int keys = left < ATTENTION_GRANULE ? (int)left : ATTENTION_GRANULE;
    const int kv = tile->head / (p->heads / p->kv_heads);
    const int64_t key_row = attention_key_row(p, tile->sequence, key);
    const struct head_rows k = head_rows_of(p, &p->k, key_row, kv, 0, keys);
    const struct head_rows v = head_rows_of(p, &p->v, key_row, kv, 0, keys);
    const struct head_rows q =
        head_rows_of(p, &p->q, tile->row, tile->head, 0, tile->queries);
    const struct head_rows dout =
        head_rows_of(p, &p->dout, tile->row, tile->head, 0, tile->queries);
    struct scores qk, dov;

    tile_dots(s, rows, &q, &k, p->head_width, &qk);
    tile_dots(s, rows, &dout, &v, p->head_width, &dov);
    UNROLLED for (int j = 0; j < tile_each(rows); j++)
        UNROLLED for (int i = 0; i < PATCH; i++) {
            const int row = tile_row(rows) + i;
            const int column = tile_column(rows) + j * tile_side(rows);
            const struct attention_pair pair = {
                tile->sequence, tile->query + row, key + column};

            struct products of = {qk.at[i][j], dov.at[i][j],
                                  s->maximum[row], s->denominator[row]};

            if (row < tile->queries && column < keys && pair_is_seen(p, pair))
                of = pair_gradient(call, tile->head, pair, of);
            else
                of.dov = 0;
            dov.at[i][j] = of.dov;
        }
    tile_weights(s, rows, &dov);
    tile_sum(s, rows, &k, p->head_width, sum);
}

DEVICE void queries_tile(struct attention_shared *s,
                         const struct attention_call *call, int rows)
{
    const struct attention *p = &call->of;
    const int64_t unit = BLOCK / call->tiles;
    const int64_t first = BLOCK % call->tiles * rows;
    const int64_t left = p->queries - first;
    struct query_tile tile = {.sequence = unit / p->heads,
                              .query = p->first_query + first,
                              .head = (int)(unit % p->heads),
                              .queries = left < rows ? (int)left : rows};
    const int64_t last = tile.query + tile.queries - 1;
    struct patch levels[NODES_WAITING], sum;
    struct wait_chain tree = {levels, 0};

    tile.row = attention_query_row(p, tile.sequence, tile.query);
    tile_numbers(s, p, tile.row, tile.queries, tile.head);
    LOOPED for (int64_t key = p->first_key;
                key <= last && key < p->first_key + p->keys;
                key += ATTENTION_GRANULE) {
        if (key + ATTENTION_GRANULE <= attention_lowest(p, tile.query))
            continue;
        queries_granule(s, call, rows, &tile, key, &sum);
        waiting_push(&tree, key / ATTENTION_GRANULE, &sum);
    }
    waiting_root(&tree, &sum);
    tile_store(&p->dq, tile.row, tile.queries, tile.head, rows, &sum);
}

/* ---- dk, dv ---- */

struct key_tile {
    int64_t sequence, key, row; /* of the first */
    int kv, keys, head;         /* the query head that is looked at */
};

/* sum[0] = dk, sum[1] = dv of a granule of queries of one head. */
DEVICE void keys_granule(struct attention_shared *s,
                         const struct attention_call *call, int rows,
                         const struct key_tile *tile, int64_t granule,
                         struct patch sum[2])
{
    const int head = tile->head;
    const struct attention *p = &call->of;
    const int64_t base = granule * ATTENTION_GRANULE;
    const int64_t end = p->first_query + p->queries;
    const int first = p->first_query > base ? (int)(p->first_query - base) : 0;
    const int last =
        end - base < ATTENTION_GRANULE ? (int)(end - base) : ATTENTION_GRANULE;
    const int64_t row = attention_query_row(p, tile->sequence, base + first);
    const struct head_rows k =
        head_rows_of(p, &p->k, tile->row, tile->kv, 0, tile->keys);
    const struct head_rows v =
        head_rows_of(p, &p->v, tile->row, tile->kv, 0, tile->keys);
    const struct head_rows q = head_rows_of(p, &p->q, row, head, first, last);
    const struct head_rows dout =
        head_rows_of(p, &p->dout, row, head, first, last);
    struct scores qk, dov;

    tile_numbers(s, p, row, last - first, head);
    tile_dots(s, rows, &k, &q, p->head_width, &qk);
    tile_dots(s, rows, &v, &dout, p->head_width, &dov);
    UNROLLED for (int j = 0; j < tile_each(rows); j++)
        UNROLLED for (int i = 0; i < PATCH; i++) {
            const int key = tile_row(rows) + i;
            const int query = tile_column(rows) + j * tile_side(rows);
            const struct attention_pair pair = {
                tile->sequence, base + query, tile->key + key};
            struct products of = {qk.at[i][j], dov.at[i][j], 0, 0};

            if (key < tile->keys && query >= first && query < last &&
                pair_is_seen(p, pair)) {
                of.lse = s->maximum[query - first];
                of.delta = s->denominator[query - first];
                of = pair_gradient(call, head, pair, of);
            } else {
                of.qk = of.dov = 0;
            }
            qk.at[i][j] = of.qk;
            dov.at[i][j] = of.dov;
        }
    tile_weights(s, rows, &dov);
    tile_sum(s, rows, &q, p->head_width, &sum[0]);
    tile_weights(s, rows, &qk);
    tile_sum(s, rows, &dout, p->head_width, &sum[1]);
}

/* sum[0] = dk, sum[1] = dv of a head. */
DEVICE void keys_head(struct attention_shared *s,
                      const struct attention_call *call, int rows,
                      const struct key_tile *tile, struct wait_chain tree[2],
                      struct patch sum[2])
{
    const struct attention *p = &call->of;
    const int64_t past = attention_past(p, tile->key + tile->keys - 1);
    int64_t first = tile->key, end = p->first_query + p->queries;

    if (first < p->first_query) first = p->first_query;
    if (end > past) end = past;
    tree[0].waits = tree[1].waits = 0;
    LOOPED for (int64_t g = first / ATTENTION_GRANULE;
                g * ATTENTION_GRANULE < end; g++) {
        keys_granule(s, call, rows, tile, g, sum);
        waiting_push(&tree[0], g, &sum[0]);
        waiting_push(&tree[1], g, &sum[1]);
    }
    waiting_root(&tree[0], &sum[0]);
    waiting_root(&tree[1], &sum[1]);
}

DEVICE void patch_add(struct patch *sum, const struct patch *value, bool starts)
{
    EACH_OF_PATCH sum->at[i][j] =
        starts ? value->at[i][j] : sum->at[i][j] + value->at[i][j];
}

DEVICE void keys_tile(struct attention_shared *s,
                      const struct attention_call *call, int rows)
{
    const struct attention *p = &call->of;
    const int group = p->heads / p->kv_heads, per_leaf = p->heads / p->leaves;
    const int64_t unit = BLOCK / call->tiles;
    const int64_t first = BLOCK % call->tiles * rows;
    const int64_t left = p->keys - first;
    struct key_tile tile = {.sequence = unit / p->kv_heads,
                            .key = p->first_key + first,
                            .kv = (int)(unit % p->kv_heads),
                            .keys = left < rows ? (int)left : rows};
    const int begin = tile.kv * group, end = begin + group;
    struct patch levels[2][NODES_WAITING], of_leaves[2][LEVELS_MOST + 1];
    struct wait_chain trees[2] = {{levels[0], 0}, {levels[1], 0}};
    struct wait_chain leaves[2] = {{of_leaves[0], 0}, {of_leaves[1], 0}};
    struct patch one[2], sum[2];

    tile.row = attention_key_row(p, tile.sequence, tile.key);
    LOOPED for (int head = begin; head < end; head++) {
        tile.head = head;
        keys_head(s, call, rows, &tile, trees, one);
        for (int i = 0; i < 2; i++) {
            patch_add(&sum[i], &one[i], head == begin || head % per_leaf == 0);
            if (head == end - 1 || (head + 1) % per_leaf == 0)
                waiting_push(&leaves[i], head / per_leaf, &sum[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        waiting_root(&leaves[i], &sum[i]);
        tile_store(i == 0 ? &p->dk : &p->dv, tile.row, tile.keys, tile.kv,
                   rows, &sum[i]);
    }
}

#define BACKWARD_KERNELS(span)                                             \
    CUDA_WIDE_KERNEL(attention_queries_##span)                             \
    {                                                                      \
        SHARED(struct attention_shared, s);                                \
                                                                           \
        queries_tile(s, &p->call, ATTENTION_TILE / span);                  \
    }                                                                      \
    CUDA_WIDE_KERNEL(attention_keys_##span)                                \
    {                                                                      \
        SHARED(struct attention_shared, s);                                \
                                                                           \
        keys_tile(s, &p->call, ATTENTION_TILE / span);                     \
    }
BACKWARD_KERNELS(64)
BACKWARD_KERNELS(128)
BACKWARD_KERNELS(256)

/* 16 threads have a row of a head. */
CUDA_KERNEL(attention_delta)
{
    const struct attention *of = &p->of;
    const int64_t i = BLOCK * BLOCK_ROWS + THREAD / LANES;
    const int64_t query = i / of->heads;
    const int head = (int)(i % of->heads);
    const bool there = query < of->sequences * of->queries;
    const int64_t row = there ? attention_query_row(
                                    of, query / of->queries,
                                    of->first_query + query % of->queries) : 0;
    const struct head_rows a = head_rows_of(of, &of->dout, row, head, 0, there);
    const struct head_rows b = head_rows_of(of, &of->out, row, head, 0, there);
    float sum = 0;
    SHARED(struct lanes_shared, s);

    for (int e = THREAD % LANES; e < of->head_width; e += LANES)
        sum = __builtin_fmaf(head_get(&a, 0, e), head_get(&b, 0, e), sum);
    sum = lanes_of_row(s, sum);
    if (there && THREAD % LANES == 0) *number_of(&of->delta, row, head) = sum;
}

/* A thread has an element of a key-value head. */
CUDA_KERNEL(attention_heads)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t width = p->in.shape[2], kv_heads = p->out.shape[1];
    const int64_t row = i / (kv_heads * width);
    const int kv = (int)(i / width % kv_heads), e = (int)(i % width);
    const int heads = (int)p->in.shape[1], group = heads / (int)kv_heads;
    const int per_leaf = heads / p->leaves, end = (kv + 1) * group;
    struct number_tree tree = {{0}, 0};
    float sum = 0, root = 0;
    bool there = false;

    if (row >= p->out.shape[0]) return;
    for (int head = kv * group; head < end; head++) {
        const float one =
            element_get(p->in.data, p->in.dtype,
                        row * p->in.stride[0] + head * p->in.stride[1] + e);

        sum = head == kv * group || head % per_leaf == 0 ? one : sum + one;
        if (head == end - 1 || (head + 1) % per_leaf == 0)
            number_push(&tree, head / per_leaf, sum, true);
    }
    number_root(&tree, &root, &there);
    element_set(p->out.data, p->out.dtype,
                row * p->out.stride[0] + kv * p->out.stride[1] + e, root);
}
