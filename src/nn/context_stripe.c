/* SPDX-License-Identifier: Apache-2.0 */
/* context_stripe.c - a ring of ranks with striped tokens: token i of a sequence
 * is on rank i modulo the ranks, so that every block of keys is about half
 * seen by every block of queries. Source: Brandon et al. 2023,
 * arXiv:2311.09431.
 *
 * Own query i sees keys up to i of a rank that is not behind it, and up to
 * i - 1 of the others: there the first query sees nothing and is left out.
 * Sums grow in the order of arrival, so this is outside the grid. */
#include "nn/payload.h"


struct stripe {
    struct run *run;
    const struct share *s;
    const struct attention *own;
    struct payload block[2];
    int32_t *documents;            /* of the block's tokens */
    struct attention_node node[2]; /* forward: the sum, what is added */
    struct tensor dq[2], dk[2], dv[2];
    bool begun;                    /* the sums hold something */
};

static struct tensor flat(struct tensor t)
{
    return tensor_1d(t.data, t.dtype, tensor_count(&t));
}

/* Zeros for the first token of every sequence. */
static status clear_first(const struct stripe *r, struct tensor t)
{
    const struct share *s = r->s;
    const int64_t bytes = dtype_bytes(t.dtype);
    const size_t row = (size_t)(t.shape[1] * t.shape[2] * bytes);

    for (int64_t i = 0; i < s->sequences; i++)
        TRY(device_fill(r->run->stream, (char *)t.data + i * 2 * s->span *
                                                            t.stride[0] * bytes,
                        0, row));
    return OK;
}

static struct tensor as_rows(struct tensor t)
{
    return tensor_3d(t.data, t.dtype, t.shape[0], t.shape[1], 1);
}

/* Without the first query of every sequence. */
static void leave_first(struct attention *p)
{
    struct tensor *rows[] = {&p->q, &p->out, &p->lse, &p->dq, &p->dout,
                             &p->delta, &p->denominator};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i]->data != NULL)
            *rows[i] = rows_from(*rows[i], 1, rows[i]->shape[0] - 1);
    if (p->query_documents) p->query_documents++;
    p->queries--;
}

/* A call whose positions are places in a rank's tokens. */
static struct attention stripe_call(const struct stripe *r)
{
    struct attention p = *r->own;

    p.queries = p.keys = p.query_stride = p.key_stride = 2 * r->s->span;
    p.first_query = p.first_key = 0;
    return p;
}

static status visit_forward(void *argument, const struct payload *b, int owner)
{
    struct stripe *r = argument;
    const int to = r->begun;
    struct attention p = stripe_call(r);

    payload_documents(r->run, r->s, owner, r->documents);
    p.k = b->k;
    p.v = b->v;
    p.key_documents = p.query_documents ? r->documents : NULL;
    p.out = r->node[to].values;
    p.lse = r->node[to].maximum;
    p.denominator = r->node[to].denominator;
    if (owner > r->s->rank) {
        TRY(clear_first(r, as_rows(p.denominator)));
        leave_first(&p);
    }
    if (p.queries > 0)
        TRY(r->run->kernels->attention_forward(r->run->stream, &p));
    r->begun = true;
    if (to == 0) return OK;
    return r->run->kernels->attention_merge(r->run->stream, &r->node[0],
                                            &r->node[1]);
}

status stripe_forward(struct run *run, const struct share *s,
                      const struct attention *own, struct room room)
{
    struct stripe r = {.run = run, .s = s, .own = own};
    const enum dtype dtype = dtype_real(own->q.dtype);

    TRY(payload_begin(run, r.block, &room, s, own, false));
    r.documents = run_list(
        run, room_take(&room, share_tokens(s) *
                                  (int64_t)sizeof *r.documents));
    for (int i = 0; i < 2; i++) {
        r.node[i].values =
            rows_take(&room, s, dtype, own->heads, own->head_width);
        r.node[i].maximum =
            rows_numbers(rows_take(&room, s, dtype, own->heads, 1));
        r.node[i].denominator =
            rows_numbers(rows_take(&room, s, dtype, own->heads, 1));
    }
    TRY(payload_travel(s, r.block, visit_forward, &r));
    return run->kernels->attention_finish(run->stream, own->out, own->lse,
                                          &r.node[0]);
}

