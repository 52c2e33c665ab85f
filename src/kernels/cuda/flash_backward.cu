/* SPDX-License-Identifier: Apache-2.0 */
/* flash_backward.cu - gradients of attention on tensor cores: a block has
 * queries and goes over tiles of keys (dq), or has keys and goes over query
 * heads and tiles of queries (dk, dv: of wide heads in two passes, since
 * registers are few). Each makes weights again from statistics of the softmax;
 * nothing is added to memory. */
#include "kernels/cuda/flash_tile.h"

enum { TILE = 32 /* others; two tiles of two tensors fill the room */ };

/* A warp's 16 rows, q and dout or k and v, and where they stand. */
struct flash_own {
    struct flash_operand a, b;
    struct flash_warp seen;
    int64_t sequence;
    int head, first; /* the query head; position of the warp's first row */
};

/* Statistics of a query: the logarithm, to the base of 2, of its sum of
 * exponentials, and dout . out. */
struct flash_query { float log, delta; };

DEVICE struct flash_query query_get(const struct flash_call *call,
                                    const struct flash_own *own, int query)
{
    const struct attention *p = &call->of.of;
    const int64_t row = own->sequence * p->queries + query;
    struct flash_query out = {0, 0};

    if (query >= p->queries) return out;
    out.log = *flash_number(&p->lse, row, own->head) * FLASH_LOG2E;
    out.delta = *flash_number(&p->delta, row, own->head);
    return out;
}

/* q . k and dout . v become weight and gradient of the score. */
DEVICE void pair_turn(const struct flash_call *call,
                      const struct flash_own *own, int key,
                      const struct flash_query *query, float *weight,
                      float *gradient)
{
    float bend;
    const float score = flash_score(call, own->head, own->sequence, key,
                                    *weight, &bend);

    *weight = exp2z_f32(score - query->log);
    *gradient = *weight * (*gradient - query->delta) * bend *
                call->of.scale;
}

/* ---- tiles of the others, two at a time ---- */

struct flash_others {
    uint16_t *room;
    struct flash_rows a, b;
    int span;
};

DEVICE uint16_t *others_at(const struct flash_others *x, int tile, int second)
{
    return x->room + (tile % 2 * 2 + second) * TILE * (x->span + FLASH_PAD);
}

DEVICE void others_copy(const struct flash_others *x, int tile)
{
    rows_copy(others_at(x, tile, 0), x->span, TILE, &x->a, tile * TILE);
    rows_copy(others_at(x, tile, 1), x->span, TILE, &x->b, tile * TILE);
}

/* Tile `tile` is there, and the next one, if there is one, begins to come. */
DEVICE void others_await(const struct flash_others *x, int tile, int tiles)
{
    COPIES_WAIT(0);
    BARRIER; /* all is there, and the tile before is read */
    if (tile + 1 < tiles) others_copy(x, tile + 1);
    COPIES_CLOSE;
}

/* ---- dq ---- */

/* FLASH_STEP rows of the others, in memory of the block, and the position of
 * the first. */
struct flash_place {
    const uint16_t *others[2];
    int at;
};

DEVICE void queries_step(const struct flash_call *call,
                         const struct flash_own *own,
                         const struct flash_query query[2],
                         const struct flash_place *place, int span,
                         struct flash_sums *dq)
{
    const uint16_t *const *const others = place->others;
    const int at = place->at;
    const bool all = warp_sees_all(&own->seen, at, FLASH_STEP);
    struct flash_pairs s, ds;

    pairs_dots(&own->a, others[0], span, &s);
    pairs_dots(&own->b, others[1], span, &ds);
    EACH_PAIR {
        const int key = at + j * 8 + LANE % 4 * 2 + i % 2;

        if (all || is_seen(&own->seen, i / 2, key))
            pair_turn(call, own, key, &query[i / 2], &s.at[j][i],
                      &ds.at[j][i]);
        else
            ds.at[j][i] = 0;
    }
    sums_add(dq, &ds, others[0], span);
}

