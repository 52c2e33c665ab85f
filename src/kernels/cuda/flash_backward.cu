/* SPDX-License-Identifier: Apache-2.0 */
/* flash_backward.cu - gradients of attention on tensor cores: a block has
 * queries and goes over tiles of keys (dq), or has keys and goes over query
 * heads and tiles of queries (dk, dv: of wide heads in two passes, since
 * registers are few). Each makes weights again from statistics of the softmax;
 * nothing is added to memory.
 *
 * Two warps, twins, have the same rows of a head wider than FLASH_NARROW, and
 * each half of their elements. So each has half of the sum that a product is,
 * and gives its twin those of 8 others, whose weights that one makes. */
#include "kernels/cuda/flash_tile.h"

/* Others of a tile; two tiles of two tensors fill the room. */
#define TILE(span) (FLASH_ROOM(span) / 4)

/* Numbers that a thread gives its twin, at its own place. */
struct flash_halves {
    float dots[2][4][BLOCK_THREADS];
    uint32_t weights[2][BLOCK_THREADS];
};

/* Memory of the block. */
struct flash_room {
    uint16_t *rows;
    struct flash_halves *halves; /* of wide heads */
};

/* A warp's 16 rows, q and dout or k and v, and where they stand. */
struct flash_own {
    struct flash_operand a, b;
    struct flash_warp seen;
    int64_t sequence;
    int head, first; /* the query head; position of the warp's first row */
    struct flash_window queries;
};

/* A warp has a part of the `elements` of a head of this class. */
DEVICE struct flash_part part_of(int span, int elements)
{
    const int warps = FLASH_PARTS(span), columns = elements / warps;
    const struct flash_part part = {FLASH_ROOM(span), WARP / warps * 16,
                                    WARP % warps * columns, columns};

    return part;
}

/* Statistics of a query: the logarithm, to the base of 2, of its sum of
 * exponentials, and dout . out. */
struct flash_query { float log, delta; };

