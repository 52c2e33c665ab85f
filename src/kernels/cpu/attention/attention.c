/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the fast attention, forward.
 *
 * A block is QUERIES queries of one head of one sequence. Its queries are
 * transposed once; then, for each granule of keys: scores [keys, queries],
 * their weights, and weighted values, the two products on rows of keys and
 * values as they lie in memory, or packed for the processor's tiles. Partial
 * results wait on a stack that carries like a binary counter over granule
 * numbers, row by row where a query sees nothing of a granule (denominator 0).
 *
 * Blocks are shared among threads by what they cost, which grows with the
 * position. */
#include <math.h>
#include "kernels/alibi.h"
#include "kernels/cpu/attention/attention_drop.h"
#include "kernels/cpu/attention/attention_panels.h"

/* Partial results of a block of queries over some granules. */
struct node {
    float *values;      /* [QUERIES, padded] */
    float *maximum;     /* [QUERIES] */
    float *denominator; /* [QUERIES]; 0: no key seen */
};

struct forward {
    const struct attention *p;
    int width, padded, rows; /* rows: queries in the block */
    float scale, slope;      /* slope: of the head, with linear biases */
    int64_t sequence, row;   /* of the block's first query */
    int64_t position;        /* of it */
    int64_t key_end;         /* of positions */
    int head, kv;
    float *q;                /* [width, QUERIES] */
    float *copy;             /* [QUERIES, padded] */
    float *scores;           /* [G, QUERIES] */
    int32_t documents[QUERIES]; /* of the queries */
    struct node nodes[ATTENTION_NODES];
    /* Granules of keys and values that had to be copied, or packed: [2, G,
     * padded] each; [packed_first, packed_end) of the unit are there */
    float *packed;
    int64_t packed_room, packed_first, packed_end, packed_unit;
    /* The granule in work. */
    struct rows keys, values;
    struct ahead ahead;
    const struct attention_products *products;
};

static void forward_init(struct forward *f, const struct attention *p,
                         float *scratch)
{
    f->p = p;
    f->width = p->head_width;
    f->padded = attention_padded(p->head_width);
    f->scale = (float)p->scale;
    f->key_end = p->first_key + p->keys;
    f->q = scratch;
    f->copy = f->q + QUERIES * f->padded;
    f->scores = f->copy + QUERIES * f->padded;
    scratch = f->scores + G * QUERIES;
    for (int i = 0; i < ATTENTION_NODES; i++) {
        f->nodes[i].values = scratch;
        f->nodes[i].maximum = scratch + QUERIES * f->padded;
        f->nodes[i].denominator = f->nodes[i].maximum + QUERIES;
        scratch = f->nodes[i].denominator + QUERIES;
    }
    f->packed = scratch;
    f->packed_room = ATTENTION_PACKED_FLOATS / (2 * G * f->padded);
    f->packed_unit = -1;
    f->ahead.tile_rows = 12;
    f->products = CPU(attention_products)(p);
}

/* Generation reads a value once: a copy would cost more than it saves. */
static bool read_once(const struct attention *p, int padded)
{
    return p->queries == 1 && p->heads == p->kv_heads &&
           p->head_width == padded;
}

/* The part's keys, and values, packed in the second half of `copy` [2, G,
 * padded], by way of the first; no rows: they are there. */
static void granule_packed(struct forward *f, struct attention_part *part,
                           float *copy)
{
    float *to = copy + G * f->padded;
    uint32_t *panels = (void *)to, *strips = panels + G / 2 * f->padded;
    struct rows from;

    f->keys = (struct rows){.x = to, .panels = panels};
    f->values = (struct rows){.x = to, .strips = strips};
    if (part->count == 0) return;
    from = rows_find(part, copy);
    rows_pack_left(f->products, &from, part->count, f->width, panels);
    part->of = &f->p->v;
    from = rows_find(part, copy);
    rows_pack_right(f->products, &from, part->count, f->width, strips);
}

/* Finds rows of keys and values of the granule at position `first`. Copies are
 * kept for the other blocks of the sequence and head if all fit. */
