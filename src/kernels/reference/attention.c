/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the attention that defines the bits, forward.
 *
 * One query at a time, granule by granule of keys. The partial results of
 * granules (maximum, denominator, weighted values) meet in a binary tree over
 * absolute granule numbers, so where a sequence or a cache is cut does not
 * show. Source: online softmax, Milakov and Gimelshein, arXiv 1805.02867;
 * merged pairwise as in Dao et al., arXiv 2205.14135, section 3.1.
 *
 * A granule of which the query sees no key is a missing child of the tree
 * (denominator 0): its parent is the other child, bit for bit. Every weighted
 * value of a granule ends with + (+0), so that a key with weight +0 and a key
 * that is skipped give the same bits. Inputs are finite.
 *
 * In tiles every sum over the width, over keys and over queries is that of a
 * granule of a matrix product in tiles, whose numbers are those of the head's
 * elements or of positions, and weights are rounded to bfloat16 after their
 * sum, and dropout, was made. */
#include <string.h>
#include "kernels/alibi.h"
#include "kernels/element.h"
#include "kernels/flush.h"
#include "kernels/narrow_product.h"
#include "kernels/reference/attention.h"

struct partial {
    real maximum, denominator; /* denominator 0: missing */
    real values[HEAD_WIDTH_MAX];
};

/* ---- products ---- */

#if REAL_BITS == 32
/* out[j] = x . y of `columns` columns: element e of column j lies at y[e * step
 * + j * stride] and has number first + e in its granule. */
struct tiles {
    const float *x, *y;
    int64_t step, stride;
    int first, length, columns;
};

/* c[j] = x * y[j * stride] + c[j], flushed. */
REAL_CLONES static void columns_fma(float x, const float *y, int64_t stride,
                                    float *c, int columns)
{
    if (stride == 1) {
        _Pragma("omp simd")
        for (int j = 0; j < columns; j++) c[j] = flushed_fma(x, y[j], c[j]);
    } else {
        for (int j = 0; j < columns; j++)
            c[j] = flushed_fma(x, y[j * stride], c[j]);
    }
}

/* As a granule of a matrix product in tiles (matmul.c), and + (+0): elements
 * that are not there count as +0. */
static void tiles_sum(const struct tiles *t, float *out)
{
    const int end = t->first + t->length;

    for (int j = 0; j < t->columns; j++) out[j] = 0;
    for (int block = 0; block < end; block += PRODUCT_BLOCK) {
        float halves[2][HEAD_WIDTH_MAX] = {{0}};

        for (int k = block; k < block + PRODUCT_BLOCK && k < end; k++)
            if (k >= t->first)
                columns_fma(t->x[k - t->first],
                            t->y + (k - t->first) * t->step, t->stride,
                            halves[k % 2], t->columns);
        for (int j = 0; j < t->columns; j++)
            out[j] = flushed_add(out[j],
                                 flushed_add(halves[0][j], halves[1][j]));
    }
    for (int j = 0; j < t->columns; j++) out[j] = out[j] + 0.0f;
}
#endif

real NAME(attention_operand)(const struct attention *p, real x)
{
#if REAL_BITS == 32
    if (p->tiles) return f32_of_bits(element_to_bf16(x) << 16);
#endif
    (void)p;
    return x;
}

REAL_CLONES void NAME(attention_dots)(const struct attention *p, real *out,
                                      const real *x,
                                      struct attention_rows rows)
{
    real chain[ATTENTION_GRANULE] = {0};

#if REAL_BITS == 32
    if (p->tiles) {
        tiles_sum(&(struct tiles){x, rows.data, 1, rows.stride, 0,
                                  p->head_width, rows.count}, out);
        return;
    }
#endif
    for (int e = 0; e < p->head_width; e++)
        for (int j = 0; j < rows.count; j++)
            chain[j] = REAL_FMA(x[e], rows.data[j * rows.stride + e],
                                chain[j]);
    memcpy(out, chain, (size_t)rows.count * sizeof(real));
}

REAL_CLONES void NAME(attention_sum)(const struct attention *p, real *sum,
                                     const real *weights,
                                     struct attention_rows rows)
{
#if REAL_BITS == 32
    if (p->tiles) {
        tiles_sum(&(struct tiles){weights, rows.data, rows.stride, 1,
                                  rows.first, rows.count, p->head_width}, sum);
        return;
    }
#endif
    for (int e = 0; e < p->head_width; e++) sum[e] = 0;
    for (int j = 0; j < rows.count; j++) {
        const real *row = rows.data + j * rows.stride;

        _Pragma("omp simd")
        for (int e = 0; e < p->head_width; e++)
            sum[e] = REAL_FMA(weights[j], row[e], sum[e]);
    }
    for (int e = 0; e < p->head_width; e++) sum[e] = sum[e] + (real)0;
}

