/* SPDX-License-Identifier: Apache-2.0 */
/* attention_one.c - attention of one query a head, as generation asks for it.
 *
 * Lanes are keys: squares of keys are read where they lie, in their own type,
 * and turned in registers. Nothing is copied, and of what the next product
 * reads memory is asked while this one works: rows of a cache lie pages apart,
 * which no processor guesses. The granules, their chains and their tree are
 * those of attention.c. */
#include <math.h>

#include "kernels/cpu/attention/attention.h"
#include "kernels/lanes.h"

/* The result of some granules. */
struct node {
    float values[HEAD_WIDTH_MAX], maximum, denominator;
};

/* One head. */
struct one {
    const struct attention *p;
    float q[HEAD_WIDTH_MAX];
    float weights[G] __attribute__((aligned(64)));
    struct node nodes[ATTENTION_NODES];
};

/* Rows of keys or values of a head; bytes. */
struct rows {
    const char *at;
    int64_t stride, bytes; /* bytes 0: there are none */
};

static struct rows rows_of(const struct tensor *t, int64_t row, int head)
{
    const int64_t size = dtype_bytes(t->dtype);

    return (struct rows){attention_row(t, row, head), size * t->stride[0],
                         size * t->shape[2]};
}

INLINE void row_ask(const struct rows *rows, int64_t row)
{
    for (int64_t byte = 0; byte < rows->bytes; byte += LINE)
        __builtin_prefetch(rows->at + row * rows->stride + byte, 0, 3);
}

/* Word `w` of WIDTH keys times that of the query. */
INLINE vector word_score(const bool narrow, const float *q, int w, vector keys,
                         vector sum)
{
    if (!narrow) return vector_fma_lanes(q[w], keys, sum);
    sum = vector_fma_lanes(q[2 * w], vector_even(keys), sum);
    return vector_fma_lanes(q[2 * w + 1], vector_odd(keys), sum);
}

/* Scores of keys [first, first + WIDTH), of which `present` exist. The last
 * square of words may begin before what is left. */
INLINE void keys_score(const bool narrow, struct one *o,
                       const struct rows *keys, int first, int present)
{
    const int words = (int)keys->bytes / 4;
    const char *row[WIDTH];
    vector sum = vector_fill(0), square[WIDTH];
    int w = 0;

    for (int j = 0; j < WIDTH; j++)
        row[j] = keys->at +
                 (first + (j < present ? j : present - 1)) * keys->stride;
    for (; w + WIDTH <= words; w += WIDTH) {
        UNROLL for (int j = 0; j < WIDTH; j++)
            square[j] = vector_load_words(row[j] + 4 * w);
        vector_transpose(square);
        UNROLL for (int j = 0; j < WIDTH; j++)
            sum = word_score(narrow, o->q, w + j, square[j], sum);
    }
    if (w < words) {
        const int from = words - WIDTH;

        UNROLL for (int j = 0; j < WIDTH; j++)
            square[j] = vector_load_words(row[j] + 4 * from);
        vector_transpose(square);
        UNROLL for (int j = 0; j < WIDTH; j++)
            if (from + j >= w)
                sum = word_score(narrow, o->q, from + j, square[j], sum);
    }
    vector_store(o->weights + first, sum + vector_fill(0));
}

/* Products of `count` keys become weights, with their sum. */
static void weights_make(struct one *o, int count, struct node *node)
{
    float most[LANES], sums[LANES] = {0}, *x = o->weights;
    const float scale = (float)o->p->scale;

    for (int j = count; j % LANES != 0; j++) x[j] = -(float)INFINITY;
    memcpy(most, x, sizeof most);
    for (int i = LANES; i < count; i += LANES)
        EACH_LANE most[j] = most[j] > x[i + j] ? most[j] : x[i + j];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            most[j] = most[j] > most[j + half] ? most[j] : most[j + half];
    const float m = most[0] * scale;

    for (int i = 0; i < count; i += LANES)
        EACH_LANE {
            x[i + j] = expz_f32(x[i + j] * scale - m);
            sums[j] = sums[j] + x[i + j];
        }
    node->maximum = m;
    node->denominator = lanes_fold(sums);
}

INLINE vector elements_load(const bool narrow, const char *from)
{
    return narrow ? vector_widen(from) : vector_load_words(from);
}

/* Columns of the weighted sum of `count` values. */
INLINE void values_sum(const bool narrow, const int vectors,
                       const struct one *o, struct rows values, int count,
                       float *to)
{
    const int size = narrow ? 2 : 4;
    vector sum[4];

    UNROLL for (int v = 0; v < vectors; v++) sum[v] = vector_fill(0);
    for (int j = 0; j < count; j++) {
        UNROLL for (int v = 0; v < vectors; v++)
            sum[v] = vector_fma_lanes(
                o->weights[j],
                elements_load(narrow, values.at + v * WIDTH * size), sum[v]);
        values.at += values.stride;
    }
    UNROLL for (int v = 0; v < vectors; v++)
        vector_store(to + v * WIDTH, sum[v] + vector_fill(0));
}

