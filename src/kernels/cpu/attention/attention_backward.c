/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.c - the fast attention, backward.
 *
 * A unit is one key-value head of one sequence. For each of its query heads,
 * granules of keys are taken in order and, against each, the granules of
 * queries that see it: five small products per pair of granules. Sums of dk and
 * dv over queries are finished before the next granule of keys; those of dq
 * wait, one node per level of the tree and granule of queries.
 *
 * Both may be windows of a sequence; granules that a window cuts have fewer
 * rows. Keys before it have weight +0, and a chain that starts with +0 times
 * something finite is the chain without it; queries are left out. */
#include "kernels/alibi.h"
#include "kernels/cpu/attention/attention_pair.h"
#include "kernels/cpu/attention/attention_scores.h"
#include "kernels/cpu/attention/attention_tree.h"

/* Whether the head is the first, or the last, of its leaf and group. */
static bool head_starts(const struct backward *b)
{
    return b->head % (b->p->heads / b->p->kv_heads) == 0 ||
           b->head % (b->p->heads / b->p->leaves) == 0;
}

static bool head_ends(const struct backward *b)
{
    return (b->head + 1) % (b->p->heads / b->p->kv_heads) == 0 ||
           (b->head + 1) % (b->p->heads / b->p->leaves) == 0;
}

static void backward_init(struct backward *b, const struct attention *p,
                          float *scratch)
{
    int64_t levels, block;

    b->p = p;
    b->width = p->head_width;
    b->padded = attention_padded(p->head_width);
    b->query = p->first_query;
    b->query_end = p->first_query + p->queries;
    b->key = p->first_key;
    b->key_end = p->first_key + p->keys;
    b->base = b->query / G * G;
    b->rows = attention_granules(b->query, b->query_end) * G;
    b->key_base = b->key / G * G;
    b->key_rows = attention_granules(b->key, b->key_end) * G;
    levels = attention_levels(larger(b->query_end, b->key_end));
    b->scale = (float)p->scale;
    /* A single pair of granules is too short to ask line by line. */
    b->ahead.tile_rows = b->rows > G ? 0 : 10;
    b->products = CPU(attention_products)(p);
    b->step = p->tiles ? KEYS : KEYS_CHAINS;
    b->step_diagonal = p->tiles ? STRIP_COLUMNS : LANES;
    block = (int64_t)G * b->padded;
    b->slot_count = leaf_slots(p);
    b->slot_floats = 2 * b->key_rows * b->padded;
    b->sums = scratch;
    b->lse = b->sums + b->rows;
    b->dq = b->lse + b->rows;
    b->slots = b->dq + levels * b->rows * b->padded;
    b->panels = b->slots + b->slot_count * b->slot_floats;
    scratch = b->panels + PANELS * b->rows * b->padded;
    for (int i = 0; i < 2; i++, scratch += block) {
        b->copies[i] = scratch;
        b->copied[i] = -1;
    }
    b->leaf = scratch;
    b->pair = b->leaf + block;
    b->pairs = b->pair + 2 * block;
    b->weights = b->pairs + levels * 2 * block;
    b->dscores = b->weights + KEYS * STRIDE;
}

/* The part of the granule at `first` that lies in [from, to). */
static struct span granule_span(int64_t first, int64_t from, int64_t to)
{
    return (struct span){from > first ? (int)(from - first) : 0,
                         to - first < G ? (int)(to - first) : G};
}

/* sums[i] = dout . out of `count` rows from `row`. Lanes of LANES rows are
 * folded together. */
static void rows_dots(struct backward *b, float *sums, int64_t row, int count)
{
    struct attention_part part = {&b->p->dout, row, b->head, count, false};
    const int range[2] = {0, LANES};
    int64_t dout_stride, out_stride;
    const float *dout = CPU(attention_rows)(&part, b->leaf, &dout_stride);
    const float *out;

    part.of = &b->p->out;
    out = CPU(attention_rows)(&part, b->pair, &out_stride);
    for (int first = 0; first < count; first += LANES) {
        float lanes[LANES * LANES] = {0}, turned[LANES * LANES];
        const int rows = count - first < LANES ? count - first : LANES;

        for (int i = 0; i < rows; i++)
            scores_lanes(lanes + i * LANES, dout + (first + i) * dout_stride,
                         out + (first + i) * out_stride, b->width);
        CPU(attention_pack_columns)(turned, LANES, lanes, LANES, range, LANES);
        for (int half = LANES / 2; half; half /= 2)
            for (int i = 0; i < half * LANES; i++)
                turned[i] = turned[i] + turned[i + half * LANES];
        memcpy(sums + first, turned, (size_t)rows * sizeof *sums);
    }
}

