/* SPDX-License-Identifier: Apache-2.0 */
/* attention_backward.c - gradients of attention that define the bits.
 *
 * With v = (q . k) scale as in the forward pass, P = expz(v - lse),
 * D = dout . out, dS = (P (dout . v - D)) scale (Dao et al., arXiv 2205.14135,
 * appendix B.4):
 *   dq = sum over keys of dS k, one chain per granule of keys, then the tree
 *   dk = sum over queries of dS q, one chain per granule of queries, the tree;
 *   dv = the same of P dout;  then query heads in order inside a leaf, then
 *        the tree over leaves.
 * With linear biases v = (q . k + bias) scale.
 * With a soft cap c and t = tanh(v (1 / c)), P is that of c t, and dS =
 * ((P (dout . v - D)) fma(-t, t, 1)) scale. With dropout, whose factor of the
 * pair is 0 or f, dS has factor dout . v, and dv sums P factor. In tiles dS and
 * P, or P factor, are rounded to bfloat16 where they are multiplied.
 * Each chain ends with + (+0). So no sum is ever -0, and a granule without a
 * visible pair may be left out of the tree or added as +0: the bits agree. */
#include <string.h>
#include "kernels/reference/attention.h"

enum { GRADIENT = 2 * HEAD_WIDTH_MAX }; /* dk and dv side by side */

/* Binary counter over the leaves of a tree: levels[l] waits for its right
 * neighbour. */
struct tree {
    int width;      /* elements used */
    uint64_t waits; /* bit l: levels[l] holds a node */
    real levels[ATTENTION_LEVELS][GRADIENT];
};

static void tree_init(struct tree *tree, int width)
{
    tree->width = width;
    tree->waits = 0;
}

static void gradient_add(const real *left, real *right, int width)
{
    for (int e = 0; e < width; e++) right[e] = left[e] + right[e];
}

/* Adds leaf `number`; numbers ascend and may have holes. `node` is spoiled. */
static void tree_push(struct tree *tree, int64_t number, real *node)
{
    int level = 0;

    for (; number >> level & 1; level++) {
        if (!(tree->waits >> level & 1)) continue;
        gradient_add(tree->levels[level], node, tree->width);
        tree->waits &= ~(UINT64_C(1) << level);
    }
    memcpy(tree->levels[level], node, (size_t)tree->width * sizeof(real));
    tree->waits |= UINT64_C(1) << level;
}

static void tree_root(const struct tree *tree, real *root)
{
    bool empty = true;

    memset(root, 0, (size_t)tree->width * sizeof(real));
    for (int level = 0; level < ATTENTION_LEVELS; level++) {
        if (!(tree->waits >> level & 1)) continue;
        if (empty)
            memcpy(root, tree->levels[level],
                   (size_t)tree->width * sizeof(real));
        else
            gradient_add(tree->levels[level], root, tree->width);
        empty = false;
    }
}

static real row_dot(const struct attention *p, int64_t row, int head)
{
    return NAME(attention_lanes)(attention_at(&p->dout, row, head),
                                 attention_at(&p->out, row, head),
                                 p->head_width);
}

/* P, as dv sees it, and dS, as dq and dk do, of one pair from q . k and
 * dout . v. keep: what dropout multiplies P by. */
static void pair(const struct attention *p, int64_t row, int head, real keep,
                 real *qk, real *dov)
{
    real scale = (real)p->scale;
    real lse = ((real *)p->lse.data)[row * p->lse.stride[0] + head];
    real d = p->delta.data ? ((real *)p->delta.data)[
                                 row * p->delta.stride[0] + head]
                          : row_dot(p, row, head);

    real score = *qk * scale, dp = *dov * keep, t = 0;

    if (p->softcap > 0) {
        t = REAL_TANH(score * (real)(1 / p->softcap));
        score = (real)p->softcap * t;
    }
    *qk = REAL_EXPZ(score - lse);
    *dov = *qk * (dp - d);
    if (p->softcap > 0) *dov = *dov * REAL_FMA(-t, t, 1);
    *dov = NAME(attention_operand)(p, *dov * scale);
    *qk = NAME(attention_operand)(p, *qk * keep);
}

