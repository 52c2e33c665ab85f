/* SPDX-License-Identifier: Apache-2.0 */
/* context.c - attention of sequences that ranks cut: heads for tokens among
 * neighbours, then whatever shares the keys with the rest.
 *
 * Source of the exchange: DeepSpeed-Ulysses, arXiv:2309.14509; of its use
 * inside a larger group: USP, arXiv:2405.07719. */
#include "nn/context.h"

#include <string.h>

#include "comm/comm.h"

/* The neighbours that exchange heads for tokens: their spans, side by side, are
 * zigzag spans of a sequence that is theirs alone. */
static struct share neighbours(const struct run *run)
{
    const struct program *p = run->program;
    struct group *group = run->groups[AXIS_CONTEXT];
    const int ranks = p->layout.method.exchange, rank = group->rank;

    return (struct share){
        .run = run, .group = group,
        .first = rank / ranks * ranks, .step = 1,
        .ranks = ranks, .rank = rank % ranks, .sequences = p->size.sequences,
        .span = p->size.length / 2, .length = p->size.length * ranks,
        .dtype = p->dtype};
}

/* Columns of the heads that rank i of the neighbours takes. */
static struct tensor heads_of(const struct share *s, struct tensor rows, int i)
{
    rows.shape[1] /= s->ranks;
    rows.data = (char *)rows.data +
                i * rows.shape[1] * rows.stride[1] * dtype_bytes(rows.dtype);
    return rows;
}

/* Own tokens with all heads <-> the neighbours' tokens with own heads. */
static status heads_exchange(const struct share *s, struct tensor local,
                             struct tensor inner, bool back)
{
    const int64_t row =
        inner.shape[1] * inner.shape[2] * dtype_bytes(inner.dtype);
    const struct comm_call call = run_exchange(s->run, s->group);
    const struct run_peers *peers = &s->run->peers;
    struct comm_block *some = back ? peers->receive : peers->send;
    struct comm_block *all = back ? peers->send : peers->receive;

    for (int i = 0; i < s->ranks; i++) {
        const struct tensor heads = heads_of(s, local, i);

        some[share_member(s, i)] = share_rows(&heads);
        all[share_member(s, i)] = share_spans(s, inner.data, row, i);
    }
    return comm_run(s->group, &call);
}

/* Room for what `local` becomes. */
static struct tensor inner_tensor(const struct share *s, struct room *room,
                                  struct tensor local)
{
    const int64_t rows = local.shape[0] * s->ranks;
    const int64_t heads = local.shape[1] / s->ranks, width = local.shape[2];

    const int64_t bytes = rows * heads * width * dtype_bytes(local.dtype);

    return tensor_3d(room_take(room, bytes), local.dtype, rows, heads, width);
}

static status heads_in(const struct share *s, struct room *room,
                       struct tensor local, struct tensor *inner)
{
    *inner = inner_tensor(s, room, local);
    return heads_exchange(s, local, *inner, false);
}

/* Documents of the neighbours' tokens; NULL: one a sequence. */
static const int32_t *inner_documents(const struct run *run,
                                      struct room *room)
{
    const struct share s = context_share(run);
    const int64_t bytes = s.sequences * 2 * s.span * (int64_t)sizeof(int32_t);
    const int32_t *whole = run->batch.whole_documents;

    if (whole == NULL || s.ranks == 1) return whole;
    int32_t *inner = run_list(run, room_take(room, bytes));

    for (int64_t i = 0; i < 2 * s.sequences; i++)
        memcpy(inner + i * s.span,
               whole + i / 2 * s.length + share_first(&s, s.rank, (int)(i % 2)),
               (size_t)s.span * sizeof *inner);
    return inner;
}

/* The leaves that cut a group of query heads, counted for the heads of one of
 * `ranks` ranks. A group that lies in one leaf is added in order. */
static int inner_leaves(const struct attention *own, int ranks)
{
    return own->kv_heads % own->leaves == 0 ? 1 : own->leaves / ranks;
}