/* Number of the first granule of keys that a granule of queries sees. */
static int64_t keys_begin(const struct backward *b, int64_t query)
{
    const int64_t lowest = attention_lowest(b->p, larger(query, b->query));

    return larger(lowest, b->key_base) / G;
}

/* Numbers of the head's rows in a granule of queries. */
static void queries_numbers(struct backward *b, const struct granules *g)
{
    const struct attention *p = b->p;
    const int from = g->queries.from, count = g->queries.to - from;
    const int64_t row = attention_query_first(p, b->sequence) + g->query +
                        from - b->query;
    float *sums = b->sums + g->query + from - b->base;
    float *lse = b->lse + g->query + from - b->base;

    for (int i = 0; i < count; i++) {
        const int64_t at = row + i;

        lse[i] = ((float *)p->lse.data)[at * p->lse.stride[0] + b->head];
        if (p->delta.data)
            sums[i] = ((float *)p->delta.data)[at * p->delta.stride[0] +
                                               b->head];
    }
    if (!p->delta.data) rows_dots(b, sums, row, count);
}

/* Rows that products read more than once. */
static struct rows rows_of(const struct tensor *t, float *copy, int64_t row,
                           int head, int count)
{
    const struct attention_part part = {t, row, head, count, true};

    return rows_find(&part, copy);
}

/* Whether products take the granule packed: its first row must be there. */
static bool is_packed(const struct backward *b, const struct span *span)
{
    return b->products->panels_pack != NULL && span->from == 0;
}

/* `count` keys or values of the head in work, packed in `to` [G, width] by way
 * of `leaf`, keys also as what dq is made of; 0: they are there. */
static struct rows keys_packed(struct backward *b, const struct tensor *t,
                               float *to, int64_t row, int count)
{
    uint32_t *panels = (void *)to, *strips = panels + G / 2 * b->width;
    const struct rows from = rows_of(t, b->leaf, row, b->kv, count);
    const bool right = t == &b->p->k;

    if (count > 0) {
        rows_pack_left(b->products, &from, count, b->width, panels);
        if (right)
            rows_pack_right(b->products, &from, count, b->width, strips);
    }
    return (struct rows){.x = to, .panels = panels,
                         .strips = right ? strips : NULL};
}

/* `count` rows of q or dout of the head in work, packed in `to` [G, width] by
 * way of `room` [2, G, width]; 0: they are there. */
static struct rows queries_packed(struct backward *b, const struct tensor *t,
                                  float *room, float *to, int64_t row,
                                  int count)
{
    uint32_t *strips = (void *)to, *turned = strips + G / 2 * b->width;
    const struct rows from = rows_of(t, room, row, b->head, count);
    struct chains x = {.columns = QUERIES, .length = b->width,
                       .b_step = QUERIES,
                       .b_strip = b->width / 2 * STRIP_COLUMNS};

    if (count > 0) {
        rows_pack_right(b->products, &from, count, b->width, strips);
        room += G * b->width;
        panels_turn(room, &from, (struct span){0, count}, b->width);
        for (int panel = 0; panel < G; panel += QUERIES) {
            x.b = room + panel * b->width;
            b->products->strips_pack(&x, turned + panel * b->width / 2);
        }
    }
    return (struct rows){.x = to, .strips = strips, .turned = turned};
}

static void granule_keys(struct backward *b, struct granules *g, int64_t first)
{
    const struct attention *p = b->p;
    int64_t row;
    int count;

    g->key = first;
    g->keys = granule_span(first, b->key, b->key_end);
    row = attention_key_first(p, b->sequence) + first + g->keys.from - b->key;
    count = g->keys.to - g->keys.from;
    if (b->copied[0] == row && b->copied[1] == b->kv) count = 0;
    if (is_packed(b, &g->keys)) {
        g->k = keys_packed(b, &p->k, b->copies[0], row, count);
        g->v = keys_packed(b, &p->v, b->copies[1], row, count);
    } else {
        g->k = rows_of(&p->k, b->copies[0], row, b->kv, count);
        g->v = rows_of(&p->v, b->copies[1], row, b->kv, count);
    }
    b->copied[0] = row;
    b->copied[1] = b->kv;
}