/* dq of one query and head. */
static void query_backward(const struct attention *p, int64_t sequence,
                           int64_t query, int head)
{
    struct tree tree;
    int64_t row = attention_query_row(p, sequence, query);
    int kv = head / (p->heads / p->kv_heads);
    real qk[ATTENTION_GRANULE], dov[ATTENTION_GRANULE], node[HEAD_WIDTH_MAX];

    tree_init(&tree, p->head_width);
    for (int64_t first = p->first_key;
         first <= query && first < p->first_key + p->keys;
         first += ATTENTION_GRANULE) {
        int64_t left = query + 1 - first;
        int count = left < ATTENTION_GRANULE ? (int)left : ATTENTION_GRANULE;
        int64_t key_row = attention_key_row(p, sequence, first);
        const struct attention_rows k =
            attention_rows(&p->k, key_row, kv, 0, count);

        if (NAME(attention_before)(p, query, first)) continue;
        NAME(attention_dots)(p, qk, attention_at(&p->q, row, head), k);
        NAME(attention_dots)(p, dov, attention_at(&p->dout, row, head),
                             attention_rows(&p->v, key_row, kv, 0, count));
        NAME(attention_lean)(p, sequence, first, count, head, qk);
        for (int j = 0; j < count; j++) {
            if (NAME(attention_sees)(p, sequence, query, first + j))
                pair(p, row, head,
                     NAME(attention_keep)(p, sequence, query, first + j, head),
                     &qk[j], &dov[j]);
            else
                dov[j] = 0;
        }
        NAME(attention_sum)(p, node, dov, k);
        tree_push(&tree, first / ATTENTION_GRANULE, node);
    }
    tree_root(&tree, attention_at(&p->dq, row, head));
}

/* sum = dk, then dv, of one key from one query head. */
static void head_backward(const struct attention *p, int64_t sequence,
                          int64_t key, int head, real *sum)
{
    struct tree tree;
    int kv = head / (p->heads / p->kv_heads);
    int64_t key_row = attention_key_row(p, sequence, key), next;
    int64_t first = key, end = p->first_query + p->queries;
    real qk[ATTENTION_GRANULE], dov[ATTENTION_GRANULE], bias = 0;

    tree_init(&tree, 2 * p->head_width);
    NAME(attention_lean)(p, sequence, key, 1, head, &bias);
    if (first < p->first_query) first = p->first_query;
    if (end > attention_past(p, key)) end = attention_past(p, key);
    for (; first < end; first = next) {
        int64_t row = attention_query_row(p, sequence, first);
        int64_t granule = first / ATTENTION_GRANULE;
        const int number = (int)(first % ATTENTION_GRANULE);
        struct attention_rows q, dout;
        int count;

        next = (granule + 1) * ATTENTION_GRANULE;
        count = (int)((next < end ? next : end) - first);
        q = attention_rows(&p->q, row, head, number, count);
        dout = attention_rows(&p->dout, row, head, number, count);
        NAME(attention_dots)(p, qk, attention_at(&p->k, key_row, kv), q);
        NAME(attention_dots)(p, dov, attention_at(&p->v, key_row, kv), dout);
        for (int j = 0; j < count && p->alibi.heads > 0; j++)
            qk[j] = qk[j] + bias;
        for (int j = 0; j < count; j++) {
            if (NAME(attention_sees)(p, sequence, first + j, key))
                pair(p, row + j, head,
                     NAME(attention_keep)(p, sequence, first + j, key, head),
                     &qk[j], &dov[j]);
            else
                qk[j] = dov[j] = 0;
        }
        NAME(attention_sum)(p, sum, dov, q);
        NAME(attention_sum)(p, sum + p->head_width, qk, dout);
        tree_push(&tree, granule, sum);
    }
    tree_root(&tree, sum);
}

