/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - attention of sequences that ranks cut: all ranks get all keys and
 * values, each computes its own queries.
 *
 * Backward needs no sums over ranks: dq of own queries comes from all keys, dk
 * and dv of own keys come from all queries, with what the forward pass knows of
 * them. Each gradient is then the whole sum, in the order that one rank would
 * have. */
#include "nn/context.h"

#include "comm/comm.h"

/* How the ranks of a group cut sequences. */
struct share {
    struct group *group;
    int64_t sequences, span, length; /* tokens: of a span, of a sequence */
    int64_t element;                 /* bytes */
};

static struct share share_of(const struct run *run)
{
    const struct program *p = run->program;

    return (struct share){
        .group = run->context, .sequences = p->sequences,
        .span = p->length / 2, .length = program_sequence(p),
        .element = dtype_bytes(p->dtype)};
}

/* First position of a rank's first or second span. */
static int64_t span_first(const struct share *s, int rank, int second)
{
    return (second ? 2 * s->group->size - 1 - rank : rank) * s->span;
}

/* ---- exchanges ---- */

/* Rows of a [tokens, heads, width] view as they lie. */
static struct comm_block local_block(const struct share *s,
                                     const struct tensor *t)
{
    return (struct comm_block){
        .data = t->data, .bytes = t->shape[1] * t->shape[2] * s->element,
        .pieces = t->shape[0], .stride = t->stride[0] * s->element};
}

/* A rank's tokens inside whole sequences with dense rows. */
static struct comm_block spans_block(const struct share *s, void *whole,
                                     int64_t row, int rank)
{
    const int64_t first = span_first(s, rank, 0);

    return (struct comm_block){
        .data = (char *)whole + first * row, .bytes = s->span * row,
        .pieces = 2, .stride = (span_first(s, rank, 1) - first) * row,
        .planes = s->sequences, .plane_stride = s->length * row};
}

/* whole [sequences * length, heads, width] = the rows of all ranks. */
static status gather(const struct share *s, struct tensor local, void *whole)
{
    const int64_t row = local.shape[1] * local.shape[2] * s->element;
    struct comm_block send[LEAVES_MAX], receive[LEAVES_MAX];
    const struct comm_call call = {.kind = COMM_EXCHANGE, .send = send,
                                   .receive = receive};

    for (int i = 0; i < s->group->size; i++) {
        send[i] = local_block(s, &local);
        receive[i] = spans_block(s, whole, row, i);
    }
    return comm_run(s->group, &call);
}

/* ---- views ---- */

static struct tensor dense(const struct share *s, void *data, enum dtype dtype,
                           int64_t heads, int64_t width)
{
    return tensor_3d(data, dtype, s->sequences * s->length, heads, width);
}

static void *after(const struct tensor *t)
{
    return (char *)t->data + tensor_count(t) * dtype_bytes(t->dtype);
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

/* Of queries: from row `first` of every sequence on. */
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

/* k and v side by side, as they are in the fused slot. */
static struct tensor both(const struct attention *p)
{
    struct tensor view = p->k;

    CHECK((char *)p->v.data ==
          (char *)p->k.data + p->kv_heads * p->head_width *
                                  dtype_bytes(p->k.dtype));
    view.shape[1] = 2 * (int64_t)p->kv_heads;
    return view;
}

/* ---- gathered keys and values ---- */

/* The call for one span of this rank's queries, with all keys in `whole`. */
static struct attention span_queries(const struct share *s, const struct run *run,
                                     const struct attention *own, void *whole,
                                     int second)
{
    const int64_t heads = own->kv_heads, width = own->head_width;
    struct attention p = *own;

    queries_from(&p, second * s->span);
    p.queries = s->span;
    p.query_stride = 2 * s->span;
    p.first_query = span_first(s, s->group->rank, second);
    p.k = p.v = dense(s, whole, own->k.dtype, 2 * heads, width);
    p.k.shape[1] = p.v.shape[1] = heads;
    p.v.data = (char *)whole + heads * width * s->element;
    p.keys = p.first_query + s->span;
    p.key_stride = s->length;
    p.key_documents = run->batch.whole_documents;
    p.half = ATTENTION_OF_QUERIES;
    return p;
}

/* The call for one span of this rank's keys, with all queries in `all`. */
static struct attention span_keys(const struct share *s,
                                  const struct attention *own,
                                  const struct attention *all, int second)
{
    const int64_t first = span_first(s, s->group->rank, second);
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

status context_forward(struct run *run, const struct attention *call)
{
    const struct share s = share_of(run);

    TRY(gather(&s, both(call), run->scratch));
    for (int second = 0; second < 2; second++) {
        const struct attention p =
            span_queries(&s, run, call, run->scratch, second);

        TRY(run->kernels->attention_forward(run->stream, &p));
    }
    return OK;
}

static status queries_backward(struct run *run, const struct share *s,
                               const struct attention *own)
{
    void *whole = after(&own->delta);

    TRY(gather(s, both(own), whole));
    for (int second = 0; second < 2; second++) {
        const struct attention p = span_queries(s, run, own, whole, second);

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
                            const struct attention *own)
{
    const int64_t heads = own->heads, width = own->head_width;
    const enum dtype dtype = own->q.dtype;
    struct attention all = *own;

    all.q = dense(s, after(&own->delta), dtype, heads, width);
    all.dout = dense(s, after(&all.q), dtype, heads, width);
    all.lse = tensor_2d(after(&all.dout), dtype, all.q.shape[0], heads);
    all.delta = tensor_2d(after(&all.lse), dtype, all.q.shape[0], heads);
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

status context_backward(struct run *run, const struct attention *call)
{
    const struct share s = share_of(run);
    struct attention own = *call;

    own.delta = tensor_2d(run->scratch, own.q.dtype, own.q.shape[0],
                          own.heads);
    TRY(run->kernels->attention_delta(run->stream, &own));
    TRY(queries_backward(run, &s, &own));
    return keys_backward(run, &s, &own);
}

/* ---- what it takes ---- */

size_t context_scratch(const struct program *program,
                       const struct attention *heads)
{
    const int64_t whole = program->sequences * program_sequence(program);
    const int64_t keys = 2 * (int64_t)heads->kv_heads * heads->head_width;
    const int64_t queries = 2 * (int64_t)heads->heads * (heads->head_width + 1);

    return (size_t)(program->tokens * heads->heads +
                    whole * (keys > queries ? keys : queries)) *
           (size_t)dtype_bytes(program->dtype);
}

int64_t context_pairs(const struct program *program)
{
    const int64_t span = program->length / 2;

    if (program->mesh.size[AXIS_CONTEXT] == 1)
        return program->length * (program->length + 1) / 2;
    return span * (program_sequence(program) + 1); /* the same on all ranks */
}

int64_t context_bytes(const struct program *program,
                      const struct attention *heads, bool backward)
{
    const int64_t others = program->mesh.size[AXIS_CONTEXT] - 1;
    const int64_t keys = 2 * (int64_t)heads->kv_heads * heads->head_width;
    const int64_t queries = 2 * (int64_t)heads->heads * (heads->head_width + 1);

    return others * program->tokens * (keys + (backward ? queries : 0)) *
           dtype_bytes(program->dtype);
}