static void granule_queries(struct backward *b, struct granules *g,
                            int64_t first)
{
    const struct attention *p = b->p;
    const int64_t block = (int64_t)G * b->padded;
    const bool fresh = g->key / G == keys_begin(b, first);
    float *panels = b->panels + PANELS * (first - b->base) * b->padded;
    int64_t row;
    int count;

    g->query = first;
    g->queries = granule_span(first, b->query, b->query_end);
    if (fresh) queries_numbers(b, g);
    count = fresh ? g->queries.to - g->queries.from : 0; /* to copy */
    row = attention_query_first(p, b->sequence) + first + g->queries.from -
          b->query;
    if (is_packed(b, &g->queries)) {
        g->q = queries_packed(b, &p->q, panels, panels + 2 * block, row, count);
        g->dout = queries_packed(b, &p->dout, panels, panels + 3 * block, row,
                                 count);
        return;
    }
    g->q = rows_of(&p->q, panels, row, b->head, count);
    g->dout = rows_of(&p->dout, panels + block, row, b->head, count);
    b->q_t = panels + 2 * block;
    b->dout_t = panels + 3 * block;
    if (!fresh) return;
    panels_turn(b->q_t, &g->q, g->queries, b->width);
    panels_turn(b->dout_t, &g->dout, g->queries, b->width);
}

static void rows_write(const struct backward *b, const struct tensor *t,
                       int64_t row, const float *from, int rows)
{
    const int head = t == &b->p->dq ? b->head : b->kv;

    CPU(attention_write)(
        &(struct attention_part){t, row, head, rows, false}, from, NULL);
}

/* Rows of the granule at `query` that the window has. */
static void queries_write(const struct backward *b, int64_t query,
                          const float *root)
{
    const struct span span = granule_span(query, b->query, b->query_end);
    const int64_t row = attention_query_first(b->p, b->sequence) + query +
                        span.from - b->query;

    rows_write(b, &b->p->dq, row, root + span.from * b->padded,
               span.to - span.from);
}

static void keys_write(const struct backward *b, int64_t first,
                       const float *root)
{
    const struct span span = granule_span(first, b->key, b->key_end);
    const int64_t row = attention_key_first(b->p, b->sequence) + first +
                        span.from - b->key;

    root += span.from * b->padded;
    rows_write(b, &b->p->dk, row, root, span.to - span.from);
    rows_write(b, &b->p->dv, row, root + (int64_t)G * b->padded,
               span.to - span.from);
}

/* Adds dk and dv of one granule from one head to the leaf that it belongs to,
 * and at the last head writes the tree over leaves. `waits` says which levels
 * of finished leaves wait before this head. */
static void leaf_add(struct backward *b, uint64_t waits, int64_t first,
                     const float *node)
{
    const struct attention *p = b->p;
    int group = p->heads / p->kv_heads, index = b->head - b->kv * group;
    int64_t block = (int64_t)G * b->padded;
    float *at = b->slots + 2 * (first - b->key_base) * b->padded;
    struct counter tree = {at, b->slot_floats, 2 * block};

    if (group > 1) {
        float *open = at + (b->slot_count - 1) * b->slot_floats;
        const bool alone = head_starts(b) && head_ends(b); /* is the leaf */

        if (head_starts(b) && !alone)
            memcpy(open, node, (size_t)(2 * block) * sizeof *node);
        else if (!alone)
            for (int64_t e = 0; e < 2 * block; e += WIDTH)
                vector_store(open + e, vector_load(open + e) +
                                           vector_load(node + e));
        if (head_ends(b) && !one_leaf(p))
            waits = counter_push(&tree, waits, head_leaf(p, b->head),
                                 alone ? node : open);
        if (index < group - 1) return;
        node = one_leaf(p) ? open : counter_root(&tree, waits);
    }
    keys_write(b, first, node);
}

/* dq of the queries of a granule from one granule of keys; written once the
 * queries see no later key. */