DEVICE void flash_queries(uint16_t *room, const struct flash_call *call,
                          int span)
{
    const struct attention *p = &call->of.of;
    const int64_t blocks = call->of.tiles, unit = BLOCK / blocks;
    const int first = (int)(blocks - 1 - BLOCK % blocks) * FLASH_ROWS;
    const int count = (int)p->queries;
    const int past = first + FLASH_ROWS < count ? first + FLASH_ROWS : count;
    const int tiles = (past + TILE - 1) / TILE;
    const int head = (int)(unit % p->heads);
    const int kv = head / (p->heads / p->kv_heads);
    const int64_t sequence = unit / p->heads, row = sequence * count;
    const struct flash_rows q = flash_rows_of(&p->q, row, count, head);
    const struct flash_rows dout = flash_rows_of(&p->dout, row, count, head);
    const struct flash_others x = {
        room, flash_rows_of(&p->k, row, count, kv),
        flash_rows_of(&p->v, row, count, kv), span};
    struct flash_own own = {.sequence = sequence, .head = head,
                            .first = first + WARP * 16};
    struct flash_query query[2];
    struct flash_sums dq;

    own.seen = warp_of(p, false, sequence, own.first);
    for (int i = 0; i < 2; i++)
        query[i] = query_get(call, &own, own.first + LANE / 4 + 8 * i);
    operand_take(room, span, &q, first, &own.a);
    operand_take(room, span, &dout, first, &own.b);
    sums_clear(&dq, span);
    int tile = seen_of(p, false, first).from / TILE;

    others_copy(&x, tile);
    COPIES_CLOSE;
    LOOPED for (; tile < tiles; tile++) {
        others_await(&x, tile, tiles);
        LOOPED for (int k = 0; k < TILE; k += FLASH_STEP) {
            const int at = tile * TILE + k, skip = k * (span + FLASH_PAD);
            const struct flash_place place = {
                {others_at(&x, tile, 0) + skip, others_at(&x, tile, 1) + skip},
                at};

            if (warp_sees(&own.seen, at, FLASH_STEP))
                queries_step(call, &own, query, &place, span, &dq);
        }
    }
    sums_store(&p->dq, span, row + own.first, own.seen.there, head, &dq);
}

/* ---- dk, dv ---- */

/* The gradients that a pass makes. */
struct flash_pass { int span; bool dk, dv; };

/* Rows of pairs are keys, columns queries. */
DEVICE void keys_step(const struct flash_call *call,
                      const struct flash_own *own,
                      const uint16_t *const others[2], int at,
                      struct flash_pass pass, struct flash_sums sums[2])
{
    const bool all = warp_sees_all(&own->seen, at, FLASH_STEP);
    struct flash_pairs s, ds = {{{0}}};

    pairs_dots(&own->a, others[0], pass.span, &s);
    if (pass.dk) pairs_dots(&own->b, others[1], pass.span, &ds);
    EACH_PAIR {
        const int other = at + j * 8 + LANE % 4 * 2 + i % 2;
        const struct flash_query query = query_get(call, own, other);

        if (all || is_seen(&own->seen, i / 2, other))
            pair_turn(call, own, own->first + LANE / 4 + i / 2 * 8, &query,
                      &s.at[j][i], &ds.at[j][i]);
        else
            s.at[j][i] = ds.at[j][i] = 0;
    }
    if (pass.dk) sums_add(&sums[0], &ds, others[0], pass.span);
    if (pass.dv) sums_add(&sums[1], &s, others[1], pass.span);
}