/* dq of own queries from a block of keys. */
static status queries_backward(struct stripe *r, const struct payload *b,
                               int owner)
{
    struct attention p = stripe_call(r);

    p.k = b->k;
    p.v = b->v;
    p.key_documents = p.query_documents ? r->documents : NULL;
    p.dq = r->dq[r->begun];
    p.out = (struct tensor){0};
    p.half = ATTENTION_OF_QUERIES;
    if (owner > r->s->rank) {
        TRY(clear_first(r, p.dq));
        leave_first(&p);
    }
    if (p.queries == 0) return OK;
    return r->run->kernels->attention_backward(r->run->stream, &p);
}

/* dk and dv of own keys from a block of queries. */
static status keys_backward(struct stripe *r, const struct payload *b,
                            int owner)
{
    struct attention p = stripe_call(r);

    p.q = b->q;
    p.dout = b->dout;
    p.lse = rows_numbers(b->lse);
    p.delta = rows_numbers(b->delta);
    p.out = p.dq = (struct tensor){0};
    p.query_documents = p.key_documents ? r->documents : NULL;
    p.dk = r->dk[r->begun];
    p.dv = r->dv[r->begun];
    p.half = ATTENTION_OF_KEYS;
    if (owner < r->s->rank) leave_first(&p);
    if (p.queries > 0)
        return r->run->kernels->attention_backward(r->run->stream, &p);
    const size_t bytes = (size_t)tensor_bytes(&p.dk);

    TRY(device_fill(r->run->stream, p.dk.data, 0, bytes));
    return device_fill(r->run->stream, p.dv.data, 0, bytes);
}

static status visit_backward(void *argument, const struct payload *b, int owner)
{
    struct stripe *r = argument;
    struct tensor *sums[] = {r->dq, r->dk, r->dv};

    payload_documents(r->run, r->s, owner, r->documents);
    TRY(queries_backward(r, b, owner));
    TRY(keys_backward(r, b, owner));
    for (int i = 0; i < 3 && r->begun; i++)
        TRY(r->run->kernels->add(r->run->stream, flat(sums[i][0]),
                                 flat(sums[i][0]), flat(sums[i][1])));
    r->begun = true;
    return OK;
}

status stripe_backward(struct run *run, const struct share *s,
                       const struct attention *own, struct room room)
{
    struct stripe r = {.run = run, .s = s, .own = own};
    const enum dtype dtype = dtype_real(own->q.dtype);

    TRY(payload_begin(run, r.block, &room, s, own, true));
    r.documents = run_list(
        run, room_take(&room, share_tokens(s) *
                                  (int64_t)sizeof *r.documents));
    for (int i = 0; i < 2; i++) {
        r.dq[i] = rows_take(&room, s, dtype, own->heads, own->head_width);
        r.dk[i] = rows_take(&room, s, dtype, own->kv_heads, own->head_width);
        r.dv[i] = rows_take(&room, s, dtype, own->kv_heads, own->head_width);
    }
    TRY(payload_travel(s, r.block, visit_backward, &r));
    TRY(rows_round(run, own->dq, r.dq[0]));
    TRY(rows_round(run, own->dk, r.dk[0]));
    return rows_round(run, own->dv, r.dv[0]);
}

int64_t stripe_room(const struct share *s, const struct attention *own)
{
    const int64_t q = (int64_t)own->heads * own->head_width;
    const int64_t k = (int64_t)own->kv_heads * own->head_width;
    const int64_t backward =
        share_bytes(s, 4 * (k + q)) +
        share_real_bytes(s, 4 * own->heads + 2 * q + 4 * k);

    return share_tokens(s) * (backward + (int64_t)sizeof(int32_t)) +
           16 * ARENA_ALIGN;
}
