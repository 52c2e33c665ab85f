/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu - attention, forward: a block has a tile of queries of one head,
 * and goes over granules of keys. The tree over granules is a binary counter,
 * as in reference/attention.c. */
#include "kernels/cuda/attention.h"

/* The nodes of a thread's rows; denominator 0: missing. */
struct partials {
    struct patch values;
    float maximum[PATCH], denominator[PATCH];
};

/* right = left, the earlier keys, merged with right. */
DEVICE void row_merge(const struct partials *left, struct partials *right,
                      int i)
{
    const float most = left->maximum[i] > right->maximum[i]
                           ? left->maximum[i] : right->maximum[i];
    const float a = expz_f32(left->maximum[i] - most);
    const float b = expz_f32(right->maximum[i] - most);

    right->maximum[i] = most;
    right->denominator[i] =
        __builtin_fmaf(left->denominator[i], a, right->denominator[i] * b);
    UNROLLED for (int j = 0; j < PATCH; j++)
        right->values.at[i][j] = __builtin_fmaf(
            left->values.at[i][j], a, right->values.at[i][j] * b);
}

DEVICE void partials_merge(const struct partials *left,
                           struct partials *right)
{
    UNROLLED for (int i = 0; i < PATCH; i++) {
        if (left->denominator[i] == 0) continue;
        if (right->denominator[i] != 0) {
            row_merge(left, right, i);
            continue;
        }
        right->maximum[i] = left->maximum[i];
        right->denominator[i] = left->denominator[i];
        UNROLLED for (int j = 0; j < PATCH; j++)
            right->values.at[i][j] = left->values.at[i][j];
    }
}

/* A tile of queries and a granule of keys. */
struct corner {
    int64_t sequence, query, key; /* positions of the first ones */
    int head, queries, keys;      /* how many there are */
};

/* Products in the block's memory become scores; what is not seen is
 * -infinity. */
DEVICE void corner_scores(struct attention_shared *s,
                          const struct attention_call *call, int rows,
                          const struct corner *at)
{
    const struct attention *p = &call->of;

    LOOPED for (int i = THREAD; i < rows * ATTENTION_GRANULE;
                i += BLOCK_THREADS) {
        const int row = i / ATTENTION_GRANULE, column = i % ATTENTION_GRANULE;
        const struct attention_pair pair = {at->sequence, at->query + row,
                                            at->key + column};
        float value = s->weights[row][column];

        if (row >= at->queries || column >= at->keys ||
            !pair_is_seen(p, pair)) {
            s->weights[row][column] = -__builtin_inff();
            continue;
        }
        if (call->slopes) value = value + pair_bias(call, at->head, pair);
        value = value * call->scale;
        if (p->softcap > 0)
            value = call->cap * tanh_f32(value * call->inverse_cap);
        s->weights[row][column] = value;
    }
    BARRIER;
}

/* The last of equal numbers is the largest, as where they are looked at one
 * after the other: -0 and +0 are equal. */
DEVICE bool is_larger(float a, int at, float b, int b_at)
{
    return a > b || (a == b && at > b_at);
}

/* The largest score of the thread's row, which `team` threads look at. */
DEVICE float row_maximum(struct attention_shared *s, int row, int team)
{
    const int first = THREAD % team, base = THREAD - first;
    float most = s->weights[row][first];
    int at = first;

    for (int j = first + team; j < ATTENTION_GRANULE; j += team)
        if (is_larger(s->weights[row][j], j, most, at)) {
            most = s->weights[row][j];
            at = j;
        }
    s->peak.most[THREAD] = most;
    s->peak.at[THREAD] = at;
    BARRIER;
    most = s->peak.most[base];
    at = s->peak.at[base];
    for (int i = 1; i < team; i++)
        if (is_larger(s->peak.most[base + i], s->peak.at[base + i], most, at)) {
            most = s->peak.most[base + i];
            at = s->peak.at[base + i];
        }
    BARRIER;
    return most;
}

/* Scores become weights, times what dropout says; maximum and denominator of
 * each row are in the block's memory. */