/* Gradients of one query head are added. */
DEVICE void keys_head(const struct flash_call *call,
                      const struct flash_own *own,
                      const struct flash_others *x, const int tiles[2],
                      struct flash_pass pass, struct flash_sums sums[2])
{
    BARRIER; /* the head before is read */
    others_copy(x, tiles[0]);
    COPIES_CLOSE;
    LOOPED for (int tile = tiles[0]; tile < tiles[1]; tile++) {
        others_await(x, tile, tiles[1]);
        LOOPED for (int k = 0; k < TILE; k += FLASH_STEP) {
            const int at = tile * TILE + k;
            const int skip = k * (x->span + FLASH_PAD);
            const uint16_t *const others[2] = {
                others_at(x, tile, 0) + skip, others_at(x, tile, 1) + skip};

            if (warp_sees(&own->seen, at, FLASH_STEP))
                keys_step(call, own, others, at, pass, sums);
        }
    }
}

DEVICE void flash_keys(uint16_t *room, const struct flash_call *call,
                       struct flash_pass pass)
{
    const int span = pass.span;
    const struct attention *p = &call->of.of;
    const int64_t blocks = call->of.tiles, unit = BLOCK / blocks;
    const int first = (int)(BLOCK % blocks) * FLASH_ROWS;
    const int count = (int)p->queries, group = p->heads / p->kv_heads;
    const int kv = (int)(unit % p->kv_heads); /* or a leaf's share of one */
    const int read = kv / (p->kv_heads / (int)p->k.shape[1]);
    const int end = first + FLASH_ROWS < count ? first + FLASH_ROWS : count;
    const int tiles[2] = {
        first / TILE, (seen_of(p, true, end - 1).past + TILE - 1) / TILE};
    const int64_t sequence = unit / p->kv_heads, row = sequence * count;
    const struct flash_rows k = flash_rows_of(&p->k, row, count, read);
    const struct flash_rows v = flash_rows_of(&p->v, row, count, read);
    struct flash_others x = {.room = room, .span = span};
    struct flash_own own = {.sequence = sequence, .first = first + WARP * 16};
    struct flash_sums sums[2];

    own.seen = warp_of(p, true, sequence, own.first);
    operand_take(room, span, &k, first, &own.a);
    if (pass.dk) operand_take(room, span, &v, first, &own.b);
    sums_clear(&sums[0], span);
    sums_clear(&sums[1], span);
    LOOPED for (own.head = kv * group; own.head < (kv + 1) * group;
                own.head++) {
        x.a = flash_rows_of(&p->q, row, count, own.head);
        x.b = flash_rows_of(&p->dout, row, count, own.head);
        keys_head(call, &own, &x, tiles, pass, sums);
    }
    if (pass.dk)
        sums_store(&p->dk, span, row + own.first, own.seen.there, kv,
                   &sums[0]);
    if (pass.dv)
        sums_store(&p->dv, span, row + own.first, own.seen.there, kv,
                   &sums[1]);
}

#define QUERIES_KERNEL(span)                                               \
    FLASH_SHARED(span);                                                    \
    CUDA_WIDE_KERNEL(flash_queries_##span)                                 \
    {                                                                      \
        SHARED(struct flash_shared_##span, s);                             \
                                                                           \
        flash_queries(s->rows, &p->call, span);                            \
    }
QUERIES_KERNEL(64)
QUERIES_KERNEL(96)
QUERIES_KERNEL(128)

#define KEYS_KERNEL(name, span, ...)                                       \
    CUDA_WIDE_KERNEL(name##_##span)                                        \
    {                                                                      \
        const struct flash_pass pass = {span, __VA_ARGS__};                \
        SHARED(struct flash_shared_##span, s);                             \
                                                                           \
        flash_keys(s->rows, &p->call, pass);                               \
    }
KEYS_KERNEL(flash_keys, 64, true, true)
KEYS_KERNEL(flash_keys, 96, true, false)
KEYS_KERNEL(flash_keys, 128, true, false)
KEYS_KERNEL(flash_values, 96, false, true)
KEYS_KERNEL(flash_values, 128, false, true)