/* dk and dv of one key and key-value head. */
static void key_backward(const struct attention *p, int64_t sequence,
                         int64_t key, int kv)
{
    struct tree tree;
    int group = p->heads / p->kv_heads, per_leaf = p->heads / p->leaves;
    int64_t key_row = attention_key_row(p, sequence, key);
    real sum[GRADIENT], one[GRADIENT];
    size_t bytes = (size_t)p->head_width * sizeof(real);

    tree_init(&tree, 2 * p->head_width);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        bool starts = head == kv * group || head % per_leaf == 0;
        bool ends = head == (kv + 1) * group - 1 || (head + 1) % per_leaf == 0;

        head_backward(p, sequence, key, head, one);
        for (int e = 0; e < tree.width; e++)
            sum[e] = starts ? one[e] : sum[e] + one[e];
        if (ends) tree_push(&tree, head / per_leaf, sum);
    }
    tree_root(&tree, sum);
    memcpy(attention_at(&p->dk, key_row, kv), sum, bytes);
    memcpy(attention_at(&p->dv, key_row, kv), sum + p->head_width, bytes);
}

static void backward_body(void *argument, int index, int count)
{
    const struct attention *p = argument;
    int64_t first = 0, last = 0, per = p->queries * p->heads;

    if (p->half != ATTENTION_OF_KEYS)
        threads_split(p->sequences * per, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        query_backward(p, i / per, p->first_query + i % per / p->heads,
                       (int)(i % p->heads));
    if (p->half == ATTENTION_OF_QUERIES) return;
    per = p->keys * p->kv_heads;
    threads_split(p->sequences * per, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++)
        key_backward(p, i / per, p->first_key + i % per / p->kv_heads,
                     (int)(i % p->kv_heads));
}

status NAME(attention_delta)(struct stream *stream, const struct attention *p)
{
    (void)stream;
    for (int64_t i = 0; i < p->sequences * p->queries; i++) {
        int64_t row = attention_query_row(p, i / p->queries,
                                          p->first_query + i % p->queries);

        for (int head = 0; head < p->heads; head++)
            ((real *)p->delta.data)[row * p->delta.stride[0] + head] =
                row_dot(p, row, head);
    }
    return OK;
}

status NAME(attention_backward)(struct stream *stream,
                                const struct attention *p)
{
    struct attention copy = *p;

    NAME(attention_check)(p, true);
    threads_run(stream->threads, backward_body, &copy);
    return OK;
}

/* One key-value head of one token. */
static void heads_sum(struct tensor out, struct tensor in, int leaves,
                      int64_t row, int kv)
{
    const int heads = (int)in.shape[1], per_leaf = heads / leaves;
    const int group = heads / (int)out.shape[1];
    struct tree tree;
    real sum[GRADIENT];

    tree_init(&tree, (int)in.shape[2]);
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        const bool starts = head == kv * group || head % per_leaf == 0;
        const bool ends = head == (kv + 1) * group - 1 ||
                          (head + 1) % per_leaf == 0;
        const real *one = attention_at(&in, row, head);

        for (int e = 0; e < tree.width; e++)
            sum[e] = starts ? one[e] : sum[e] + one[e];
        if (ends) tree_push(&tree, head / per_leaf, sum);
    }
    tree_root(&tree, attention_at(&out, row, kv));
}

status NAME(attention_heads)(struct stream *stream, struct tensor out,
                             struct tensor in, int leaves)
{
    (void)stream;
    CHECK(in.shape[1] % out.shape[1] == 0 && in.shape[1] % leaves == 0);
    for (int64_t row = 0; row < out.shape[0]; row++)
        for (int kv = 0; kv < out.shape[1]; kv++)
            heads_sum(out, in, leaves, row, kv);
    return OK;
}