DEVICE void corner_weights(struct attention_shared *s,
                           const struct attention_call *call, int rows,
                           const struct corner *at)
{
    const int team = BLOCK_THREADS / rows, row = THREAD / team;
    const float most = row_maximum(s, row, team);

    for (int j = THREAD % team; j < ATTENTION_GRANULE; j += team) {
        const float score = s->weights[row][j];

        s->weights[row][j] =
            score == -__builtin_inff() ? 0.0f : expz_f32(score - most);
    }
    BARRIER;
    for (int lane = THREAD % team; lane < LANES; lane += team) {
        float sum = 0;

        for (int j = lane; j < ATTENTION_GRANULE; j += LANES)
            sum = sum + s->weights[row][j];
        s->lanes[row][lane] = sum;
    }
    for (int half = LANES / 2; half > 0; half /= 2) {
        BARRIER;
        for (int lane = THREAD % team; lane < half; lane += team)
            s->lanes[row][lane] =
                s->lanes[row][lane] + s->lanes[row][lane + half];
    }
    BARRIER;
    if (THREAD % team == 0) s->maximum[row] = most;
    if (THREAD % team == 0) s->denominator[row] = s->lanes[row][0];
    for (int j = THREAD % team;
         j < ATTENTION_GRANULE && (call->drops || call->of.tiles); j += team) {
        const struct attention_pair pair = {at->sequence, at->query + row,
                                            at->key + j};
        float weight = s->weights[row][j];

        if (call->drops) weight = weight * pair_keep(call, at->head, pair);
        s->weights[row][j] = pair_operand(&call->of, weight);
    }
    BARRIER;
}

/* The node of one granule. */
DEVICE void corner_node(struct attention_shared *s,
                        const struct attention_call *call, int rows,
                        const struct corner *at, struct partials *node)
{
    const struct attention *p = &call->of;
    const int kv = at->head / (p->heads / p->kv_heads);
    const int64_t key_row = attention_key_row(p, at->sequence, at->key);
    const struct head_rows q =
        head_rows_of(p, &p->q, attention_query_row(p, at->sequence, at->query),
                     at->head, 0, at->queries);
    const struct head_rows k =
        head_rows_of(p, &p->k, key_row, kv, 0, at->keys);
    const struct head_rows v =
        head_rows_of(p, &p->v, key_row, kv, 0, at->keys);
    struct scores score;

    tile_dots(s, rows, &q, &k, p->head_width, &score);
    tile_weights(s, rows, &score);
    BARRIER;
    corner_scores(s, call, rows, at);
    corner_weights(s, call, rows, at);
    UNROLLED for (int i = 0; i < PATCH; i++) {
        node->maximum[i] = s->maximum[tile_row(rows) + i];
        node->denominator[i] = s->denominator[tile_row(rows) + i];
    }
    tile_sum(s, rows, &v, p->head_width, &node->values);
}

DEVICE void node_missing(struct partials *node)
{
    EACH_OF_PATCH node->values.at[i][j] = 0;
    UNROLLED for (int i = 0; i < PATCH; i++)
        node->maximum[i] = node->denominator[i] = 0;
}

/* out, lse (and a node's denominator) of row i of the thread. */
DEVICE void root_store(const struct attention *p, int64_t row, int head, int i,
                       int rows, const struct partials *root)
{
    const int column = tile_column(rows), side = tile_side(rows);
    const float sum = root->denominator[i], factor = 1 / sum;

    if (column == 0 && p->peaks && sum != 0)
        number_raise((float *)p->peaks + head, root->maximum[i]);
    if (column == 0 && p->denominator.data)
        *number_of(&p->denominator, row, head) = sum;
    if (p->denominator.data && sum == 0) return;
    if (column == 0)
        *number_of(&p->lse, row, head) =
            p->denominator.data ? root->maximum[i]
            : sum == 0          ? -__builtin_inff()
                                : root->maximum[i] + log_f32(sum);
    UNROLLED for (int j = 0; j < PATCH; j++) {
        const int e = column + j * side;
        const float value = root->values.at[i][j];

        if (e < p->head_width)
            element_set(p->out.data, p->out.dtype,
                        row * p->out.stride[0] + head * p->out.stride[1] + e,
                        p->denominator.data ? value
                        : sum == 0          ? 0.0f : value * factor);
    }
}

/* Granules from that of the first key to that of the last query, or key. */
DEVICE int64_t granules_of(const struct attention *p, int64_t last_query)
{
    const int64_t end = p->first_key + p->keys;
    const int64_t last = last_query < end ? last_query : end - 1;

    return last < p->first_key
               ? 0 : last / ATTENTION_GRANULE + 1 -
                         p->first_key / ATTENTION_GRANULE;
}