/* ---- scores ---- */

/* Folds lanes in place: halves added, 8, 4, 2, 1. */
static real lanes_fold(real *lanes)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

real NAME(attention_lanes)(const real *a, const real *b, int width)
{
    real lanes[LANES] = {0};

    for (int e = 0; e < width; e++)
        lanes[e % LANES] = REAL_FMA(a[e], b[e], lanes[e % LANES]);
    return lanes_fold(lanes);
}

bool NAME(attention_sees)(const struct attention *p, int64_t sequence,
                          int64_t query, int64_t key)
{
    if (key > query) return false;
    if (key < attention_lowest(p, query)) return false;
    if (!p->query_documents) return true;
    return p->query_documents[attention_query_row(p, sequence, query)] ==
           p->key_documents[attention_key_row(p, sequence, key)];
}

bool NAME(attention_before)(const struct attention *p, int64_t query,
                            int64_t first)
{
    return first + ATTENTION_GRANULE <= attention_lowest(p, query);
}

real NAME(attention_keep)(const struct attention *p, int64_t sequence,
                          int64_t query, int64_t key, int head)
{
    const struct attention_dropout *drop = &p->drop;
    uint32_t words[4];

    if (drop->rate == 0) return 1;
    random_block(drop->key, drop->sequence + (uint64_t)sequence,
                 (uint64_t)(drop->head + head) << DROPOUT_HEAD_SHIFT |
                     (uint64_t)query << DROPOUT_QUERY_SHIFT |
                     (uint64_t)(key / 4), words);
    return words[key % 4] >= dropout_least(drop->rate)
               ? (real)(1 / (1 - drop->rate)) : 0;
}

void NAME(attention_lean)(const struct attention *p, int64_t sequence,
                          int64_t key, int count, int head, real *products)
{
    const int64_t row = attention_key_row(p, sequence, key);

    if (p->alibi.heads == 0) return;
    const float slope = alibi_slope(&p->alibi, head);

    for (int j = 0; j < count; j++)
        products[j] = products[j] + (real)alibi_of(slope, p->key_documents,
                                                   row + j, key + j);
}

static void tensor_check(const struct tensor *t, int64_t rows, int heads,
                         int width)
{
    CHECK(t->dtype == REAL_DTYPE && t->dimensions == 3);
    CHECK(t->shape[0] >= rows && t->shape[1] == heads);
    CHECK(t->shape[2] == width && t->stride[2] == 1);
}

/* Whether positions [first, first + count) are a node of the tree. */
static bool node_fits(int64_t first, int64_t count)
{
    const int64_t granules = count / ATTENTION_GRANULE;

    return count > 0 && count % ATTENTION_GRANULE == 0 &&
           (granules & (granules - 1)) == 0 && first % count == 0;
}

void NAME(attention_check)(const struct attention *p, bool backward)
{
    int64_t end = p->first_query + p->queries, last = p->sequences - 1;
    int64_t rows = attention_query_row(p, last, end);
    int64_t key_rows = attention_key_row(p, last, p->first_key + p->keys);

    CHECK(p->head_width >= 1 && p->head_width <= HEAD_WIDTH_MAX);
    CHECK(p->heads >= 1 && p->kv_heads >= 1 && p->heads % p->kv_heads == 0);
    CHECK(p->sequences >= 1 && p->queries >= 1 && p->first_query >= 0);
    CHECK(p->key_stride == 0 || p->key_stride >= p->keys);
    CHECK(p->query_stride == 0 || p->query_stride >= p->queries);
    if (p->first_key != 0 || p->keys < end)
        CHECK(p->half == ATTENTION_OF_KEYS ||
              (node_fits(p->first_key, p->keys) &&
               (backward || p->denominator.data)));
    CHECK(!p->query_documents == !p->key_documents && (real)p->scale > 0);
    CHECK(p->window >= 0 && p->chunk >= 0 && p->softcap >= 0);
    CHECK(p->window == 0 || p->chunk == 0);
    CHECK(!p->tiles || REAL_BITS == 32);
    CHECK(p->alibi.heads == 0 || p->alibi.head + p->heads <= p->alibi.heads);
    tensor_check(&p->q, rows, p->heads, p->head_width);
    if (!backward || !p->delta.data)
        tensor_check(&p->out, rows, p->heads, p->head_width);
    tensor_check(&p->k, key_rows, p->kv_heads, p->head_width);
    tensor_check(&p->v, key_rows, p->kv_heads, p->head_width);
    CHECK(p->v.dtype == p->k.dtype);
    CHECK(p->lse.dtype == REAL_DTYPE && p->lse.stride[0] >= p->heads);
    if (!backward) return;
    CHECK(p->half != ATTENTION_WHOLE ||
          (p->first_query == 0 && p->keys == p->queries));
    CHECK(p->leaves >= 1 && p->heads % p->leaves == 0);
    tensor_check(&p->dout, rows, p->heads, p->head_width);
    if (p->half != ATTENTION_OF_KEYS)
        tensor_check(&p->dq, rows, p->heads, p->head_width);
    if (p->half == ATTENTION_OF_QUERIES) return;
    tensor_check(&p->dk, key_rows, p->kv_heads, p->head_width);
    tensor_check(&p->dv, key_rows, p->kv_heads, p->head_width);
}

