/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.c - the fast attention, backward.
 *
 * A unit is one key-value head of one sequence. For each of its query heads,
 * granules of keys are taken in order and, against each, the granules of
 * queries that see it: five small products per pair of granules. Sums of dk and
 * dv over queries are finished before the next granule of keys; those of dq
 * wait, one node per level of the tree and granule of queries.
 *
 * Both may be windows of a sequence. Rows are packed from the granule in which
 * a window begins. Keys before it have weight +0, and a chain that starts with
 * +0 times something finite is the chain without it; queries are left out. */
#include "kernels/cpu/attention.h"

/* A tree over numbered nodes as a binary counter. Level l is a node of
 * `floats` at levels + l * stride. */
struct counter {
    float *levels;
    int64_t stride, floats;
};

struct backward {
    const struct attention *p;
    int width, padded;
    int64_t query, query_end; /* positions of the window */
    int64_t key, key_end;
    int64_t base, rows;       /* of packed queries: whole granules */
    int64_t key_base, key_rows;
    float scale;
    int64_t sequence;
    int head, kv;
    uint64_t dq_waits;    /* levels of dq that hold a node */
    int slot_count;       /* leaves of dk and dv that may wait */
    int64_t slot_floats;
    float *q, *dout;      /* [rows, padded] of the head, from base */
    float *sums, *lse;    /* [rows]: dout . out, log of the denominator */
    float *dq;            /* levels of [rows, padded] */
    float *slots;         /* leaves of dk and dv: [key_rows / G, 2, G,
                           * padded] */
    float *keys, *keys_t, *values_t; /* a granule: rows, columns, columns */
    float *leaf;          /* [G, padded] of dq */
    float *pair;          /* [2, G, padded]: dk, dv of a granule pair */
    float *pairs;         /* levels of the same */
    float *weights, *dscores; /* [G, G] */
};

static int head_leaf(const struct attention *p, int head)
{
    return head / (p->heads / p->leaves);
}

/* Whether no group of query heads is cut by leaves. */
static bool one_leaf(const struct attention *p)
{
    return p->kv_heads % p->leaves == 0;
}

/* Places for sums over query heads: none when there is nothing to add, the leaf
 * that goes on, or that and the levels of the tree over up to 8 leaves. */
static int leaf_slots(const struct attention *p)
{
    if (p->heads == p->kv_heads) return 0;
    return one_leaf(p) ? 1 : ATTENTION_LEAF_SLOTS;
}

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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
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
    block = (int64_t)G * b->padded;
    b->slot_count = leaf_slots(p);
    b->slot_floats = 2 * b->key_rows * b->padded;
    b->q = scratch;
    b->dout = b->q + b->rows * b->padded;
    b->sums = b->dout + b->rows * b->padded;
    b->lse = b->sums + b->rows;
    b->dq = b->lse + b->rows;
    b->slots = b->dq + levels * b->rows * b->padded;
    b->keys = b->slots + b->slot_count * b->slot_floats;
    b->keys_t = b->keys + block;
    b->values_t = b->keys_t + block;
    b->leaf = b->values_t + block;
    b->pair = b->leaf + block;
    b->pairs = b->pair + 2 * block;
    b->weights = b->pairs + levels * 2 * block;
    b->dscores = b->weights + (int64_t)G * G;
}

/* First and end of what of the granule at `first` lies in [from, to). */
static int granule_from(int64_t first, int64_t from)
{
    return from > first ? (int)(from - first) : 0;
}

static int granule_to(int64_t first, int64_t to)
{
    return to - first < G ? (int)(to - first) : G;
}

/* The levels that wait after node `number` joins those in `waits`. */
static uint64_t counter_waits(uint64_t waits, int64_t number)
{
    uint64_t carry = (uint64_t)(number ^ (number + 1)) >> 1; /* low ones */

    return (waits & ~carry) | (carry + 1);
}

/* Where node `number` should be written: where it will wait when it takes no
 * left neighbours along, else in `scratch`. */
static float *counter_place(const struct counter *c, int64_t number,
                            float *scratch)
{
    return number & 1 ? scratch : c->levels;
}

/* Adds node `number` when the levels in `waits` hold a node: the new node takes
 * all complete left neighbours along. Returns the levels that then wait. */
