/* SPDX-License-Identifier: Apache-2.0 */
/* context_ring.c - attention of sequences that ranks cut: keys and values
 * travel from rank to rank and are used where they are, while the next ones
 * arrive. Source: Liu et al. 2023, arXiv:2310.01889.
 *
 * A block of keys contributes one node of the tree over keys to the own
 * queries. Nodes are kept and merged as the tree says (forest.h), whatever the
 * order in which blocks arrive. In backward, queries and their gradients travel
 * too, and the own keys get nodes of their sums over queries. */
#include "nn/payload.h"

#include <string.h>

#include "nn/forest.h"

struct ring {
    struct run *run;
    const struct share *s;
    const struct attention *own;
    struct payload block[2];
    int32_t *documents;         /* of the block's tokens */
    struct attention_node *nodes; /* forward: [places], own tokens */
    struct tensor *dq, *dk, *dv;  /* backward: [places], all heads */
    struct forest queries[2], keys[2]; /* of own spans */
};

/* A merge that a forest asks for. */
struct merging {
    struct ring *ring;
    int half; /* of own tokens */
};

/* ---- places ---- */

/* Number of a rank's first or second span. */
static int span_of(const struct share *s, int rank, int second)
{
    return second ? 2 * s->ranks - 1 - rank : rank;
}

/* Rows of one half of one sequence. */
static struct tensor half_rows(const struct share *s, struct tensor t,
                               int64_t sequence, int half)
{
    return rows_from(t, (2 * sequence + half) * s->span, s->span);
}

static struct tensor flat(struct tensor t)
{
    return tensor_1d(t.data, t.dtype, tensor_count(&t));
}

/* ---- merging ---- */

static status merge_nodes(void *argument, int left, int right)
{
    const struct merging *m = argument;
    struct ring *r = m->ring;

    for (int64_t i = 0; i < r->s->sequences; i++) {
        struct attention_node node[2];

        for (int j = 0; j < 2; j++) {
            const struct attention_node *of = &r->nodes[j ? right : left];

            node[j].values = half_rows(r->s, of->values, i, m->half);
            node[j].maximum = half_rows(r->s, of->maximum, i, m->half);
            node[j].denominator =
                half_rows(r->s, of->denominator, i, m->half);
        }
        TRY(r->run->kernels->attention_merge(r->run->stream, &node[0],
                                             &node[1]));
    }
    return OK;
}

static status add_rows(const struct merging *m, struct tensor left,
                       struct tensor right)
{
    struct run *run = m->ring->run;

    for (int64_t i = 0; i < m->ring->s->sequences; i++) {
        const struct tensor to =
            flat(half_rows(m->ring->s, left, i, m->half));

        TRY(run->kernels->add(
            run->stream, to, to,
            flat(half_rows(m->ring->s, right, i, m->half))));
    }
    return OK;
}

static status merge_queries(void *argument, int left, int right)
{
    const struct merging *m = argument;

    return add_rows(m, m->ring->dq[left], m->ring->dq[right]);
}

static status merge_keys(void *argument, int left, int right)
{
    const struct merging *m = argument;

    TRY(add_rows(m, m->ring->dk[left], m->ring->dk[right]));
    return add_rows(m, m->ring->dv[left], m->ring->dv[right]);
}

static status merge_nothing(void *argument, int left, int right)
{
    (void)argument;
    (void)left;
    (void)right;
    return OK;
}

/* Own spans see keys of spans up to themselves, and are seen by queries of
 * spans from themselves on. */
static void forests_begin(const struct share *s, struct forest *queries,
                          struct forest *keys)
{
    for (int half = 0; half < 2; half++) {
        const int own = span_of(s, s->rank, half);

        queries[half] = keys[half] = (struct forest){0};
        for (int i = own + 1; i < 2 * s->ranks; i++)
            (void)forest_put(&queries[half], i, -1, merge_nothing, NULL);
        for (int i = 0; i < own; i++)
            (void)forest_put(&keys[half], i, -1, merge_nothing, NULL);
    }
}