/* The same attention with fewer heads of more tokens. lse stays here. */
static status inner_begin(struct run *run, const struct attention *own,
                          struct room *room, struct attention *inner)
{
    const struct share s = neighbours(run);

    *inner = *own;
    inner->heads /= s.ranks;
    inner->kv_heads /= s.ranks;
    inner->leaves = inner_leaves(own, s.ranks);
    inner->queries = inner->keys = own->queries * s.ranks;
    inner->query_documents = inner->key_documents =
        inner_documents(run, room);
    inner->drop.head += (int64_t)s.rank * inner->heads;
    inner->alibi.head += (int64_t)s.rank * inner->heads;
    if (own->peaks != NULL)
        inner->peaks = (char *)own->peaks + s.rank * inner->heads *
                                                dtype_bytes(own->lse.dtype);
    inner->lse = tensor_2d(own->lse.data, own->lse.dtype,
                           own->lse.shape[0] * s.ranks, inner->heads);
    TRY(heads_in(&s, room, own->q, &inner->q));
    TRY(heads_in(&s, room, own->k, &inner->k));
    return heads_in(&s, room, own->v, &inner->v);
}

/* ---- sharing keys ---- */

static status keys_forward(struct run *run, const struct attention *own,
                           struct room room)
{
    const struct share s = context_share(run);

    if (s.ranks == 1)
        return run->kernels->attention_forward(run->stream, own);
    if (s.striped) return stripe_forward(run, &s, own, room);
    return run->program->layout.method.ring ? ring_forward(run, &s, own, room)
                                      : gather_forward(run, &s, own, room);
}

static status keys_backward(struct run *run, const struct attention *own,
                            struct room room)
{
    const struct share s = context_share(run);

    if (s.ranks == 1)
        return run->kernels->attention_backward(run->stream, own);
    if (s.striped) return stripe_backward(run, &s, own, room);
    return run->program->layout.method.ring ? ring_backward(run, &s, own, room)
                                      : gather_backward(run, &s, own, room);
}

/* ---- the passes ---- */

status context_forward(struct run *run, const struct attention *call,
                       void *scratch)
{
    const struct share s = neighbours(run);
    struct room room = {scratch};
    struct attention inner;

    if (s.ranks == 1) return keys_forward(run, call, room);
    TRY(inner_begin(run, call, &room, &inner));
    inner.out = inner_tensor(&s, &room, call->out);
    TRY(keys_forward(run, &inner, room));
    return heads_exchange(&s, call->out, inner.out, true);
}

static status exchanged_backward(struct run *run, const struct attention *own,
                                 struct room room)
{
    const struct share s = neighbours(run);
    const struct tensor delta = own->delta;
    struct attention inner;
    struct tensor rows;

    TRY(inner_begin(run, own, &room, &inner));
    inner.out = (struct tensor){0};
    TRY(heads_in(&s, &room, own->dout, &inner.dout));
    TRY(heads_in(&s, &room,
                 tensor_3d(delta.data, delta.dtype, delta.shape[0],
                           delta.shape[1], 1), &rows));
    inner.delta = tensor_2d(rows.data, rows.dtype, rows.shape[0],
                            rows.shape[1]);
    inner.dq = inner_tensor(&s, &room, own->dq);
    inner.dk = inner_tensor(&s, &room, own->dk);
    inner.dv = inner_tensor(&s, &room, own->dv);
    TRY(keys_backward(run, &inner, room));
    TRY(heads_exchange(&s, own->dq, inner.dq, true));
    TRY(heads_exchange(&s, own->dk, inner.dk, true));
    return heads_exchange(&s, own->dv, inner.dv, true);
}

status context_backward(struct run *run, const struct attention *call,
                        void *scratch)
{
    const enum dtype real = dtype_real(call->q.dtype);
    struct room room = {scratch};
    struct attention own = *call;

    own.delta = tensor_2d(
        room_take(&room, own.q.shape[0] * own.heads * dtype_bytes(real)),
        real, own.q.shape[0], own.heads);
    TRY(run->kernels->attention_delta(run->stream, &own));
    if (run->program->layout.method.exchange == 1)
        return keys_backward(run, &own, room);
    return exchanged_backward(run, &own, room);
}