static void queries_push(struct backward *b, int64_t query, int64_t first,
                         const struct counter *dq, const float *leaf)
{
    const uint64_t before = counter_levels(keys_begin(b, query), first / G);
    const uint64_t waits = counter_push(dq, before, first / G, leaf);

    if (query == first || first + G >= b->key_end)
        queries_write(b, query, counter_root(dq, waits));
}

/* Queries that see no key of the window. */
static void queries_clear(struct backward *b)
{
    memset(b->leaf, 0, (size_t)(G * b->padded) * sizeof *b->leaf);
    for (int64_t query = b->base; query < b->query_end; query += G)
        if (query < b->key_base || keys_begin(b, query) * G >= b->key_end)
            queries_write(b, query, b->leaf);
}

/* Does a granule of queries, no earlier than one of keys, see it? */
static bool sees(const struct backward *b, int64_t query, int64_t key)
{
    return query < b->query_end && keys_begin(b, query) <= key / G;
}

/* Asks for what follows a pair of granules: the next granule of queries, at the
 * last one the next of keys or the next head; and for the rows of gradients
 * that the pair finishes. */
static void backward_ahead(struct backward *b, int64_t query, int64_t key)
{
    const struct attention *p = b->p;
    const bool more_queries = sees(b, query + G, key);
    const bool more_keys = key + G < b->key_end;
    const bool same_keys = (b->head + 1) % (p->heads / p->kv_heads) != 0;
    const int head = more_queries || more_keys ? b->head : b->head + 1;
    const int64_t next_key = more_queries ? key
                             : more_keys  ? key + G : b->key_base;
    const int64_t next = more_queries ? query + G : larger(next_key, b->base);
    const int64_t row = attention_query_first(p, b->sequence) +
                        larger(next - b->query, 0);
    const int64_t key_row = attention_key_first(p, b->sequence);
    const int64_t last = key_row + larger(key - b->key, 0);
    struct ahead *ahead = &b->ahead;

    ahead->count = 0;
    if (head < p->heads) {
        const int kv = head / (p->heads / p->kv_heads);
        const int64_t at = larger(next_key - b->key, 0);

        if (keys_begin(b, next) == next_key / G) { /* not there yet */
            if (!p->delta.data)
                ahead_add(ahead, &p->out, row, head, b->query_end - next);
            ahead_add(ahead, &p->dout, row, head, b->query_end - next);
            ahead_add(ahead, &p->q, row, head, b->query_end - next);
        }
        if (!more_queries && (more_keys || !same_keys)) {
            ahead_add(ahead, &p->v, key_row + at, kv, p->keys - at);
            ahead_add(ahead, &p->k, key_row + at, kv, p->keys - at);
        }
    }
    if (query == key && p->half != ATTENTION_OF_KEYS)
        ahead_add(ahead, &p->dq, attention_query_first(p, b->sequence) +
                  larger(query - b->query, 0), b->head, b->query_end - query);
    if (!more_queries && p->half != ATTENTION_OF_QUERIES && !same_keys) {
        ahead_add(ahead, &p->dk, last, b->kv, b->key_end - key);
        ahead_add(ahead, &p->dv, last, b->kv, b->key_end - key);
    }
}

/* One granule of keys with all granules of queries that see it. */
static void granule_backward(struct backward *b, uint64_t waits,
                             int64_t first)
{
    const enum attention_half half = b->p->half;
    int64_t block = (int64_t)G * b->padded;
    struct counter pairs = {b->pairs, 2 * block, 2 * block};
    uint64_t pairs_wait = 0;
    struct granules g;

    granule_keys(b, &g, first);
    for (int64_t query = larger(first, b->base); sees(b, query, first);
         query += G) {
        struct counter dq = {b->dq + (query - b->base) * b->padded,
                             b->rows * b->padded, 0};
        float *leaf = counter_place(&dq, first / G, b->leaf);
        float *pair = counter_place(&pairs, query / G, b->pair);

        granule_queries(b, &g, query);
        backward_ahead(b, query, first);
        dq.floats = (int64_t)g.queries.to * b->padded;
        CPU(attention_pair)(b, &g, leaf, pair);
        if (half != ATTENTION_OF_KEYS)
            queries_push(b, query, first, &dq, leaf);
        if (half != ATTENTION_OF_QUERIES)
            pairs_wait = counter_push(&pairs, pairs_wait, query / G, pair);
    }
    if (half == ATTENTION_OF_QUERIES) return;
    if (pairs_wait == 0) { /* no query sees it */
        memset(b->pair, 0, (size_t)(2 * block) * sizeof *b->pair);
        leaf_add(b, waits, first, b->pair);
    } else {
        leaf_add(b, waits, first, counter_root(&pairs, pairs_wait));
    }
}