static uint64_t counter_push(const struct counter *c, uint64_t waits,
                             int64_t number, const float *node)
{
    const float *lefts[64];
    int count = 0, level = 0;
    float *to;

    for (; number >> level & 1; level++)
        if (waits >> level & 1) lefts[count++] = c->levels + level * c->stride;
    to = c->levels + level * c->stride;
    for (int64_t e = 0; e < c->floats && (count || to != node); e += WIDTH) {
        vector sum = vector_load(node + e);

        for (int i = 0; i < count; i++) sum = vector_load(lefts[i] + e) + sum;
        vector_store(to + e, sum);
    }
    return counter_waits(waits, number);
}

/* The tree's root, in place at the highest level that waits. */
static const float *counter_root(const struct counter *c, uint64_t waits)
{
    float *right = NULL;

    for (int level = 0; waits >> level; level++) {
        float *left = c->levels + level * c->stride;

        if (!(waits >> level & 1)) continue;
        for (int64_t e = 0; right && e < c->floats; e += WIDTH)
            vector_store(left + e, vector_load(left + e) +
                                       vector_load(right + e));
        right = left;
    }
    return right;
}

static float lanes_dot(const float *a, const float *b, int width)
{
    float lanes[LANES] = {0};
    int e = 0;

    for (; e + LANES <= width; e += LANES) {
        SIMD
        for (int j = 0; j < LANES; j++)
            lanes[j] = __builtin_fmaf(a[e + j], b[e + j], lanes[j]);
    }
    for (int j = 0; e + j < width; j++)
        lanes[j] = __builtin_fmaf(a[e + j], b[e + j], lanes[j]);
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

/* All rows of the head into `out` [queries, padded]. */
static void head_pack(struct backward *b, const struct tensor *t, float *out)
{
    const int64_t row = attention_query_first(b->p, b->sequence);
    int64_t stride;

    for (int64_t i = 0; i < b->p->queries; i += G) {
        const int64_t left = b->p->queries - i, count = left < G ? left : G;
        const float *rows = CPU(attention_rows)(t, row + i, b->head, count,
                                                b->leaf, &stride);

        CPU(attention_pack_rows)(out + i * b->padded, rows, stride, count,
                                 b->width);
    }
}

static void head_init(struct backward *b)
{
    const struct attention *p = b->p;
    int64_t row = attention_query_first(p, b->sequence);
    int64_t before = b->query - b->base, stride;
    size_t lead = (size_t)(before * b->padded) * sizeof(float);
    float *dout = b->dout + before * b->padded;

    memset(b->q, 0, lead); /* packing may reach into what is packed next */
    head_pack(b, &p->q, b->q + before * b->padded);
    memset(b->dout, 0, lead);
    head_pack(b, &p->dout, dout);
    for (int64_t i = 0; i < p->queries; i++) {
        int64_t at = (row + i) * p->lse.stride[0] + b->head;

        b->sums[before + i] =
            p->delta.data ? ((float *)p->delta.data)[
                                (row + i) * p->delta.stride[0] + b->head]
                          : lanes_dot(dout + i * b->padded,
                                      CPU(attention_rows)(&p->out, row + i,
                                                          b->head, 1, b->leaf,
                                                          &stride),
                                      b->width);
        b->lse[before + i] = ((float *)p->lse.data)[at];
    }
}

/* Row of the key-value head at `first`, and the step from row to row. Where the
 * window begins inside the granule: a copy with zeros before it. */
static const float *granule_rows(struct backward *b, const struct tensor *t,
                                 int64_t first, int64_t *stride)
{
    const int from = granule_from(first, b->key);
    const int to = granule_to(first, b->key_end);
    const float *rows = CPU(attention_rows)(
        t, attention_key_first(b->p, b->sequence) + first + from - b->key,
        b->kv, to - from, b->leaf, stride);

    if (from == 0) return rows;
    memset(b->pair, 0, (size_t)(from * b->padded) * sizeof *rows);
    CPU(attention_pack_rows)(b->pair + from * b->padded, rows, *stride,
                             to - from, b->width);
    *stride = b->padded;
    return b->pair;
}

static void granule_init(struct backward *b, int64_t first)
{
    const int keys = granule_to(first, b->key_end);
    int64_t stride;
    const float *rows = granule_rows(b, &b->p->k, first, &stride);

    CPU(attention_pack_rows)(b->keys, rows, stride, keys, b->width);
    CPU(attention_pack_columns)(b->keys_t, rows, stride, keys, b->width);
    rows = granule_rows(b, &b->p->v, first, &stride);
    CPU(attention_pack_columns)(b->values_t, rows, stride, keys, b->width);
}

/* Weights and gradients of scores of one query, row i of its granule: from
 * q . k and dout . v. The query sees keys [from, to) of the granule at `first`
 * that are of its document; up to `end` the rest is +0. */
static void row_gradient(const struct backward *b, int64_t query,
                         int64_t first, int to, int end)
{
    const struct attention *p = b->p;
    const int from = granule_from(first, b->key);
    float *w = b->weights + query % G * G, *d = b->dscores + query % G * G;
    float lse = b->lse[query - b->base], sum = b->sums[query - b->base];
    float scale = b->scale;

    SIMD
    for (int j = 0; j < end; j++) {
        float weight = expz_f32(w[j] * scale - lse);

        w[j] = weight;
        d[j] = (weight * (d[j] - sum)) * scale;
    }
    if (p->key_documents) {
        const int32_t *documents =
            p->key_documents + attention_key_first(p, b->sequence) + from +
            first - b->key;
        int32_t own = p->query_documents[
            attention_query_first(p, b->sequence) + query - b->query];

        SIMD
        for (int j = from; j < to; j++) {
            w[j] = documents[j - from] == own ? w[j] : 0;
            d[j] = documents[j - from] == own ? d[j] : 0;
        }
    }
    for (int j = 0; j < from && j < end; j++) w[j] = d[j] = 0;
    for (int j = to > 0 ? to : 0; j < end; j++) w[j] = d[j] = 0;
}

/* BLOCK_ROWS queries from row i of the granule at `query` against the keys
 * at `first`: weights, gradients of scores, and their rows of dq's leaf. */
static void rows_backward(struct backward *b, int64_t query, int i,
                          int64_t first, float *leaf)
{
    bool diagonal = query == first;
    int keys = granule_to(first, b->key_end);
    int reach = diagonal && i + BLOCK_ROWS < keys ? i + BLOCK_ROWS : keys;
    int end = (reach + LANES - 1) / LANES * LANES;
    int64_t row = query + i, at = (row - b->base) * b->padded;
    struct chains x = {.length = b->width, .a_row = b->padded, .a_step = 1,
                       .b_step = BLOCK_COLUMNS, .c_row = G};

    for (int j = 0; j < reach; j += BLOCK_COLUMNS) {
        x.a = b->q + at;
        x.b = b->keys_t + j * b->width;
        x.c = b->weights + i * G + j;
        CPU(attention_chains)(&x, BLOCK_COLUMNS);
        x.a = b->dout + at;
        x.b = b->values_t + j * b->width;
        x.c = b->dscores + i * G + j;
        CPU(attention_chains)(&x, BLOCK_COLUMNS);
    }
    for (int r = 0; r < BLOCK_ROWS && row + r < b->query_end; r++) {
        const int64_t seen = row + r + 1 - first;

        if (row + r < b->query) continue; /* no rows of the window */
        row_gradient(b, row + r, first, seen < keys ? (int)seen : keys, end);
    }
    if (b->p->half == ATTENTION_OF_KEYS) return;
    x = (struct chains){.length = reach, .a = b->dscores + i * G, .a_row = G,
                        .a_step = 1, .b = b->keys, .b_step = b->padded,
                        .c = leaf + i * b->padded, .c_row = b->padded};
    CPU(attention_chains)(&x, b->padded);
}

/* pair = dk and dv of the granule at `first` from the one at `query`. */
static void pair_keys(struct backward *b, int64_t query, int64_t first,
                      float *pair)
{
    int64_t block = (int64_t)G * b->padded;
    int keys = granule_to(first, b->key_end);
    int queries = granule_to(query, b->query_end);
    int begin = granule_from(query, b->query);

    for (int j = 0; j < keys; j += BLOCK_ROWS) {
        int from = query == first && j > begin ? j : begin; /* who sees it */
        int64_t at = (query + from - b->base) * b->padded;
        struct chains x = {.length = queries > from ? queries - from : 0,
                           .a_row = 1, .a_step = G, .b_step = b->padded,
                           .c_row = b->padded};

        x.a = b->dscores + from * G + j;
        x.b = b->q + at;
        x.c = pair + j * b->padded;
        CPU(attention_chains)(&x, b->padded);
        x.a = b->weights + from * G + j;
        x.b = b->dout + at;
        x.c = pair + block + j * b->padded;
        CPU(attention_chains)(&x, b->padded);
    }
}

static void rows_write(const struct backward *b, const struct tensor *t,
                       int64_t row, const float *from, int rows)
{
    const int head = t == &b->p->dq ? b->head : b->kv;

    for (int r = 0; r < rows; r++)
        CPU(attention_write)(t, attention_row(t, row + r, head),
                             from + r * b->padded, b->width);
}

/* Rows of the granule at `query` that the window has. */
static void queries_write(const struct backward *b, int64_t query,
                          const float *root)
{
    const int from = granule_from(query, b->query);
    const int64_t row = attention_query_first(b->p, b->sequence) + query +
                        from - b->query;

    rows_write(b, &b->p->dq, row, root + from * b->padded,
               granule_to(query, b->query_end) - from);
}

static void keys_write(const struct backward *b, int64_t first,
                       const float *root)
{
    const int from = granule_from(first, b->key);
    const int keys = granule_to(first, b->key_end) - from;
    const int64_t row = attention_key_first(b->p, b->sequence) + first + from -
                        b->key;

    root += from * b->padded;
    rows_write(b, &b->p->dk, row, root, keys);
    rows_write(b, &b->p->dv, row, root + (int64_t)G * b->padded, keys);
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

        if (head_starts(b))
            memcpy(open, node, (size_t)(2 * block) * sizeof *node);
        else
            for (int64_t e = 0; e < 2 * block; e += WIDTH)
                vector_store(open + e, vector_load(open + e) +
                                           vector_load(node + e));
        if (head_ends(b) && !one_leaf(p))
            waits = counter_push(&tree, waits, head_leaf(p, b->head), open);
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
    const uint64_t waits = counter_push(dq, b->dq_waits, first / G, leaf);

    if (query == first || first + G >= b->key_end)
        queries_write(b, query, counter_root(dq, waits));
}

/* Queries that see no key of the window. */
static void queries_clear(struct backward *b)
{
    memset(b->leaf, 0, (size_t)(G * b->padded) * sizeof *b->leaf);
    for (int64_t query = b->base; query < b->key_base && query < b->query_end;
         query += G)
        queries_write(b, query, b->leaf);
}

/* One granule of keys with all granules of queries that see it. */
static void granule_backward(struct backward *b, uint64_t waits,
                             int64_t first)
{
    const enum attention_half half = b->p->half;
    int64_t block = (int64_t)G * b->padded;
    struct counter pairs = {b->pairs, 2 * block, 2 * block};
    uint64_t pairs_wait = 0;

    granule_init(b, first);
    for (int64_t query = larger(first, b->base); query < b->query_end;
         query += G) {
        int queries = granule_to(query, b->query_end);
        struct counter dq = {b->dq + (query - b->base) * b->padded,
                             b->rows * b->padded,
                             (int64_t)queries * b->padded};
        float *leaf = counter_place(&dq, first / G, b->leaf);
        float *pair = counter_place(&pairs, query / G, b->pair);

        for (int i = granule_from(query, b->query) / BLOCK_ROWS * BLOCK_ROWS;
             i < queries; i += BLOCK_ROWS)
            rows_backward(b, query, i, first, leaf);
        if (half != ATTENTION_OF_KEYS)
            queries_push(b, query, first, &dq, leaf);
        if (half == ATTENTION_OF_QUERIES) continue;
        pair_keys(b, query, first, pair);
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
        head_init(b);
        b->dq_waits = 0;
        if (b->p->half == ATTENTION_OF_QUERIES) queries_clear(b);
        for (int64_t first = b->key_base; first < b->key_end; first += G) {
            granule_backward(b, waits, first);
            b->dq_waits = counter_waits(b->dq_waits, first / G);
        }
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
    threads_split(job->p->sequences * job->p->kv_heads, 1, index,
                  job->workers, &first, &last);
    for (int64_t unit = first; unit < last; unit++) {
        b.sequence = unit / job->p->kv_heads;
        b.kv = (int)(unit % job->p->kv_heads);
        unit_backward(&b);
    }
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

/* What does not fit scratch, very long sequences of very wide heads, is left to
 * the reference: the bits are the same. */
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
