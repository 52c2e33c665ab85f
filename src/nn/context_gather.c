/* SPDX-License-Identifier: Apache-2.0 */
/* context_gather.c - attention of sequences that ranks cut: all ranks get all
 * keys and values, each computes its own queries.
 *
 * Backward needs no sums over ranks: dq of own queries comes from all keys, dk
 * and dv of own keys come from all queries, with what the forward pass knows of
 * them. Each gradient is then the whole sum, in the order that one rank would
 * have. */
#include "nn/context.h"

#include "comm/comm.h"

struct share context_share(const struct run *run)
{
    const struct program *p = run->program;
    struct group *group = run->groups[AXIS_CONTEXT];
    const int exchange = p->layout.method.exchange;

    return (struct share){
        .run = run, .group = group,
        .first = group->rank % exchange, .step = exchange,
        .ranks = group->size / exchange, .rank = group->rank / exchange,
        .sequences = p->size.sequences,
        .span = p->size.length / 2 * exchange, .length = program_sequence(p),
        .dtype = p->dtype, .striped = p->layout.method.striped};
}

int64_t share_first(const struct share *s, int rank, int second)
{
    return (second ? 2 * s->ranks - 1 - rank : rank) * s->span;
}

int64_t share_position(const struct share *s, int rank, int64_t token)
{
    const int second = token >= s->span;

    if (s->striped) return token * s->ranks + rank;
    return share_first(s, rank, second) + token - second * s->span;
}

void *room_take(struct room *room, int64_t bytes)
{
    char *taken = room->at;

    room->at += (int64_t)arena_aligned((size_t)bytes);
    return taken;
}

/* ---- exchanges ---- */

struct comm_block share_rows(const struct tensor *t)
{
    const int64_t bytes = dtype_bytes(t->dtype);

    return (struct comm_block){
        .data = t->data, .bytes = t->shape[1] * t->shape[2] * bytes,
        .rows = t->shape[0], .stride = t->stride[0] * bytes};
}

struct comm_block share_spans(const struct share *s, void *whole, int64_t row,
                              int rank)
{
    const int64_t first = share_first(s, rank, 0);

    return (struct comm_block){
        .data = (char *)whole + first * row, .bytes = s->span * row,
        .rows = 2, .stride = (share_first(s, rank, 1) - first) * row,
        .planes = s->sequences, .plane_stride = s->length * row};
}

/* whole [sequences * length, heads, width] = the rows of all ranks. */
static status gather(const struct share *s, struct tensor local, void *whole)
{
    const int64_t row =
        local.shape[1] * local.shape[2] * dtype_bytes(local.dtype);
    const struct comm_call call = run_exchange(s->run, s->group);
    const struct run_peers *peers = &s->run->peers;

    for (int i = 0; i < s->ranks; i++) {
        peers->send[share_member(s, i)] = share_rows(&local);
        peers->receive[share_member(s, i)] = share_spans(s, whole, row, i);
    }
    return comm_run(s->group, &call);
}

/* ---- views ---- */

static struct tensor dense(const struct share *s, void *data, enum dtype dtype,
                           int64_t heads, int64_t width)
{
    return tensor_3d(data, dtype, s->sequences * s->length, heads, width);
}

static struct tensor from_row(struct tensor t, int64_t first)
{
    t.data = (char *)t.data + first * t.stride[0] * dtype_bytes(t.dtype);
    t.shape[0] -= first;
    return t;
}

static const int32_t *documents_from(const int32_t *documents, int64_t first)
{
    return documents == NULL ? NULL : documents + first;
}

/* Restricts the queries to those from row `first` of every sequence on. */
static void queries_from(struct attention *p, int64_t first)
{
    struct tensor *rows[] = {&p->q, &p->out, &p->lse, &p->dq, &p->dout,
                             &p->delta};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i]->data != NULL) *rows[i] = from_row(*rows[i], first);
    p->query_documents = documents_from(p->query_documents, first);
}

static void keys_from(struct attention *p, int64_t first)
{
    struct tensor *rows[] = {&p->k, &p->v, &p->dk, &p->dv};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i]->data != NULL) *rows[i] = from_row(*rows[i], first);
    p->key_documents = documents_from(p->key_documents, first);
}

/* ---- gathered keys and values ---- */

/* The call for one span of this rank's queries, with all keys in `all`. */
static struct attention span_queries(const struct share *s,
                                     const struct attention *own,
                                     const struct attention *all, int second)
{
    struct attention p = *own;

    queries_from(&p, second * s->span);
    p.queries = s->span;
    p.query_stride = 2 * s->span;
    p.first_query = share_first(s, s->rank, second);
    p.k = all->k;
    p.v = all->v;
    p.keys = p.first_query + s->span;
    p.key_stride = s->length;
    p.key_documents = all->key_documents;
    p.half = ATTENTION_OF_QUERIES;
    return p;
}