static void unit_backward(struct backward *b)
{
    int group = b->p->heads / b->p->kv_heads;
    uint64_t waits = 0;

    for (int i = 0; i < group; i++) {
        b->head = b->kv * group + i;
        if (b->p->alibi.heads > 0)
            b->slope = alibi_slope(&b->p->alibi, b->head);
        if (b->p->half == ATTENTION_OF_QUERIES) queries_clear(b);
        for (int64_t first = b->key_base; first < b->key_end; first += G)
            granule_backward(b, waits, first);
        if (head_ends(b))
            waits = counter_waits(waits, head_leaf(b->p, b->head));
    }
}

struct backward_job {
    const struct attention *p;
    float *scratch;
    int64_t floats; /* of a thread */
    int workers;    /* threads that scratch is enough for */
};

static void backward_body(void *argument, int index, int count)
{
    const struct backward_job *job = argument;
    int64_t first, last;
    struct backward b;

    (void)count;
    if (index >= job->workers) return;
    backward_init(&b, job->p, job->scratch + index * job->floats);
    if (b.products->begin) b.products->begin();
    threads_split(job->p->sequences * job->p->kv_heads, 1, index,
                  job->workers, &first, &last);
    for (int64_t unit = first; unit < last; unit++) {
        b.sequence = unit / job->p->kv_heads;
        b.kv = (int)(unit % job->p->kv_heads);
        unit_backward(&b);
    }
    if (b.products->end) b.products->end();
}

/* The reference has no narrow attention. */
static status backward_reference(struct stream *stream,
                                 const struct attention *p)
{
    if (p->q.dtype != DTYPE_F32)
        FAIL(ERR_CONFIG, "attention backward in %s: heads of %d elements, %d "
                         "tensor leaves and %zu bytes of scratch need the "
                         "float32 path; use fewer tensor leaves or float32",
             dtype_name(p->q.dtype), p->head_width, p->leaves,
             stream->scratch_bytes);
    return kernels_reference_f32.attention_backward(stream, p);
}

/* Very long sequences of very wide heads do not fit scratch and are left to the
 * reference: the bits are the same. */
status CPU(attention_backward)(struct stream *stream,
                               const struct attention *p)
{
    int threads = threads_count(stream->threads);
    int64_t floats, fit;
    struct backward_job job = {.p = p, .scratch = stream->scratch};

    CHECK(dtype_real(p->q.dtype) == DTYPE_F32 && p->q.stride[2] == 1);
    CHECK(p->head_width >= 1 && p->head_width <= HEAD_WIDTH_MAX);
    CHECK(p->half != ATTENTION_WHOLE ||
          (p->first_query == 0 && p->keys == p->queries));
    CHECK(p->half == ATTENTION_OF_KEYS || p->first_key % G == 0);
    CHECK(p->heads % p->kv_heads == 0 && p->heads % p->leaves == 0);
    CHECK(!p->query_documents == !p->key_documents && (float)p->scale > 0);
    floats = attention_backward_floats(
        attention_granules(p->first_query, p->first_query + p->queries),
        attention_granules(p->first_key, p->first_key + p->keys),
        attention_levels(larger(p->first_query + p->queries,
                                p->first_key + p->keys)),
        attention_padded(p->head_width), leaf_slots(p));
    fit = (int64_t)(stream->scratch_bytes / sizeof(float)) / floats;
    if (fit < 1 ||
        (leaf_slots(p) > 1 && p->leaves > 1 << (ATTENTION_LEAF_SLOTS - 1)))
        return backward_reference(stream, p);
    job.floats = floats;
    job.workers = fit < threads ? (int)fit : threads;
    threads_run(stream->threads, backward_body, &job);
    return OK;
}