/* The most slots that a forest of this rank uses. */
static void count_slots(const struct share *s, int *queries, int *keys)
{
    struct forest of_queries[2], of_keys[2];

    forests_begin(s, of_queries, of_keys);
    *queries = *keys = 0;
    for (int i = 0; i < 4 * s->ranks * 2; i++) {
        const int owner = (s->rank + s->ranks - i / 4 % s->ranks) % s->ranks;
        const int half = i / 2 % 2, span = span_of(s, owner, i % 2);
        const int own = span_of(s, s->rank, half);
        const bool back = i >= 4 * s->ranks;
        struct forest *f = back ? &of_keys[half] : &of_queries[half];

        if (back ? span < own : span > own) continue;
        (void)forest_put(f, span, forest_take(f), merge_nothing, NULL);
        if (f->most > *(back ? keys : queries))
            *(back ? keys : queries) = f->most;
    }
}

/* ---- forward ---- */

/* Own queries of one half. */
static struct attention own_queries(const struct ring *r, int half)
{
    const int64_t at = half * r->s->span, rows = share_tokens(r->s) - at;
    struct attention p = *r->own;

    p.q = rows_from(p.q, at, rows);
    if (p.query_documents) p.query_documents += at;
    p.queries = r->s->span;
    p.query_stride = 2 * r->s->span;
    p.first_query = share_first(r->s, r->s->rank, half);
    return p;
}

/* ... against the keys of one half of a block. */
static void payload_keys(const struct ring *r, const struct payload *b,
                         int owner, int half, struct attention *p)
{
    const int64_t at = half * r->s->span, rows = share_tokens(r->s) - at;

    p->k = rows_from(b->k, at, rows);
    p->v = rows_from(b->v, at, rows);
    p->key_documents = r->run->batch.whole_documents == NULL
                           ? NULL : r->documents + at;
    p->keys = r->s->span;
    p->key_stride = 2 * r->s->span;
    p->first_key = share_first(r->s, owner, half);
}

static status pair_forward(struct ring *r, const struct payload *b, int owner,
                           int half, int other)
{
    struct forest *forest = &r->queries[half];
    const int place = forest_take(forest);
    const int64_t at = half * r->s->span, rows = share_tokens(r->s) - at;
    struct attention p = own_queries(r, half);
    struct merging merging = {r, half};

    payload_keys(r, b, owner, other, &p);
    p.out = rows_from(r->nodes[place].values, at, rows);
    p.lse = rows_from(r->nodes[place].maximum, at, rows);
    p.denominator = rows_from(r->nodes[place].denominator, at, rows);
    TRY(r->run->kernels->attention_forward(r->run->stream, &p));
    return forest_put(forest, span_of(r->s, owner, other), place, merge_nodes,
                      &merging);
}

static status visit_forward(void *argument, const struct payload *b,
                            int owner)
{
    struct ring *r = argument;

    payload_documents(r->run, r->s, owner, r->documents);
    for (int half = 0; half < 2; half++)
        for (int other = 0; other < 2; other++)
            if (span_of(r->s, owner, other) <= span_of(r->s, r->s->rank, half))
                TRY(pair_forward(r, b, owner, half, other));
    return OK;
}

static status finish_forward(struct ring *r, int half)
{
    struct merging merging = {r, half};
    int place;

    TRY(forest_root(&r->queries[half], &place, merge_nodes, &merging));
    for (int64_t i = 0; i < r->s->sequences; i++) {
        const struct attention_node root = {
            half_rows(r->s, r->nodes[place].values, i, half),
            half_rows(r->s, r->nodes[place].maximum, i, half),
            half_rows(r->s, r->nodes[place].denominator, i, half)};

        TRY(r->run->kernels->attention_finish(
            r->run->stream, half_rows(r->s, r->own->out, i, half),
            half_rows(r->s, r->own->lse, i, half), &root));
    }
    return OK;
}

static status ring_begin(struct ring *r, struct room *room, bool backward)
{
    TRY(payload_begin(r->run, r->block, room, r->s, r->own, backward));
    r->documents = run_list(
        r->run, room_take(room, share_tokens(r->s) *
                                    (int64_t)sizeof *r->documents));
    forests_begin(r->s, r->queries, r->keys);
    return OK;
}