static void granule_find(struct forward *f, int64_t first)
{
    const struct attention *p = f->p;
    const int64_t unit = f->sequence * p->kv_heads + f->kv;
    const int64_t index = (first - p->first_key) / G;
    const bool fits = p->keys <= f->packed_room * G;
    const int64_t left = f->key_end - first;
    const int64_t row =
        attention_key_first(p, f->sequence) + first - p->first_key;
    float *copy = f->packed + (fits ? index * 2 * G * f->padded : 0);
    struct attention_part part = {&p->k, row, f->kv, left < G ? (int)left : G,
                                  false};

    if (unit != f->packed_unit || index < f->packed_first ||
        index > f->packed_end)
        f->packed_first = f->packed_end = index;
    f->packed_unit = unit;
    if (fits && index < f->packed_end) part.count = 0; /* it is there */
    if (f->products->panels_pack) {
        granule_packed(f, &part, copy);
    } else {
        f->keys = rows_find(&part, copy);
        part.of = &p->v;
        part.vectors = !read_once(p, f->padded);
        f->values = rows_find(&part, copy + G * f->padded);
    }
    if (fits && index == f->packed_end) f->packed_end++;
}

/* Products of `count` keys with the block's queries, of which query i sees the
 * keys up to seen + i. Columns of LANES queries (packed: of 32) that see
 * nothing of so many rows are left out. */
static void scores_make(struct forward *f, int count, int seen)
{
    const int columns = (f->rows + LANES - 1) / LANES * LANES;
    const int step = f->keys.panels ? STRIP_COLUMNS : LANES;
    struct chains x = {.length = f->width, .lag = CHAINS_WHOLE,
                       .b_step = QUERIES, .c_row = QUERIES,
                       .ahead = &f->ahead};

    for (int i = 0, from = 0; i < columns && from < count; i += step) {
        const int last = (seen + i + 2 * step - 1) / step * step;
        const int to = last < count ? last : count;

        if (to <= from) continue;
        x.rows = to - from;
        x.columns = columns - i;
        rows_left(&x, &f->keys, from);
        x.b = f->q + i;
        x.c = f->scores + from * QUERIES + i;
        f->products->run(&x);
        from = to;
    }
}

/* LANES adjacent queries against the keys of a granule. */
struct column {
    float *x;                 /* [count, QUERIES] */
    int count, seen;          /* query i sees the keys up to seen + i */
    const int32_t *documents; /* of the keys; NULL: there are none */
    const int32_t *own;       /* of the queries */
    const float *biases;      /* of the keys; NULL: none */
    float scale;
    double cap;               /* 0: none */
    const int32_t *lowest;    /* query i sees no key before lowest[i]; NULL:
                               * it does */
    float *maximum, *denominator; /* [LANES], set */
};

/* Products become those with linear biases. */
static void column_lean(const struct column *c)
{
    for (int j = 0; j < c->count; j++) {
        const float bias = c->biases[j];
        float *x = c->x + j * QUERIES;

        SIMD for (int i = 0; i < LANES; i++) x[i] = x[i] + bias;
    }
}

/* Scores become what a soft cap makes of them. */
static void column_cap(const struct column *c)
{
    const float cap = (float)c->cap, inverse = (float)(1 / c->cap);
    const float scale = c->scale;

    for (int j = 0; j < c->count; j++) {
        float *x = c->x + j * QUERIES;

        SIMD for (int i = 0; i < LANES; i++)
            x[i] = cap * tanh_f32(x[i] * scale * inverse);
    }
}

/* Keys before the window or attention chunk of a query. */
static void column_window(const struct column *c, int32_t *any)
{
    const int32_t *lowest = c->lowest;

    for (int j = 0; j < c->count && j < lowest[LANES - 1]; j++) {
        float *x = c->x + j * QUERIES;

        SIMD for (int i = 0; i < LANES; i++)
            x[i] = j >= lowest[i] ? x[i] : -(float)INFINITY;
    }
    SIMD for (int i = 0; i < LANES; i++)
        any[i] = any[i] && lowest[i] < c->count;
}

