/* SPDX-License-Identifier: Apache-2.0 */
/* attention_pair.c - the fast attention, backward: one granule of queries
 * against one of keys, five small products.
 *
 * Weights and gradients of scores stand transposed, [keys, queries]. They are
 * made for some keys at a time, whose rows of dk and dv follow at once; dq
 * follows when the granule's keys are done. */
#include "kernels/alibi.h"
#include "kernels/cpu/attention/attention_drop.h"
#include "kernels/cpu/attention/attention_pair.h"
#include "kernels/cpu/attention/attention_scores.h"

/* Part of a pair of granules: the keys [from, to) and the queries from `query`,
 * a multiple of LANES, that may see them. */
struct part {
    int from, to, query;
};

/* A key's weights w and gradients of scores d, from q . k and dout . v. Of the
 * columns from `query`, those of earlier queries than `seen` get +0. */
static void key_gradient(const struct backward *b, const struct granules *g,
                         float *w, float *d, const int columns[3])
{
    const int query = columns[0], end = columns[1], seen = columns[2];
    const struct scores scores = {w, d, b->lse + (g->query - b->base),
                                  b->sums + (g->query - b->base), b->scale,
                                  b->p->softcap};

    if (scores.cap > 0)
        scores_capped(&scores, query, end);
    else
        scores_plain(&scores, query, end);
    for (int c = query; c < seen; c += LANES) {
        SIMD for (int i = c; i < c + LANES; i++) {
            w[i] = i < seen ? 0 : w[i];
            d[i] = i < seen ? 0 : d[i];
        }
    }
    if (query > 0) /* what a tile of dq may read beside the columns */
        memset(d + query - LANES, 0, LANES * sizeof *d);
}

/* Queries of other documents than the key's. */
static void key_documents(const struct backward *b, const struct granules *g,
                          int key, const struct scores *scores)
{
    const struct attention *p = b->p;
    const int64_t sequence = attention_query_first(p, b->sequence);
    const int64_t at = attention_key_first(p, b->sequence) + g->key + key;

    scores_apart(scores, p->query_documents + sequence + g->query - b->query,
                 p->key_documents[at - b->key], g->queries.from,
                 g->queries.to);
}

/* Queries whose window or attention chunk begins behind the key. */
static void key_window(const struct backward *b, const struct granules *g,
                       int key, float *w, float *d)
{
    const int64_t past = attention_past(b->p, g->key + key) - g->query;

    for (int64_t i = larger(past, g->queries.from); i < g->queries.to; i++)
        w[i] = d[i] = 0;
}

/* Computes the dropout factors of a part's weights, and dout . v times them. */
static void part_drop(const struct backward *b, const struct granules *g,
                      const struct part *part, float *factors)
{
    float *d = b->dscores + part->from * STRIDE;

    for (int c = part->query; c < g->queries.to; c += LANES) {
        const struct drop_tile tile = {b->sequence, b->head, g->query + c,
                                       g->key + part->from,
                                       part->to - part->from};

        drop_factors(b->p, &tile, factors + c, STRIDE);
        for (int j = 0; j < tile.keys; j++)
            drop_lanes(d + j * STRIDE + c, factors + j * STRIDE + c);
    }
}

/* Products of a key with queries become those with linear biases. */
static void key_lean(const struct backward *b, const struct granules *g,
                     int key, const struct part *part, float *w)
{
    const struct attention *p = b->p;
    const int64_t row =
        attention_key_first(p, b->sequence) + g->key + key - b->key;
    const float bias =
        alibi_of(b->slope, p->key_documents, row, g->key + key);

    for (int c = part->query; c < g->queries.to; c += LANES)
        SIMD for (int i = c; i < c + LANES; i++) w[i] = w[i] + bias;
}