status ring_forward(struct run *run, const struct share *s,
                    const struct attention *own, struct room room)
{
    struct attention_node nodes[FOREST_SPANS_MAX];
    struct ring ring = {.run = run, .s = s, .own = own, .nodes = nodes};
    int queries, keys;

    count_slots(s, &queries, &keys);
    TRY(ring_begin(&ring, &room, false));
    for (int i = 0; i < queries; i++) {
        const enum dtype dtype = dtype_real(own->q.dtype);

        nodes[i].values =
            rows_take(&room, s, dtype, own->heads, own->head_width);
        nodes[i].maximum =
            rows_numbers(rows_take(&room, s, dtype, own->heads, 1));
        nodes[i].denominator =
            rows_numbers(rows_take(&room, s, dtype, own->heads, 1));
    }
    TRY(payload_travel(s, ring.block, visit_forward, &ring));
    TRY(finish_forward(&ring, 0));
    return finish_forward(&ring, 1);
}

/* ---- backward ---- */

/* dq of own queries from one half of a block of keys. */
static status pair_queries(struct ring *r, const struct payload *b, int owner,
                           int half, int other)
{
    struct forest *forest = &r->queries[half];
    const int place = forest_take(forest);
    const int64_t at = half * r->s->span, rows = share_tokens(r->s) - at;
    struct attention p = own_queries(r, half);
    struct merging merging = {r, half};

    payload_keys(r, b, owner, other, &p);
    p.out = (struct tensor){0};
    p.dout = rows_from(p.dout, at, rows);
    p.lse = rows_from(p.lse, at, rows);
    p.delta = rows_from(p.delta, at, rows);
    p.dq = rows_from(r->dq[place], at, rows);
    p.half = ATTENTION_OF_QUERIES;
    TRY(r->run->kernels->attention_backward(r->run->stream, &p));
    return forest_put(forest, span_of(r->s, owner, other), place,
                      merge_queries, &merging);
}

/* One key-value head as many heads, those of the queries that read it. */
static struct tensor spread(struct tensor keys, int head, int group)
{
    keys.data = (char *)keys.data +
                head * keys.stride[1] * dtype_bytes(keys.dtype);
    keys.shape[1] = group;
    keys.stride[1] = 0;
    return keys;
}

static struct tensor heads_from(struct tensor t, int first, int count)
{
    t.data = (char *)t.data + first * t.stride[1] * dtype_bytes(t.dtype);
    t.shape[1] = count;
    return t;
}

/* The call for the query heads that read key-value head `kv`, each as if the
 * keys were its own: the sum over them comes last. */
static struct attention one_head(const struct attention *all, int kv)
{
    const int group = all->heads / all->kv_heads, first = kv * group;
    struct attention p = *all;

    p.q = heads_from(p.q, first, group);
    p.dout = heads_from(p.dout, first, group);
    p.dk = heads_from(p.dk, first, group);
    p.dv = heads_from(p.dv, first, group);
    p.k = spread(p.k, kv, group);
    p.v = spread(p.v, kv, group);
    p.lse = tensor_cols(p.lse, first, group);
    p.delta = tensor_cols(p.delta, first, group);
    p.heads = p.kv_heads = group;
    p.drop.head += first;
    p.alibi.head += first;
    p.leaves = 1;
    return p;
}

/* dk and dv of own keys from one half of a block of queries. */
static status pair_keys(struct ring *r, const struct payload *b, int owner,
                        int half, int other)
{
    const int64_t span = r->s->span, tokens = share_tokens(r->s);
    struct forest *forest = &r->keys[half];
    const int place = forest_take(forest);
    struct attention p = *r->own;
    struct merging merging = {r, half};

    p.k = rows_from(p.k, half * span, tokens - half * span);
    p.v = rows_from(p.v, half * span, tokens - half * span);
    p.dk = rows_from(r->dk[place], half * span, tokens - half * span);
    p.dv = rows_from(r->dv[place], half * span, tokens - half * span);
    if (p.key_documents) p.key_documents += half * span;
    p.first_key = share_first(r->s, r->s->rank, half);
    p.q = rows_from(b->q, other * span, tokens - other * span);
    p.dout = rows_from(b->dout, other * span, tokens - other * span);
    p.lse = rows_numbers(rows_from(b->lse, other * span,
                                   tokens - other * span));
    p.delta = rows_numbers(rows_from(b->delta, other * span,
                                     tokens - other * span));
    p.out = p.dq = (struct tensor){0};
    p.query_documents = p.key_documents ? r->documents + other * span : NULL;
    p.first_query = share_first(r->s, owner, other);
    p.queries = p.keys = span;
    p.query_stride = p.key_stride = 2 * span;
    p.half = ATTENTION_OF_KEYS;
    for (int kv = 0; kv < r->own->kv_heads; kv++) {
        const struct attention one = one_head(&p, kv);

        TRY(r->run->kernels->attention_backward(r->run->stream, &one));
    }
    return forest_put(forest, span_of(r->s, owner, other), place, merge_keys,
                      &merging);
}