/* The call for one span of this rank's keys, with all queries in `all`. */
static struct attention span_keys(const struct share *s,
                                  const struct attention *own,
                                  const struct attention *all, int second)
{
    const int64_t first = share_first(s, s->rank, second);
    struct attention p = *all;

    queries_from(&p, first);
    p.first_query = first;
    p.queries = s->length - first;
    p.query_stride = s->length;
    p.k = own->k;
    p.v = own->v;
    p.dk = own->dk;
    p.dv = own->dv;
    p.key_documents = own->key_documents;
    keys_from(&p, second * s->span);
    p.first_key = first;
    p.keys = s->span;
    p.key_stride = 2 * s->span;
    p.half = ATTENTION_OF_KEYS;
    return p;
}

static int64_t whole_tokens(const struct share *s)
{
    return s->sequences * s->length;
}

/* all = own, with the keys and values of all ranks. */
static status gather_keys(const struct run *run, const struct share *s,
                          const struct attention *own, struct room *room,
                          struct attention *all)
{
    const int64_t heads = own->kv_heads, width = own->head_width;
    const int64_t bytes =
        whole_tokens(s) * heads * width * dtype_bytes(s->dtype);

    *all = *own;
    all->k = dense(s, room_take(room, bytes), own->k.dtype, heads, width);
    all->v = dense(s, room_take(room, bytes), own->k.dtype, heads, width);
    all->key_documents = run->batch.whole_documents;
    TRY(gather(s, own->k, all->k.data));
    return gather(s, own->v, all->v.data);
}

status gather_forward(struct run *run, const struct share *s,
                      const struct attention *own, struct room room)
{
    struct attention all;

    TRY(gather_keys(run, s, own, &room, &all));
    for (int second = 0; second < 2; second++) {
        const struct attention p = span_queries(s, own, &all, second);

        TRY(run->kernels->attention_forward(run->stream, &p));
    }
    return OK;
}

static status queries_backward(struct run *run, const struct share *s,
                               const struct attention *own, struct room room)
{
    struct attention all;

    TRY(gather_keys(run, s, own, &room, &all));
    for (int second = 0; second < 2; second++) {
        const struct attention p = span_queries(s, own, &all, second);

        TRY(run->kernels->attention_backward(run->stream, &p));
    }
    return OK;
}

/* [tokens, heads] as [tokens, heads, 1]. */
static struct tensor as_heads(struct tensor t)
{
    return tensor_3d(t.data, t.dtype, t.shape[0], t.shape[1], 1);
}

static status keys_backward(struct run *run, const struct share *s,
                            const struct attention *own, struct room room)
{
    const int64_t heads = own->heads, width = own->head_width;
    const enum dtype dtype = own->q.dtype, real = own->lse.dtype;
    const int64_t numbers = whole_tokens(s) * heads * dtype_bytes(real);
    const int64_t bytes =
        whole_tokens(s) * heads * width * dtype_bytes(dtype);
    struct attention all = *own;

    all.q = dense(s, room_take(&room, bytes), dtype, heads, width);
    all.dout = dense(s, room_take(&room, bytes), dtype, heads, width);
    all.lse = tensor_2d(room_take(&room, numbers), real, whole_tokens(s),
                        heads);
    all.delta = tensor_2d(room_take(&room, numbers), real, whole_tokens(s),
                          heads);
    all.out = all.dq = (struct tensor){0};
    all.query_documents = run->batch.whole_documents;
    TRY(gather(s, own->q, all.q.data));
    TRY(gather(s, own->dout, all.dout.data));
    TRY(gather(s, as_heads(own->lse), all.lse.data));
    TRY(gather(s, as_heads(own->delta), all.delta.data));
    for (int second = 0; second < 2; second++) {
        const struct attention p = span_keys(s, own, &all, second);

        TRY(run->kernels->attention_backward(run->stream, &p));
    }
    return OK;
}

status gather_backward(struct run *run, const struct share *s,
                       const struct attention *own, struct room room)
{
    TRY(queries_backward(run, s, own, room));
    return keys_backward(run, s, own, room);
}

int64_t gather_room(const struct share *s, const struct attention *own)
{
    const int64_t bytes = dtype_bytes(s->dtype);
    const int64_t real = dtype_bytes(dtype_real(s->dtype));
    const int64_t keys = 2 * (int64_t)own->kv_heads * own->head_width * bytes;
    const int64_t queries =
        2 * (int64_t)own->heads * (own->head_width * bytes + real);

    return whole_tokens(s) * (keys > queries ? keys : queries) +
           4 * ARENA_ALIGN;
}