/* Scores that are not seen become -inf. any[i]: whether query i sees a key. */
static void column_mask(const struct column *c, int32_t *any)
{
    for (int j = c->seen + 1 > 0 ? c->seen + 1 : 0; j < c->count; j++) {
        float *x = c->x + j * QUERIES;
        const int hidden = j - c->seen; /* so many queries do not see it */

        SIMD for (int i = 0; i < LANES; i++)
            x[i] = i < hidden ? -(float)INFINITY : x[i];
    }
    SIMD for (int i = 0; i < LANES; i++)
        any[i] = c->documents == NULL && c->seen + i >= 0;
    for (int j = 0; c->documents && j < c->count; j++) {
        float *x = c->x + j * QUERIES;

        SIMD for (int i = 0; i < LANES; i++) {
            const bool same = c->documents[j] == c->own[i];

            x[i] = same ? x[i] : -(float)INFINITY;
            any[i] |= same && j <= c->seen + i &&
                      (c->lowest == NULL || j >= c->lowest[i]);
        }
    }
    if (c->lowest != NULL) column_window(c, any);
}

/* The largest product of each query; -inf if it sees no key. A maximum is
 * exact, so the order does not matter. */
static void column_maximum(const struct column *c, float *out)
{
    const float *x = c->x;
    float most[LANES];
    int j = 0;

    for (int i = 0; i < LANES; i++) most[i] = -(float)INFINITY;
    for (; j + 4 <= c->count; j += 4, x += 4 * QUERIES) {
        SIMD for (int i = 0; i < LANES; i++) {
            float a = x[i], b = x[2 * QUERIES + i];

            a = a > x[QUERIES + i] ? a : x[QUERIES + i];
            b = b > x[3 * QUERIES + i] ? b : x[3 * QUERIES + i];
            a = a > b ? a : b;
            most[i] = most[i] > a ? most[i] : a;
        }
    }
    for (; j < c->count; j++, x += QUERIES)
        SIMD for (int i = 0; i < LANES; i++)
            most[i] = most[i] > x[i] ? most[i] : x[i];
    memcpy(out, most, sizeof most);
}

/* Products become weights, with their sums. The maximum of products times the
 * scale is that of scores, since rounding keeps the order. */