static status visit_backward(void *argument, const struct payload *b,
                             int owner)
{
    struct ring *r = argument;

    payload_documents(r->run, r->s, owner, r->documents);
    for (int half = 0; half < 2; half++) {
        const int own = span_of(r->s, r->s->rank, half);

        for (int other = 0; other < 2; other++) {
            const int span = span_of(r->s, owner, other);

            if (span <= own) TRY(pair_queries(r, b, owner, half, other));
            if (span >= own) TRY(pair_keys(r, b, owner, half, other));
        }
    }
    return OK;
}

static status finish_backward(struct ring *r, int half)
{
    const struct kernels *kernels = r->run->kernels;
    const struct attention *own = r->own;
    struct merging merging = {r, half};
    int queries, keys;

    TRY(forest_root(&r->queries[half], &queries, merge_queries, &merging));
    TRY(forest_root(&r->keys[half], &keys, merge_keys, &merging));
    for (int64_t i = 0; i < r->s->sequences; i++) {
        TRY(rows_round(r->run, half_rows(r->s, own->dq, i, half),
                       half_rows(r->s, r->dq[queries], i, half)));
        TRY(kernels->attention_heads(
            r->run->stream, half_rows(r->s, own->dk, i, half),
            half_rows(r->s, r->dk[keys], i, half), own->leaves));
        TRY(kernels->attention_heads(
            r->run->stream, half_rows(r->s, own->dv, i, half),
            half_rows(r->s, r->dv[keys], i, half), own->leaves));
    }
    return OK;
}

status ring_backward(struct run *run, const struct share *s,
                     const struct attention *own, struct room room)
{
    struct tensor dq[FOREST_SPANS_MAX], dk[FOREST_SPANS_MAX];
    struct tensor dv[FOREST_SPANS_MAX];
    struct ring ring = {.run = run, .s = s, .own = own, .dq = dq, .dk = dk,
                        .dv = dv};
    const enum dtype dtype = dtype_real(own->q.dtype);
    int queries, keys;

    count_slots(s, &queries, &keys);
    TRY(ring_begin(&ring, &room, true));
    for (int i = 0; i < queries; i++)
        dq[i] = rows_take(&room, s, dtype, own->heads, own->head_width);
    for (int i = 0; i < keys; i++) {
        dk[i] = rows_take(&room, s, dtype, own->heads, own->head_width);
        dv[i] = rows_take(&room, s, dtype, own->heads, own->head_width);
    }
    TRY(payload_travel(s, ring.block, visit_backward, &ring));
    TRY(finish_backward(&ring, 0));
    return finish_backward(&ring, 1);
}

int64_t ring_room(const struct share *s, const struct attention *own)
{
    const int64_t q = (int64_t)own->heads * own->head_width;
    const int64_t k = (int64_t)own->kv_heads * own->head_width;
    int queries, keys;

    count_slots(s, &queries, &keys);
    const int64_t forward =
        share_bytes(s, 4 * k) +
        share_real_bytes(s, queries * (q + 2 * own->heads));
    const int64_t backward =
        share_bytes(s, 4 * (k + q)) +
        share_real_bytes(s, 4 * own->heads +
                                (queries + 2 * (int64_t)keys) * q);

    return share_tokens(s) * ((forward > backward ? forward : backward) +
                              (int64_t)sizeof(int32_t)) +
           (16 + 3 * (int64_t)(queries + keys)) * ARENA_ALIGN;
}