/* ---- what it takes ---- */

/* The share of a program, as a run finds it, without a group. */
static struct share planned_share(const struct program *p)
{
    const int ranks = p->layout.mesh.size[AXIS_CONTEXT];

    return (struct share){
        .ranks = ranks / p->layout.method.exchange,
        .rank = p->layout.place.at[AXIS_CONTEXT] / p->layout.method.exchange,
        .sequences = p->size.sequences,
        .span = p->size.length / 2 * p->layout.method.exchange,
        .length = program_sequence(p), .dtype = p->dtype};
}

/* Bytes that a token has: of queries, of keys; of a number for each head; of
 * the gradient of keys. */
struct token_bytes { int64_t q, k, numbers, dk; };

static struct token_bytes token_bytes(const struct share *s,
                                      const struct attention *heads)
{
    const int64_t bytes = dtype_bytes(s->dtype);
    const int64_t k = (int64_t)heads->kv_heads * heads->head_width;

    return (struct token_bytes){
        .q = (int64_t)heads->heads * heads->head_width * bytes,
        .k = k * bytes,
        .numbers = heads->heads * dtype_bytes(dtype_real(s->dtype)),
        .dk = k * dtype_bytes(heads->dk.dtype)};
}

size_t context_scratch(const struct program *program,
                       const struct attention *heads)
{
    const struct share s = planned_share(program);
    const struct token_bytes own = token_bytes(&s, heads);
    const int ranks = program->layout.method.exchange;
    struct attention inner = *heads;
    int64_t each = own.numbers, bytes = 12 * ARENA_ALIGN;

    inner.heads /= ranks;
    inner.kv_heads /= ranks;
    if (ranks > 1) each += 3 * own.q + 2 * own.k + 2 * own.dk + own.numbers;
    if (ranks > 1 && s.ranks > 1)
        bytes += s.sequences * 2 * s.span * (int64_t)sizeof(int32_t);
    if (program->layout.method.striped)
        bytes += stripe_room(&s, &inner);
    else if (s.ranks > 1)
        bytes += program->layout.method.ring ? ring_room(&s, &inner)
                                       : gather_room(&s, &inner);
    return (size_t)(bytes + program->size.tokens * each);
}

int64_t context_pairs(const struct program *program)
{
    const int64_t span = program->size.length / 2;

    const int64_t ranks = program->layout.mesh.size[AXIS_CONTEXT];

    if (ranks == 1)
        return program->size.length * (program->size.length + 1) / 2;
    if (program->layout.method.striped)
        return program->size.length *
                   (program->layout.place.at[AXIS_CONTEXT] + 1) +
               ranks * (program->size.length * (program->size.length - 1) / 2);
    return span * (program_sequence(program) + 1); /* the same on all ranks */
}

int64_t context_bytes(const struct program *program,
                      const struct attention *heads, bool backward)
{
    const struct share s = planned_share(program);
    const struct token_bytes own = token_bytes(&s, heads);
    const int64_t ranks = program->layout.method.exchange;
    const int64_t gathered =
        2 * own.k + (backward ? 2 * (own.q + own.numbers) : 0);
    const int64_t exchanged =
        backward ? 3 * own.q + 2 * own.k + 2 * own.dk + own.numbers
                 : 2 * own.q + 2 * own.k;

    /* A rank keeps one share of what it exchanges; what it gathers then has a
     * share of the heads and as many times the tokens. */
    return program->size.tokens *
           (exchanged * (ranks - 1) / ranks + (s.ranks - 1) * gathered);
}

int context_calls(const struct program *program, bool backward)
{
    const int ranks = planned_share(program).ranks;
    int calls = 0;

    if (program->layout.method.exchange > 1) calls += backward ? 8 : 4;
    if (program->layout.method.ring) return calls + ranks - 1;
    return calls + (ranks == 1 ? 0 : backward ? 6 : 2);
}