/* One query and head. */
struct one {
    int64_t sequence, query, row; /* query: its position */
    int head;
};

/* weights[j] = expz(score - maximum) for the keys of one granule, +0 for those
 * not seen. Returns the number of keys seen. */
static int granule_weights(const struct attention *p, const struct one *at,
                           int64_t first_key, struct partial *out,
                           real *weights)
{
    int64_t sequence = at->sequence, query = at->query;
    int64_t left = query + 1 - first_key;
    int head = at->head;
    int count = left < ATTENTION_GRANULE ? (int)left : ATTENTION_GRANULE;
    int kv = head / (p->heads / p->kv_heads), seen = 0;
    bool sees[ATTENTION_GRANULE];
    real scale = (real)p->scale, lanes[LANES] = {0};

    NAME(attention_dots)(
        p, weights, attention_at(&p->q, at->row, head),
        attention_rows(&p->k, attention_key_row(p, sequence, first_key), kv,
                       0, count));
    NAME(attention_lean)(p, sequence, first_key, count, head, weights);
    out->maximum = -(real)INFINITY;
    for (int j = 0; j < count; j++) {
        sees[j] = NAME(attention_sees)(p, sequence, query, first_key + j);
        seen += sees[j];
        if (!sees[j]) continue;
        weights[j] = weights[j] * scale;
        if (p->softcap > 0)
            weights[j] = (real)p->softcap *
                         REAL_TANH(weights[j] * (real)(1 / p->softcap));
        if (!(out->maximum > weights[j])) out->maximum = weights[j];
    }
    for (int j = 0; j < count; j++) {
        weights[j] = sees[j] ? REAL_EXPZ(weights[j] - out->maximum) : 0;
        lanes[j % LANES] = lanes[j % LANES] + weights[j];
    }
    out->denominator = lanes_fold(lanes);
    for (int j = 0; j < count && p->drop.rate > 0; j++)
        weights[j] = weights[j] * NAME(attention_keep)(p, sequence, query,
                                                       first_key + j, head);
    for (int j = 0; j < count; j++)
        weights[j] = NAME(attention_operand)(p, weights[j]);
    return seen;
}

/* right = left merged with right; left holds the earlier keys. */
static void partial_merge(const struct partial *left, struct partial *right,
                          int width)
{
    real maximum, a, b;

    if (left->denominator == 0) return;
    if (right->denominator == 0) {
        *right = *left;
        return;
    }
    maximum = left->maximum > right->maximum ? left->maximum : right->maximum;
    a = REAL_EXPZ(left->maximum - maximum);
    b = REAL_EXPZ(right->maximum - maximum);
    right->maximum = maximum;
    right->denominator = REAL_FMA(left->denominator, a, right->denominator * b);
    for (int e = 0; e < width; e++)
        right->values[e] = REAL_FMA(left->values[e], a, right->values[e] * b);
}

/* The address of an element of a [rows, heads] tensor. */
static real *number_at(const struct tensor *t, int64_t row, int head)
{
    return (real *)t->data + row * t->stride[0] + head;
}

static void root_write(real *out, real *lse, const struct partial *root,
                       int width)
{
    real factor = 1 / root->denominator;

    for (int e = 0; e < width; e++)
        out[e] = root->denominator == 0 ? 0 : root->values[e] * factor;
    *lse = root->denominator == 0
               ? -(real)INFINITY
               : root->maximum + REAL_LOG(root->denominator);
}