/* Weights and gradients of scores of a part. */
static void part_weights(struct backward *b, const struct granules *g,
                         const struct part *part, float *weights)
{
    const int end = (g->queries.to + LANES - 1) / LANES * LANES;
    const int row = part->from - g->keys.from, range[2] = {part->query, end};
    float *dscores = b->dscores + part->from * STRIDE;
    float factors[KEYS * STRIDE];
    struct chains x = {.rows = part->to - part->from, .length = b->width,
                       .lag = CHAINS_WHOLE, .b_step = QUERIES,
                       .c_row = STRIDE, .ahead = &b->ahead};

    rows_left(&x, &g->k, row);
    panels_chain(b->products, &x, &g->q, b->q_t, weights, range);
    rows_left(&x, &g->v, row);
    panels_chain(b->products, &x, &g->dout, b->dout_t, dscores, range);
    if (b->p->drop.rate > 0) part_drop(b, g, part, factors);
    for (int j = part->from; j < part->to; j++) {
        const int seen = g->query == g->key ? j : 0;
        const int columns[3] = {part->query, end, seen};
        float *w = weights + (j - part->from) * STRIDE;
        float *d = dscores + (j - part->from) * STRIDE;

        if (b->p->alibi.heads > 0) key_lean(b, g, j, part, w);
        key_gradient(b, g, w, d, columns);
        if (b->p->key_documents)
            key_documents(b, g, j, &(struct scores){.w = w, .d = d});
        if (b->p->window > 0 || b->p->chunk > 0) key_window(b, g, j, w, d);
        for (int c = part->query; c < end && b->p->drop.rate > 0; c += LANES)
            drop_lanes(w + c, factors + (j - part->from) * STRIDE + c);
        if (b->p->tiles) {
            attention_round(w + part->query, end - part->query);
            attention_round(d + part->query, end - part->query);
        }
    }
}

/* Rows of dk and dv of a part: chains over the queries that may see it. */
static void part_keys(struct backward *b, const struct granules *g,
                      const struct part *part, float *weights, float *pair)
{
    const int64_t block = (int64_t)G * b->padded;
    const int from = part->query > g->queries.from ? part->query
                                                   : g->queries.from;
    const int skipped = from - g->queries.from;
    struct chains x = {.rows = part->to - part->from, .columns = b->padded,
                       .length = g->queries.to - from, .first = from,
                       .lag = CHAINS_WHOLE,
                       .a_row = STRIDE, .a_step = 1, .c_row = b->padded,
                       .ahead = &b->ahead};

    x.a = b->dscores + part->from * STRIDE + from;
    rows_right(&x, &g->q, skipped);
    x.c = pair + part->from * b->padded;
    b->products->run(&x);
    x.a = weights + from;
    rows_right(&x, &g->dout, skipped);
    x.c = pair + block + part->from * b->padded;
    b->products->run(&x);
}

/* leaf = rows of dq of the granule of queries from the granule of keys. */
static void pair_queries(const struct backward *b, const struct granules *g,
                         float *leaf)
{
    const int from = g->keys.from;
    struct chains x = {.rows = g->queries.to, .columns = b->padded,
                       .length = g->keys.to - from, .first = from,
                       .lag = CHAINS_WHOLE,
                       .a_row = 1, .a_step = STRIDE,
                       .a = b->dscores + from * STRIDE, .c = leaf,
                       .c_row = b->padded};

    rows_right(&x, &g->k, 0);
    if (g->query == g->key) x.lag = -from;
    b->products->run(&x);
}

/* On the diagonal parts are smaller, so that less is computed in vain. */
void CPU(attention_pair)(struct backward *b, const struct granules *g,
                         float *leaf, float *pair)
{
    const bool diagonal = g->query == g->key;
    const int step = diagonal ? b->step_diagonal : b->step;
    const int first = g->queries.from / LANES * LANES;

    for (int j = g->keys.from / step * step; j < g->keys.to; j += step) {
        const struct part part = {
            j > g->keys.from ? j : g->keys.from,
            j + step < g->keys.to ? j + step : g->keys.to,
            diagonal && j > first ? j : first};

        if (part.query >= g->queries.to) { /* nobody sees these */
            memset(pair + part.from * b->padded, 0,
                   (size_t)((part.to - part.from) * b->padded) * sizeof *pair);
            memset(pair + (G + part.from) * b->padded, 0,
                   (size_t)((part.to - part.from) * b->padded) * sizeof *pair);
            continue;
        }
        part_weights(b, g, &part, b->weights);
        if (b->p->half != ATTENTION_OF_QUERIES)
            part_keys(b, g, &part, b->weights, pair);
    }
    if (b->p->half != ATTENTION_OF_KEYS) pair_queries(b, g, leaf);
}