DEVICE void forward_tile(struct attention_shared *s,
                         const struct attention_call *call, int rows)
{
    const struct attention *p = &call->of;
    const int64_t unit = BLOCK / call->tiles;
    const int64_t first = BLOCK % call->tiles * rows;
    const int64_t left = p->queries - first, key_end = p->first_key + p->keys;
    struct corner at = {.sequence = unit / p->heads,
                        .query = p->first_query + first,
                        .head = (int)(unit % p->heads),
                        .queries = left < rows ? (int)left : rows};
    const int64_t granules = granules_of(p, at.query + at.queries - 1);
    struct partials levels[NODES_WAITING], node;

    LOOPED for (int64_t g = 0; g < granules; g++) {
        int l = 0;

        at.key = p->first_key + g * ATTENTION_GRANULE;
        at.keys = key_end - at.key < ATTENTION_GRANULE
                      ? (int)(key_end - at.key) : ATTENTION_GRANULE;
        if (at.key + ATTENTION_GRANULE <= attention_lowest(p, at.query))
            node_missing(&node);
        else
            corner_node(s, call, rows, &at, &node);
        LOOPED for (; g >> l & 1; l++) partials_merge(&levels[l], &node);
        levels[l] = node;
    }
    node_missing(&node);
    LOOPED for (int l = 0; l < NODES_WAITING; l++)
        if (granules >> l & 1) partials_merge(&levels[l], &node);
    UNROLLED for (int i = 0; i < PATCH; i++)
        if (tile_row(rows) + i < at.queries)
            root_store(p,
                       attention_query_row(p, at.sequence, at.query) +
                           tile_row(rows) + i,
                       at.head, i, rows, &node);
}

#define FORWARD_KERNEL(span)                                               \
    CUDA_WIDE_KERNEL(attention_forward_##span)                             \
    {                                                                      \
        SHARED(struct attention_shared, s);                                \
                                                                           \
        forward_tile(s, &p->call, ATTENTION_TILE / span);                  \
    }
FORWARD_KERNEL(64)
FORWARD_KERNEL(128)
FORWARD_KERNEL(256)

/* ---- nodes that a caller merges ---- */

/* A thread has a row of a head. */
CUDA_KERNEL(attention_merge)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t row = i / p->heads;
    const int head = (int)(i % p->heads);

    if (row >= p->rows) return;
    float *const sum = number_of(&p->left.denominator, row, head);
    float *const most = number_of(&p->left.maximum, row, head);
    const float right_sum = *number_of(&p->right.denominator, row, head);
    float *to = (float *)p->left.values.data +
                row * p->left.values.stride[0] +
                head * p->left.values.stride[1];
    const float *from = (const float *)p->right.values.data +
                        row * p->right.values.stride[0] +
                        head * p->right.values.stride[1];

    if (right_sum == 0) return;
    const float right_most = *number_of(&p->right.maximum, row, head);

    if (*sum == 0) {
        *sum = right_sum;
        *most = right_most;
        for (int e = 0; e < p->width; e++) to[e] = from[e];
        return;
    }
    const float both = *most > right_most ? *most : right_most;
    const float a = expz_f32(*most - both), b = expz_f32(right_most - both);

    *sum = __builtin_fmaf(*sum, a, right_sum * b);
    *most = both;
    for (int e = 0; e < p->width; e++)
        to[e] = __builtin_fmaf(to[e], a, from[e] * b);
}

/* A thread an element; the first of a row and head has its lse. */
CUDA_KERNEL(attention_finish)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t row = i / p->width / p->heads;
    const int head = (int)(i / p->width % p->heads);
    const int64_t e = i % p->width;

    if (row >= p->rows) return;
    const float sum = *number_of(&p->root.denominator, row, head);
    const float factor = 1 / sum;
    const float *from = (const float *)p->root.values.data +
                        row * p->root.values.stride[0] +
                        head * p->root.values.stride[1];

    element_set(p->out.data, p->out.dtype,
                row * p->out.stride[0] + head * p->out.stride[1] + e,
                sum == 0 ? 0.0f : from[e] * factor);
    if (e > 0) return;
    *number_of(&p->lse, row, head) =
        sum == 0 ? -__builtin_inff()
                 : *number_of(&p->root.maximum, row, head) + log_f32(sum);
}