/* Threads share it. */
static void peak_raise(real *peak, real value)
{
    real old;

    __atomic_load(peak, &old, __ATOMIC_RELAXED);
    while (value > old &&
           !__atomic_compare_exchange(peak, &old, &value, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

/* The tree over granules as a binary counter: levels[l] is the finished node
 * of 2^l granules that waits for its right neighbour. */
static void query_forward(const struct attention *p, const struct one *at)
{
    struct partial levels[ATTENTION_LEVELS], node;
    int64_t query = at->query, end = p->first_key + p->keys;
    int64_t begin = p->first_key / ATTENTION_GRANULE;
    int64_t granules =
        (query < end ? query : end - 1) / ATTENTION_GRANULE + 1 - begin;
    int kv = at->head / (p->heads / p->kv_heads), level;
    real weights[ATTENTION_GRANULE];
    real *out = attention_at(&p->out, at->row, at->head);
    real *lse = number_at(&p->lse, at->row, at->head);

    for (int64_t g = 0; g < granules; g++) {
        int64_t first = (begin + g) * ATTENTION_GRANULE;
        int64_t left = query + 1 - first;
        int count = left < ATTENTION_GRANULE ? (int)left : ATTENTION_GRANULE;
        int64_t key_row = attention_key_row(p, at->sequence, first);

        if (NAME(attention_before)(p, query, first) ||
            granule_weights(p, at, first, &node, weights) == 0)
            node.denominator = 0;
        else
            NAME(attention_sum)(p, node.values, weights,
                                attention_rows(&p->v, key_row, kv, 0, count));
        for (level = 0; g >> level & 1; level++)
            partial_merge(&levels[level], &node, p->head_width);
        levels[level] = node;
    }
    node.denominator = 0;
    for (level = 0; level < ATTENTION_LEVELS; level++)
        if (granules > 0 && granules >> level & 1)
            partial_merge(&levels[level], &node, p->head_width);
    if (p->peaks && node.denominator != 0)
        peak_raise((real *)p->peaks + at->head, node.maximum);
    if (p->denominator.data) {
        ((real *)p->denominator.data)[at->row * p->denominator.stride[0] +
                                      at->head] = node.denominator;
        if (node.denominator == 0) return;
        memcpy(out, node.values, (size_t)p->head_width * sizeof *out);
        *lse = node.maximum;
        return;
    }
    root_write(out, lse, &node, p->head_width);
}

static void forward_body(void *argument, int index, int count)
{
    const struct attention *p = argument;
    int64_t first, last;

    threads_split(p->sequences * p->queries * p->heads, 1, index, count,
                  &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t query = i / p->heads;
        struct one at = {.sequence = query / p->queries,
                         .query = p->first_query + query % p->queries,
                         .head = (int)(i % p->heads)};

        at.row = attention_query_row(p, at.sequence, at.query);
        query_forward(p, &at);
    }
}

status NAME(attention_forward)(struct stream *stream,
                               const struct attention *p)
{
    struct attention copy = *p;

    NAME(attention_check)(p, false);
    threads_run(stream->threads, forward_body, &copy);
    return OK;
}

/* ---- nodes that a caller merges ---- */

static void node_read(struct partial *out, const struct attention_node *node,
                      int64_t row, int head)
{
    out->denominator = *number_at(&node->denominator, row, head);
    if (out->denominator == 0) return;
    out->maximum = *number_at(&node->maximum, row, head);
    memcpy(out->values, attention_at(&node->values, row, head),
           (size_t)node->values.shape[2] * sizeof(real));
}

struct merge {
    const struct attention_node *left, *right;
};

static void merge_body(void *argument, int index, int count)
{
    const struct merge *m = argument;
    const struct tensor *values = &m->left->values;
    const int heads = (int)values->shape[1], width = (int)values->shape[2];
    int64_t first, last;

    threads_split(values->shape[0] * heads, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / heads;
        const int head = (int)(i % heads);
        struct partial left, right;

        node_read(&left, m->left, row, head);
        node_read(&right, m->right, row, head);
        partial_merge(&left, &right, width);
        *number_at(&m->left->denominator, row, head) = right.denominator;
        if (right.denominator == 0) continue;
        *number_at(&m->left->maximum, row, head) = right.maximum;
        memcpy(attention_at(values, row, head), right.values,
               (size_t)width * sizeof(real));
    }
}

status NAME(attention_merge)(struct stream *stream,
                             const struct attention_node *left,
                             const struct attention_node *right)
{
    struct merge merge = {left, right};

    threads_run(stream->threads, merge_body, &merge);
    return OK;
}

status NAME(attention_finish)(struct stream *stream, struct tensor out,
                              struct tensor lse,
                              const struct attention_node *root)
{
    const int heads = (int)out.shape[1];

    (void)stream;
    for (int64_t i = 0; i < out.shape[0] * heads; i++) {
        const int head = (int)(i % heads);
        struct partial node;

        node_read(&node, root, i / heads, head);
        root_write(attention_at(&out, i / heads, head),
                   number_at(&lse, i / heads, head), &node,
                   (int)out.shape[2]);
    }
    return OK;
}