static void column_weights(const struct column *c)
{
    float sums[LANES][LANES] = {{0}}, m[LANES];
    const float scale = c->cap > 0 ? 1 : c->scale;
    int32_t any[LANES];

    if (c->biases != NULL) column_lean(c);
    if (c->cap > 0) column_cap(c);
    column_mask(c, any);
    column_maximum(c, m);
    SIMD for (int i = 0; i < LANES; i++) m[i] = any[i] ? m[i] * scale : 0;
    for (int j = 0; j < c->count; j++) {
        float *x = c->x + j * QUERIES, *sum = sums[j % LANES];

        SIMD for (int i = 0; i < LANES; i++) {
            float w = expz_f32(x[i] * scale - m[i]);

            x[i] = w;
            sum[i] = sum[i] + w;
        }
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            SIMD for (int i = 0; i < LANES; i++)
                sums[j][i] = sums[j][i] + sums[j + half][i];
    memcpy(c->maximum, m, sizeof m);
    SIMD for (int i = 0; i < LANES; i++)
        c->denominator[i] = any[i] ? sums[0][i] : 0;
}

/* Weights as the product with values sees them; their sums are made. */
static void column_drop(const struct forward *f, const struct column *c,
                        int query, int64_t first)
{
    const struct drop_tile tile = {f->sequence, f->head, f->position + query,
                                   first, c->count};
    float factors[G * LANES];

    drop_factors(f->p, &tile, factors, LANES);
    for (int j = 0; j < c->count; j++)
        drop_lanes(c->x + j * QUERIES, factors + j * LANES);
}

/* Linear biases of the granule's keys. */
static const float *biases_make(const struct forward *f,
                                const struct column *c, int64_t first,
                                int count, float *biases)
{
    if (f->p->alibi.heads == 0) return NULL;
    for (int j = 0; j < count; j++)
        biases[j] = alibi_of(f->slope, c->documents, j, first + j);
    return biases;
}

/* The first keys that LANES queries from query `i` of the block on may see,
 * counted from the granule's first key. */
static const int32_t *lowest_find(const struct forward *f, int i,
                                  int64_t first, int32_t *lowest)
{
    const struct attention *p = f->p;

    if (p->window == 0 && p->chunk == 0) return NULL;
    for (int j = 0; j < LANES; j++) {
        const int64_t at = attention_lowest(p, f->position + i + j) - first;

        lowest[j] = (int32_t)(at < 0 ? 0 : at > G ? G : at);
    }
    return lowest;
}

/* Weights of the whole block. A tile of the next product may span columns: up
 * to a tile's rows beyond what the column sees are set to +0. */
static void weights_make(struct forward *f, const struct node *node,
                         int64_t first, int count)
{
    const struct attention *p = f->p;
    const int seen = (int)(f->position - first);
    float biases[G];
    struct column c = {.scale = f->scale, .cap = p->softcap};
    int32_t lowest[LANES];

    if (p->key_documents)
        c.documents = p->key_documents + attention_key_first(p, f->sequence) +
                      first - p->first_key;
    c.biases = biases_make(f, &c, first, count, biases);
    for (int i = 0; i < f->rows; i += LANES) {
        const int reach = seen + i + LANES;
        const int end = reach < count ? (reach > 0 ? reach : 0) : count;

        c.x = f->scores + i;
        c.seen = seen + i;
        c.lowest = lowest_find(f, i, first, lowest);
        c.count = end;
        c.own = f->documents + i;
        c.maximum = node->maximum + i;
        c.denominator = node->denominator + i;
        column_weights(&c);
        if (p->drop.rate > 0) column_drop(f, &c, i, first);
        for (int j = 0; p->tiles && j < end; j++)
            attention_round(c.x + j * QUERIES, LANES);
        for (int j = end; j < count && j < end + LANES; j++)
            memset(c.x + j * QUERIES, 0, LANES * sizeof(float));
    }
}

/* Asks for what follows the granule at position `first`: the next one, or what
 * the next block begins with; and for the block's part of the result. */
static void forward_ahead(struct forward *f, int64_t first, int64_t end)
{
    const struct attention *p = f->p;
    const bool goes_on = first + G < end;
    const bool same_head = f->position + f->rows <
                           p->first_query + p->queries;
    const bool same_keys = (f->head + 1) % (p->heads / p->kv_heads) != 0;
    const int64_t next = goes_on ? first + G - p->first_key : 0;
    const int64_t keys = attention_key_first(p, f->sequence) + next;
    struct ahead *ahead = &f->ahead;

    ahead->count = 0;
    if (goes_on || (!same_head && !same_keys && f->head + 1 < p->heads)) {
        const int kv = goes_on ? f->kv : f->kv + 1;

        ahead_add(ahead, &p->v, keys, kv, p->keys - next);
        ahead_add(ahead, &p->k, keys, kv, p->keys - next);
    }
    if (!goes_on) {
        ahead_add(ahead, &p->out, f->row, f->head, f->rows);
        if (same_head)
            ahead_add(ahead, &p->q, f->row + f->rows, f->head, QUERIES);
        else if (f->head + 1 < p->heads)
            ahead_add(ahead, &p->q, attention_query_first(p, f->sequence),
                      f->head + 1,
                      p->queries < QUERIES ? p->queries : QUERIES);
    }
}

/* The block against the granule at position `first`. */
static void granule_forward(struct forward *f, const struct node *node,
                            int64_t first)
{
    const int64_t last = f->position + f->rows - first; /* seen by the last */
    const int64_t left = f->key_end - first;
    int count = left < G ? (int)left : G;
    const int seen = (int)(f->position - first);
    struct chains x;

    if (last < count) count = (int)last;
    granule_find(f, first);
    scores_make(f, count, seen);
    weights_make(f, node, first, count);
    x = (struct chains){.rows = f->rows, .columns = f->padded,
                        .length = count, .lag = seen, .a = f->scores,
                        .a_row = 1, .a_step = QUERIES, .c = node->values,
                        .c_row = f->padded, .ahead = &f->ahead};
    rows_right(&x, &f->values, 0);
    f->products->run(&x);
}

/* left = left merged with right; left holds the earlier keys. */
static void node_merge(const struct forward *f, const struct node *left,
                       const struct node *right)
{
    float a[QUERIES], b[QUERIES];

    /* A side without keys counts as 0 times +0, which the loop below skips. */
    SIMD for (int r = 0; r < QUERIES; r++) {
        const float ml = left->maximum[r], mr = right->maximum[r];
        const float m = ml > mr ? ml : mr;

        a[r] = expz_f32(ml - m);
        b[r] = expz_f32(mr - m);
    }
    for (int r = 0; r < f->rows; r++) {
        float *x = left->values + r * f->padded;
        const float *y = right->values + r * f->padded;

        if (right->denominator[r] == 0) continue;
        if (left->denominator[r] == 0) {
            memcpy(x, y, (size_t)f->padded * sizeof *x);
            left->maximum[r] = right->maximum[r];
            left->denominator[r] = right->denominator[r];
            continue;
        }
        if (!(left->maximum[r] > right->maximum[r]))
            left->maximum[r] = right->maximum[r];
        left->denominator[r] = __builtin_fmaf(left->denominator[r], a[r],
                                              right->denominator[r] * b[r]);
        SIMD for (int e = 0; e < f->padded; e++)
            x[e] = __builtin_fmaf(x[e], a[r], y[e] * b[r]);
    }
}

/* The root as a node of a larger tree. */
static void node_write(const struct forward *f, const struct node *node)
{
    const struct attention *p = f->p;
    float *denominators = p->denominator.data, *maxima = p->lse.data;

    for (int r = 0; r < f->rows; r++) {
        const int64_t row = f->row + r;
        const struct attention_part part = {&p->out, row, f->head, 1, false};

        denominators[row * p->denominator.stride[0] + f->head] =
            node->denominator[r];
        if (node->denominator[r] == 0) continue;
        CPU(attention_write)(&part, node->values + r * f->padded, NULL);
        maxima[row * p->lse.stride[0] + f->head] = node->maximum[r];
    }
}

/* The largest score of the block's queries; threads share the peaks. */
static void peak_raise(const struct forward *f, const struct node *node)
{
    float *peak = (float *)f->p->peaks + f->head;
    float most = -(float)INFINITY, old;

    for (int r = 0; r < f->rows; r++)
        if (node->denominator[r] != 0 && node->maximum[r] > most)
            most = node->maximum[r];
    __atomic_load(peak, &old, __ATOMIC_RELAXED);
    while (most > old &&
           !__atomic_compare_exchange(peak, &old, &most, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void block_finish(const struct forward *f, const struct node *node)
{
    const struct attention *p = f->p;
    const struct attention_part part = {&p->out, f->row, f->head, f->rows,
                                        false};
    float factors[QUERIES], lse[QUERIES];

    if (p->denominator.data) {
        node_write(f, node);
        return;
    }
    SIMD for (int r = 0; r < QUERIES; r++) {
        const float denominator = node->denominator[r];

        factors[r] = 1 / denominator;
        lse[r] = denominator == 0
                     ? -(float)INFINITY
                     : node->maximum[r] + log_f32(denominator);
    }
    for (int r = 0; r < f->rows; r++) {
        if (node->denominator[r] == 0) { /* only where there are no keys */
            factors[r] = 0;
            memset(node->values + r * f->padded, 0,
                   (size_t)f->padded * sizeof(float));
        }
        ((float *)p->lse.data)[(f->row + r) * p->lse.stride[0] + f->head] =
            lse[r];
    }
    CPU(attention_write)(&part, node->values, factors);
}

static void queries_find(struct forward *f)
{
    const struct attention *p = f->p;
    const struct attention_part part = {&p->q, f->row, f->head, f->rows,
                                        false};
    const int range[2] = {0, f->rows};
    int64_t stride;
    const float *rows = CPU(attention_rows)(&part, f->copy, &stride);

    CPU(attention_pack_columns)(f->q, QUERIES, rows, stride, range, f->width);
    for (int r = 0; p->query_documents && r < f->rows; r++)
        f->documents[r] = p->query_documents[f->row + r];
}

/* Granules before the window or attention chunk of a block of queries that
 * begins at a position: none of them sees a key there. */
static int64_t granules_before(const struct attention *p, int64_t position)
{
    const int64_t lowest = attention_lowest(p, position) - p->first_key;

    return lowest > 0 ? lowest / G : 0;
}

/* Queries [f->row, f->row + f->rows) of one head. */
static void block_forward(struct forward *f)
{
    const struct attention *p = f->p;
    const int64_t before = granules_before(p, f->position);
    int64_t end = f->position + f->rows; /* of keys that the last sees */
    int depth = 0;

    if (end > f->key_end) end = f->key_end;
    memset(f->nodes[0].denominator, 0, QUERIES * sizeof(float));
    queries_find(f);
    for (int64_t left = before; left > 0; left &= left - 1, depth++) {
        /* a node of the tree in which nothing is seen */
        memset(f->nodes[depth].maximum, 0, QUERIES * sizeof(float));
        memset(f->nodes[depth].denominator, 0, QUERIES * sizeof(float));
    }
    for (int64_t first = p->first_key + before * G; first < end; first += G) {
        int64_t carry = (first - p->first_key) / G;

        CHECK(depth < ATTENTION_NODES);
        forward_ahead(f, first, end);
        granule_forward(f, &f->nodes[depth], first);
        depth++;
        for (; carry & 1; carry >>= 1, depth--)
            node_merge(f, &f->nodes[depth - 2], &f->nodes[depth - 1]);
    }
    for (; depth > 1; depth--)
        node_merge(f, &f->nodes[depth - 2], &f->nodes[depth - 1]);
    if (p->peaks) peak_raise(f, &f->nodes[0]);
    block_finish(f, &f->nodes[0]);
}

struct forward_job {
    const struct attention *p;
    float *scratch;
    int64_t floats; /* of a thread */
};

/* The cost of the block of queries from `query` on, in keys. */
static int64_t block_cost(const struct attention *p, int64_t query)
{
    const int64_t position = p->first_query + query;
    const int64_t seen = position + QUERIES - p->first_key;
    const int64_t last = seen < p->keys ? seen : p->keys;
    const int64_t first = granules_before(p, position) * G;

    return (last < first ? 0 : last - first) + QUERIES;
}

/* A thread does the blocks that begin in its share of the whole cost. */
static void forward_body(void *argument, int index, int count)
{
    const struct forward_job *job = argument;
    const struct attention *p = job->p;
    int64_t unit_cost = 0, first, last;
    struct forward f;

    forward_init(&f, p, job->scratch + index * job->floats);
    if (f.products->begin) f.products->begin();
    for (int64_t q = 0; q < p->queries; q += QUERIES)
        unit_cost += block_cost(p, q);
    threads_split(p->sequences * p->heads * unit_cost, 1, index, count,
                  &first, &last);
    for (int64_t unit = first / unit_cost; unit * unit_cost < last; unit++) {
        int64_t cost = unit * unit_cost;

        f.sequence = unit / p->heads;
        f.head = (int)(unit % p->heads);
        f.kv = f.head / (p->heads / p->kv_heads);
        if (p->alibi.heads > 0) f.slope = alibi_slope(&p->alibi, f.head);
        for (int64_t q = 0; q < p->queries; q += QUERIES) {
            const int64_t left = p->queries - q;

            f.row = attention_query_first(p, f.sequence) + q;
            f.position = p->first_query + q;
            f.rows = left < QUERIES ? (int)left : QUERIES;
            if (cost >= first && cost < last) block_forward(&f);
            cost += block_cost(p, q);
        }
    }
    if (f.products->end) f.products->end();
}

status CPU(attention_forward)(struct stream *stream,
                              const struct attention *p)
{
    int threads = threads_count(stream->threads);
    struct forward_job job = {p, stream->scratch, ATTENTION_FORWARD_FLOATS};

    CHECK(dtype_real(p->q.dtype) == DTYPE_F32 && p->q.stride[2] == 1);
    CHECK(!p->denominator.data || p->out.dtype == DTYPE_F32);
    CHECK(p->head_width >= 1 && p->head_width <= HEAD_WIDTH_MAX);
    CHECK(p->heads % p->kv_heads == 0 && (float)p->scale > 0);
    CHECK(p->denominator.data ||
          (p->first_key == 0 && p->keys >= p->first_query + p->queries));
    CHECK(p->first_key % G == 0);
    CHECK(!p->query_documents == !p->key_documents);
    CHECK(stream->scratch_bytes >= attention_scratch_bytes(threads, 0));
    if (CPU(attention_one)(stream, p)) return OK;
    threads_run(stream->threads, forward_body, &job);
    return OK;
}