/* `count` keys of a head: rows of them, of their values, and of what is read
 * next. */
INLINE void granule_attend(const bool narrow, struct one *o,
                           const struct rows rows[3], int count,
                           struct node *node)
{
    const int width = o->p->head_width;
    struct rows values = rows[1];
    int at = 0;

    for (int j = 0; j < count; j += WIDTH) {
        const int left = count - j;

        for (int i = j; i < j + WIDTH && i < count; i++) row_ask(&rows[1], i);
        keys_score(narrow, o, &rows[0], j, left < WIDTH ? left : WIDTH);
    }
    for (int j = 0; j < count; j++) row_ask(&rows[2], j);
    weights_make(o, count, node);
    for (; at + 4 * WIDTH <= width; at += 4 * WIDTH) {
        values_sum(narrow, 4, o, values, count, node->values + at);
        values.at += 4 * WIDTH * (narrow ? 2 : 4);
    }
    for (; at < width; at += WIDTH) {
        values_sum(narrow, 1, o, values, count, node->values + at);
        values.at += WIDTH * (narrow ? 2 : 4);
    }
}

/* left = left merged with right; left holds the earlier keys. */
static void node_merge(struct node *left, const struct node *right, int width)
{
    const float ml = left->maximum, mr = right->maximum;
    const float m = ml > mr ? ml : mr;
    const float a = expz_f32(ml - m), b = expz_f32(mr - m);

    left->maximum = m;
    left->denominator =
        __builtin_fmaf(left->denominator, a, right->denominator * b);
    SIMD for (int e = 0; e < width; e++)
        left->values[e] =
            __builtin_fmaf(left->values[e], a, right->values[e] * b);
}

static void head_finish(const struct one *o, int64_t row, int head)
{
    const struct attention *p = o->p;
    const struct attention_part part = {&p->out, row, head, 1, false};
    const struct node *node = &o->nodes[0];
    const float factor = 1 / node->denominator;

    ((float *)p->lse.data)[row * p->lse.stride[0] + head] =
        node->maximum + log_f32(node->denominator);
    CPU(attention_write)(&part, node->values, &factor);
}

/* Head `head` of a sequence; `more`: the one after it is this thread's too. */
INLINE void head_attend(const bool narrow, struct one *o, int64_t sequence,
                        int head, bool more)
{
    const struct attention *p = o->p;
    const int group = p->heads / p->kv_heads, kv = head / group;
    const int64_t row = attention_query_first(p, sequence);
    const int64_t keys = attention_key_first(p, sequence);
    const int64_t end = p->first_query + 1;
    const bool asks = more && head + 1 < p->heads && (head + 1) / group != kv;
    int depth = 0;

    for (int e = 0; e < p->head_width; e++)
        o->q[e] = element_get(attention_row(&p->q, row, head), p->q.dtype, e);
    for (int64_t first = 0; first < end; first += G) {
        const int64_t left = end - first;
        const struct rows rows[3] = {
            rows_of(&p->k, keys + first, kv), rows_of(&p->v, keys + first, kv),
            asks ? rows_of(&p->k, keys + first, kv + 1) : (struct rows){0}};

        CHECK(depth < ATTENTION_NODES);
        granule_attend(narrow, o, rows, left < G ? (int)left : G,
                       &o->nodes[depth++]);
        for (int64_t carry = first / G; carry & 1; carry >>= 1, depth--)
            node_merge(&o->nodes[depth - 2], &o->nodes[depth - 1],
                       p->head_width);
    }
    for (; depth > 1; depth--)
        node_merge(&o->nodes[depth - 2], &o->nodes[depth - 1], p->head_width);
    head_finish(o, row, head);
}

static void one_body(void *argument, int index, int count)
{
    const struct attention *p = argument;
    int64_t first, last;
    struct one o;

    o.p = p;
    threads_split(p->sequences * p->heads, 1, index, count, &first, &last);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t sequence = unit / p->heads;
        const int head = (int)(unit % p->heads);

        if (p->k.dtype == DTYPE_BF16)
            head_attend(true, &o, sequence, head, unit + 1 < last);
        else
            head_attend(false, &o, sequence, head, unit + 1 < last);
    }
}

bool CPU(attention_one)(struct stream *stream, const struct attention *p)
{
    const int64_t bytes = p->head_width * dtype_bytes(p->k.dtype);

    if (p->queries != 1 || p->tiles || p->key_documents || p->window > 0 ||
        p->chunk > 0 ||
        p->softcap > 0 || p->alibi.heads > 0 || p->drop.rate > 0 || p->peaks ||
        p->denominator.data || p->first_key != 0)
        return false;
    if ((p->k.dtype != DTYPE_F32 && p->k.dtype != DTYPE_BF16) ||
        p->head_width % WIDTH != 0 || bytes < 4 * WIDTH)
        return false;
    cpu_run(stream, p->sequences * p->heads * p->keys * p->head_width, one_body,
            (void *)p);
    return true;
}