DEVICE struct flash_query query_get(const struct flash_call *call,
                                    const struct flash_own *own, int query)
{
    const struct attention *p = &call->of.of;
    const struct flash_window *of = &own->queries;
    const int64_t row = of->row + query - of->begin;
    struct flash_query out = {0, 0};

    if (query < of->begin || query >= of->end) return out;
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

/* ---- twins ---- */

/* FLASH_STEP rows of the others, in memory of the block, and the position of
 * the first. The warp's elements of them begin there. */
struct flash_place {
    const struct flash_room *room;
    const uint16_t *others[2];
    int at;
};

/* A pass makes dk, in whose place stands dq in that of queries, dv, or both;
 * `value`: elements of v and dout. */
struct flash_pass { int span, value; bool dk, dv; };

#define TWIN (THREAD ^ WARP_THREADS)
#define IS_LATER (WARP % 2 == 1)

/* The 8 others that the twin has to do with; then its own come first. */
DEVICE void dots_give(struct flash_halves *halves, int of,
                      const struct flash_pairs *x)
{
    UNROLLED for (int i = 0; i < 4; i++)
        halves->dots[of][i][THREAD] = IS_LATER ? x->at[0][i] : x->at[1][i];
}

DEVICE void dots_take(const struct flash_halves *halves, int of,
                      struct flash_pairs *x)
{
    UNROLLED for (int i = 0; i < 4; i++)
        x->at[0][i] = (IS_LATER ? x->at[1][i] : x->at[0][i]) +
                      halves->dots[of][i][TWIN];
}

/* Products of whole rows. Both twins come here, whatever they see. */
DEVICE void dots_join(const struct flash_place *place, bool sees,
                      struct flash_pass pass, struct flash_pairs *s,
                      struct flash_pairs *ds)
{
    struct flash_halves *const halves = place->room->halves;

    if (FLASH_PARTS(pass.span) == 1) return;
    if (sees) dots_give(halves, 0, s);
    if (sees && pass.dk) dots_give(halves, 1, ds);
    BARRIER; /* the twin has given its halves */
    if (sees) dots_take(halves, 0, s);
    if (sees && pass.dk) dots_take(halves, 1, ds);
}

/* Weights of all FLASH_STEP others; the same. */
DEVICE void weights_join(const struct flash_place *place, bool sees, int span,
                         const struct flash_pairs *of, uint32_t weights[4])
{
    struct flash_halves *const halves = place->room->halves;

    if (sees) pairs_weights(of, 4 / FLASH_PARTS(span), weights);
    if (FLASH_PARTS(span) == 1) return;
    if (sees)
        UNROLLED for (int i = 0; i < 2; i++)
            halves->weights[i][THREAD] = weights[i];
    BARRIER; /* the twin has given its weights */
    if (!sees) return;
    UNROLLED for (int i = 0; i < 2; i++) {
        const uint32_t own = weights[i], other = halves->weights[i][TWIN];

        weights[i] = IS_LATER ? other : own;
        weights[2 + i] = IS_LATER ? own : other;
    }
}

/* Pairs that a thread makes weights of, and the first's place among the
 * others. */
#define EACH_OWN_PAIR(span)                                                \
    UNROLLED for (int j = 0; j < 2 / FLASH_PARTS(span); j++)               \
        UNROLLED for (int i = 0; i < 4; i++)

DEVICE int first_own(int span)
{
    return LANE % 4 * 2 + (FLASH_PARTS(span) > 1 && IS_LATER ? 8 : 0);
}

/* ---- tiles of the others, two at a time ---- */

struct flash_others {
    const struct flash_room *room;
    struct flash_rows a, b;
    int span, value; /* elements of a, b */
};

DEVICE uint16_t *others_at(const struct flash_others *x, int tile, int second)
{
    return x->room->rows +
           (tile % 2 * 2 + second) * TILE(x->span) * (x->span + FLASH_PAD);
}

DEVICE void others_copy(const struct flash_others *x, int tile)
{
    const int count = TILE(x->span);

    rows_copy(others_at(x, tile, 0), x->span, count, &x->a, tile * count);
    rows_copy(others_at(x, tile, 1), x->value, count, &x->b, tile * count);
}

/* Tile `tile` is there, and the next one, if there is one, begins to come. */
DEVICE void others_await(const struct flash_others *x, int tile, int tiles)
{
    COPIES_WAIT(0);
    BARRIER; /* all is there, and the tile before is read */
    if (tile + 1 < tiles) others_copy(x, tile + 1);
    COPIES_CLOSE;
}

DEVICE struct flash_place place_of(const struct flash_others *x, int tile,
                                   int step)
{
    const int a = step * (x->span + FLASH_PAD) + part_of(x->span, x->span).from;
    const int b =
        step * (x->value + FLASH_PAD) + part_of(x->span, x->value).from;
    const struct flash_place place = {
        x->room, {others_at(x, tile, 0) + a, others_at(x, tile, 1) + b},
        tile * TILE(x->span) + step};

    return place;
}

/* Whether the warp has to come to the place: with a twin, always. */
DEVICE bool is_due(const struct flash_place *place,
                   const struct flash_own *own, int span)
{
    return FLASH_PARTS(span) > 1 ||
           warp_sees(&own->seen, place->at, FLASH_STEP);
}

/* ---- dq ---- */

DEVICE void queries_step(const struct flash_call *call,
                         const struct flash_own *own,
                         const struct flash_query query[2],
                         const struct flash_place *place,
                         struct flash_pass pass, struct flash_sums *dq)
{
    const int at = place->at, span = pass.span;
    const int columns = part_of(span, span).columns;
    const bool sees = warp_sees(&own->seen, at, FLASH_STEP);
    const bool all = warp_sees_all(&own->seen, at, FLASH_STEP);
    struct flash_pairs s, ds;
    uint32_t weights[4];

    if (sees) {
        pairs_dots(&own->a, place->others[0], span, columns, &s);
        pairs_dots(&own->b, place->others[1], pass.value,
                   part_of(span, pass.value).columns, &ds);
    }
    dots_join(place, sees, pass, &s, &ds);
    if (sees) EACH_OWN_PAIR(span) {
        const int key = at + first_own(span) + j * 8 + i % 2;

        if (all || is_seen(&own->seen, i / 2, key))
            pair_turn(call, own, key, &query[i / 2], &s.at[j][i],
                      &ds.at[j][i]);
        else
            ds.at[j][i] = 0;
    }
    weights_join(place, sees, span, &ds, weights);
    if (sees) sums_add(dq, weights, place->others[0], span, columns);
}

DEVICE void flash_queries(const struct flash_room *room,
                          const struct flash_call *call,
                          struct flash_pass pass)
{
    const int span = pass.span;
    const struct attention *p = &call->of.of;
    const int64_t blocks = call->of.tiles, unit = BLOCK / blocks;
    const int64_t sequence = unit / p->heads;
    const struct flash_window queries = window_of(p, false, sequence);
    const struct flash_window keys = window_of(p, true, sequence);
    const int rows = FLASH_ROOM(span);
    const int first = block_first(&queries, blocks - 1 - BLOCK % blocks, rows);
    const int past =
        seen_of(p, false, block_end(&queries, first, rows) - 1).past;
    const int tiles = (past + TILE(span) - 1) / TILE(span);
    const int head = (int)(unit % p->heads);
    const int kv = head / (p->heads / p->kv_heads);
    const struct flash_rows q = flash_rows_of(&p->q, &queries, head);
    const struct flash_rows dout = flash_rows_of(&p->dout, &queries, head);
    const struct flash_others x = {room, flash_rows_of(&p->k, &keys, kv),
                                   flash_rows_of(&p->v, &keys, kv), span,
                                   pass.value};
    const struct flash_part part = part_of(span, span);
    struct flash_own own = {.sequence = sequence,
                            .head = head, .queries = queries};
    struct flash_query query[2];
    struct flash_sums dq;

    own.first = first + part.row;
    own.seen = warp_of(p, false, sequence, own.first);
    for (int i = 0; i < 2; i++)
        query[i] = query_get(call, &own, own.first + LANE / 4 + 8 * i);
    operand_take(room->rows, span, &q, first, part, &own.a);
    operand_take(room->rows, span, &dout, first, part_of(span, pass.value),
                 &own.b);
    sums_clear(&dq, part.columns);
    int tile = seen_of(p, false, block_begin(&queries, first)).from /
               TILE(span);

    if (tile < tiles) others_copy(&x, tile);
    COPIES_CLOSE;
    LOOPED for (; tile < tiles; tile++) {
        others_await(&x, tile, tiles);
        LOOPED for (int k = 0; k < TILE(span); k += FLASH_STEP) {
            const struct flash_place place = place_of(&x, tile, k);

            if (is_due(&place, &own, span))
                queries_step(call, &own, query, &place, pass, &dq);
        }
    }
    sums_store(&p->dq, part, queries.row + own.first - queries.begin,
               own.seen.there, head, &dq);
}

/* ---- dk, dv ---- */

/* Rows of pairs are keys, columns queries. */
DEVICE void keys_step(const struct flash_call *call,
                      const struct flash_own *own,
                      const struct flash_place *place,
                      struct flash_pass pass, struct flash_sums sums[2])
{
    const int at = place->at, span = pass.span;
    const int columns = part_of(span, span).columns;
    const int values = part_of(span, pass.value).columns;
    const bool sees = warp_sees(&own->seen, at, FLASH_STEP);
    const bool all = warp_sees_all(&own->seen, at, FLASH_STEP);
    struct flash_pairs s, ds = {{{0}}};
    uint32_t weights[4];

    if (sees) {
        pairs_dots(&own->a, place->others[0], span, columns, &s);
        if (pass.dk)
            pairs_dots(&own->b, place->others[1], pass.value, values, &ds);
    }
    dots_join(place, sees, pass, &s, &ds);
    if (sees) EACH_OWN_PAIR(span) {
        const int other = at + first_own(span) + j * 8 + i % 2;
        const struct flash_query query = query_get(call, own, other);

        if (all || is_seen(&own->seen, i / 2, other))
            pair_turn(call, own, own->first + LANE / 4 + i / 2 * 8, &query,
                      &s.at[j][i], &ds.at[j][i]);
        else
            s.at[j][i] = ds.at[j][i] = 0;
    }
    if (pass.dk) {
        weights_join(place, sees, span, &ds, weights);
        if (sees) sums_add(&sums[0], weights, place->others[0], span, columns);
    }
    if (pass.dv) {
        weights_join(place, sees, span, &s, weights);
        if (sees)
            sums_add(&sums[1], weights, place->others[1], pass.value, values);
    }
}

/* Gradients of one query head are added. */
DEVICE void keys_head(const struct flash_call *call,
                      const struct flash_own *own,
                      const struct flash_others *x, const int tiles[2],
                      struct flash_pass pass, struct flash_sums sums[2])
{
    BARRIER; /* the head before is read */
    if (tiles[0] < tiles[1]) others_copy(x, tiles[0]);
    COPIES_CLOSE;
    LOOPED for (int tile = tiles[0]; tile < tiles[1]; tile++) {
        others_await(x, tile, tiles[1]);
        LOOPED for (int k = 0; k < TILE(pass.span); k += FLASH_STEP) {
            const struct flash_place place = place_of(x, tile, k);

            if (is_due(&place, own, pass.span))
                keys_step(call, own, &place, pass, sums);
        }
    }
}

DEVICE void flash_keys(const struct flash_room *room,
                       const struct flash_call *call, struct flash_pass pass)
{
    const int span = pass.span, rows = FLASH_ROOM(span);
    const struct attention *p = &call->of.of;
    const int64_t blocks = call->of.tiles, unit = BLOCK / blocks;
    const int64_t sequence = unit / p->kv_heads;
    const struct flash_window queries = window_of(p, false, sequence);
    const struct flash_window keys = window_of(p, true, sequence);
    const int first = block_first(&keys, BLOCK % blocks, rows);
    const int end = block_end(&keys, first, rows);
    const int group = p->heads / p->kv_heads;
    const int kv = (int)(unit % p->kv_heads); /* or a leaf's share of one */
    const int read = kv / (p->kv_heads / (int)p->k.shape[1]);
    const int tiles[2] = {
        seen_of(p, true, block_begin(&keys, first)).from / TILE(span),
        (seen_of(p, true, end - 1).past + TILE(span) - 1) / TILE(span)};
    const int64_t row = keys.row - keys.begin;
    const struct flash_rows k = flash_rows_of(&p->k, &keys, read);
    const struct flash_rows v = flash_rows_of(&p->v, &keys, read);
    struct flash_others x = {.room = room, .span = span, .value = pass.value};
    const struct flash_part part = part_of(span, span);
    const struct flash_part values = part_of(span, pass.value);
    struct flash_own own = {.sequence = sequence,
                            .queries = queries};
    struct flash_sums sums[2];

    own.first = first + part.row;
    own.seen = warp_of(p, true, sequence, own.first);
    operand_take(room->rows, span, &k, first, part, &own.a);
    if (pass.dk) operand_take(room->rows, span, &v, first, values, &own.b);
    sums_clear(&sums[0], part.columns);
    sums_clear(&sums[1], values.columns);
    LOOPED for (own.head = kv * group; own.head < (kv + 1) * group;
                own.head++) {
        x.a = flash_rows_of(&p->q, &queries, own.head);
        x.b = flash_rows_of(&p->dout, &queries, own.head);
        keys_head(call, &own, &x, tiles, pass, sums);
    }
    if (pass.dk)
        sums_store(&p->dk, part, row + own.first, own.seen.there, kv,
                   &sums[0]);
    if (pass.dv)
        sums_store(&p->dv, values, row + own.first, own.seen.there, kv,
                   &sums[1]);
    if (pass.dv && pass.value < span && values.from == 0)
        rest_clear(&p->dv, pass.value, row + own.first, own.seen.there, kv);
}

#define NARROW_ROOM(span)                                                  \
    SHARED(struct flash_shared_##span, s);                                 \
    const struct flash_room room = {s->rows, NULL}
#define WIDE_ROOM(span)                                                    \
    SHARED(struct flash_wide_##span, s);                                   \
    const struct flash_room room = {s->of.rows, &s->halves}
#define WIDE_SHARED(span)                                                  \
    struct flash_wide_##span {                                             \
        struct flash_shared_##span of;                                     \
        struct flash_halves halves;                                        \
    }
WIDE_SHARED(192);
WIDE_SHARED(256);

#define PASS_KERNEL(pass_of, name, ROOM, span, ...)                        \
    CUDA_WIDE_KERNEL(name)                                                 \
    {                                                                      \
        const struct flash_pass pass = {span, __VA_ARGS__};                \
        ROOM(span);                                                        \
                                                                           \
        pass_of(&room, &p->call, pass);                                    \
    }
/* Classes wider than the first: name, memory, span, elements of values. */
#define WIDER_CLASSES(KERNEL)                                              \
    KERNEL(96, NARROW_ROOM, 96, 96)                                        \
    KERNEL(128, NARROW_ROOM, 128, 128)                                     \
    KERNEL(192_128, WIDE_ROOM, 192, 128)                                   \
    KERNEL(192, WIDE_ROOM, 192, 192)                                       \
    KERNEL(256, WIDE_ROOM, 256, 256)
#define QUERIES_KERNEL(name, ...)                                          \
    PASS_KERNEL(flash_queries, flash_queries_##name, __VA_ARGS__, true, false)
#define KEYS_KERNEL(name, ...)                                             \
    PASS_KERNEL(flash_keys, flash_keys_##name, __VA_ARGS__, true, false)
#define VALUES_KERNEL(name, ...)                                           \
    PASS_KERNEL(flash_keys, flash_values_##name, __VA_ARGS__, false, true)
QUERIES_KERNEL(64, NARROW_ROOM, 64, 64)
WIDER_CLASSES(QUERIES_KERNEL)
PASS_KERNEL(flash_keys, flash_keys_64, NARROW_ROOM, 64, 64, true, true)
WIDER_CLASSES(KEYS_KERNEL)
WIDER_CLASSES(VALUES_KERNEL)
