/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the fast attention, forward.
 *
 * A unit is one query head of one sequence; its queries go in blocks. A granule
 * of keys is packed once per block; scores, weights and weighted values of the
 * block are small products over it. Partial results wait on a stack that
 * carries like a binary counter over granule numbers, row by row where a query
 * sees nothing of a granule (denominator 0). */
#include <math.h>
#include "kernels/cpu/attention.h"

/* Partial results of a block of queries over some granules. */
struct node {
    float *values;      /* [QUERIES, padded] */
    float *maximum;     /* [QUERIES] */
    float *denominator; /* [QUERIES]; 0: no key seen */
};

struct forward {
    const struct attention *p;
    int width, padded, rows; /* rows: queries in the block */
    float scale;
    int64_t sequence, row;   /* of the block's first query */
    int64_t position;        /* of it */
    int head, kv;
    float *q, *keys, *values, *scores;
    struct node nodes[ATTENTION_NODES];
};

static void forward_init(struct forward *f, const struct attention *p,
                         float *scratch)
{
    f->p = p;
    f->width = p->head_width;
    f->padded = attention_padded(p->head_width);
    f->scale = (float)p->scale;
    f->q = scratch;
    f->keys = f->q + ATTENTION_QUERIES * f->padded;
    f->values = f->keys + G * f->padded;
    f->scores = f->values + G * f->padded;
    scratch = f->scores + BLOCK_ROWS * G;
    for (int i = 0; i < ATTENTION_NODES; i++) {
        f->nodes[i].values = scratch;
        f->nodes[i].maximum = scratch + ATTENTION_QUERIES * f->padded;
        f->nodes[i].denominator = f->nodes[i].maximum + ATTENTION_QUERIES;
        scratch = f->nodes[i].denominator + ATTENTION_QUERIES;
    }
}

static float lanes_sum(float *lanes)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

/* Scores that are not seen become -inf. Returns whether any is seen. */
static bool scores_mask(float *x, int seen, int end, const int32_t *documents,
                        int32_t document)
{
    int32_t any = documents == NULL && seen > 0;

    if (documents) {
        _Pragma("omp simd reduction(|:any)")
        for (int j = 0; j < seen; j++) {
            any |= documents[j] == document;
            x[j] = documents[j] == document ? x[j] : -(float)INFINITY;
        }
    }
    for (int j = seen > 0 ? seen : 0; j < end; j++) x[j] = -(float)INFINITY;
    return any != 0;
}

/* Turns products into weights in place. x holds `end` elements, a multiple of
 * LANES, masked ones -inf. */
static void weights_of(float *x, int end, float scale, float *maximum,
                       float *denominator)
{
    float lanes[LANES], sums[LANES], m;

    for (int j = 0; j < LANES; j++) lanes[j] = -(float)INFINITY;
    for (int e = 0; e < end; e += LANES) {
        SIMD
        for (int j = 0; j < LANES; j++) {
            float v = x[e + j] * scale;

            x[e + j] = v;
            lanes[j] = lanes[j] > v ? lanes[j] : v;
        }
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] = lanes[j] > lanes[j + half] ? lanes[j] : lanes[j + half];
    m = lanes[0];
    for (int j = 0; j < LANES; j++) sums[j] = 0;
    for (int e = 0; e < end; e += LANES) {
        SIMD
        for (int j = 0; j < LANES; j++) {
            float w = expz_f32(x[e + j] - m);

            x[e + j] = w;
            sums[j] = sums[j] + w;
        }
    }
    *maximum = m;
    *denominator = lanes_sum(sums);
}

/* BLOCK_ROWS queries from row i against the packed granule at key `first`. */
static void rows_forward(struct forward *f, const struct node *node, int i,
                         int64_t first)
{
    const struct attention *p = f->p;
    int rows = f->rows - i < BLOCK_ROWS ? f->rows - i : BLOCK_ROWS;
    int64_t last = f->position + i + rows - first; /* keys seen by the last */
    int keys = last > G ? G : (int)last;
    int end = (keys + LANES - 1) / LANES * LANES;
    struct chains x = {.length = f->width, .a = f->q + i * f->padded,
                       .a_row = f->padded, .a_step = 1,
                       .b_step = BLOCK_COLUMNS, .c_row = G};

    for (int r = i; r < i + BLOCK_ROWS; r++) node->denominator[r] = 0;
    if (keys <= 0) return;
    for (int j = 0; j < keys; j += BLOCK_COLUMNS) {
        x.b = f->keys + j * f->width;
        x.c = f->scores + j;
        CPU(attention_chains)(&x, BLOCK_COLUMNS);
    }
    for (int r = 0; r < rows; r++) {
        int64_t seen = f->position + i + r + 1 - first;
        float *scores = f->scores + r * G;
        const int32_t *documents =
            p->key_documents
                ? p->key_documents + attention_key_first(p, f->sequence) +
                      first - p->first_key
                : NULL;
        int32_t document =
            p->query_documents ? p->query_documents[f->row + i + r] : 0;

        if (scores_mask(scores, seen > G ? G : (int)seen, end, documents,
                        document))
            weights_of(scores, end, f->scale, &node->maximum[i + r],
                       &node->denominator[i + r]);
        else
            memset(scores, 0, (size_t)end * sizeof *scores);
    }
    x = (struct chains){.length = keys, .a = f->scores, .a_row = G,
                        .a_step = 1, .b = f->values, .b_step = f->padded,
                        .c = node->values + i * f->padded,
                        .c_row = f->padded};
    CPU(attention_chains)(&x, f->padded);
}

/* left = left merged with right; left holds the earlier keys. */
static void node_merge(const struct forward *f, const struct node *left,
                       const struct node *right)
{
    for (int r = 0; r < f->rows; r++) {
        float *x = left->values + r * f->padded;
        const float *y = right->values + r * f->padded;
        float ml = left->maximum[r], mr = right->maximum[r], m, a, b;

        if (right->denominator[r] == 0) continue;
        if (left->denominator[r] == 0) {
            memcpy(x, y, (size_t)f->padded * sizeof *x);
            left->maximum[r] = mr;
            left->denominator[r] = right->denominator[r];
            continue;
        }
        m = ml > mr ? ml : mr;
        a = expz_f32(ml - m);
        b = expz_f32(mr - m);
        left->maximum[r] = m;
        left->denominator[r] = __builtin_fmaf(left->denominator[r], a,
                                              right->denominator[r] * b);
        SIMD
        for (int e = 0; e < f->padded; e++)
            x[e] = __builtin_fmaf(x[e], a, y[e] * b);
    }
}

static void block_finish(const struct forward *f, const struct node *node)
{
    const struct attention *p = f->p;
    float *denominators = p->denominator.data;

    for (int r = 0; r < f->rows; r++) {
        void *out = attention_row(&p->out, f->row + r, f->head);
        float *lse = (float *)p->lse.data + (f->row + r) * p->lse.stride[0] +
                     f->head;
        float *values = node->values + r * f->padded;
        float denominator = node->denominator[r], factor = 1 / denominator;

        if (denominators) {
            denominators[(f->row + r) * p->denominator.stride[0] + f->head] =
                denominator;
            if (denominator == 0) continue;
            memcpy(out, values, (size_t)f->width * sizeof *values);
            *lse = node->maximum[r];
            continue;
        }
        if (denominator == 0) {
            memset(out, 0, (size_t)f->width *
                               (size_t)dtype_bytes(p->out.dtype));
            *lse = -(float)INFINITY;
            continue;
        }
        SIMD
        for (int e = 0; e < f->width; e++) values[e] = values[e] * factor;
        CPU(attention_write)(&p->out, out, values, f->width);
        *lse = node->maximum[r] + log_f32(denominator);
    }
}

/* Queries [f->row, f->row + f->rows) of one head. */
static void block_forward(struct forward *f)
{
    const struct attention *p = f->p;
    int64_t end = f->position + f->rows; /* of keys that the last sees */
    int64_t key_row = attention_key_first(p, f->sequence) - p->first_key;
    int64_t stride;
    const float *rows;
    int depth = 0;

    if (end > p->first_key + p->keys) end = p->first_key + p->keys;
    memset(f->nodes[0].denominator, 0,
           (size_t)f->rows * sizeof *f->nodes[0].denominator);

    rows = CPU(attention_rows)(&p->q, f->row, f->head, f->rows,
                               f->nodes[0].values, &stride);
    CPU(attention_pack_rows)(f->q, rows, stride, f->rows, f->width);
    for (int64_t first = p->first_key; first < end; first += G) {
        int count = end - first < G ? (int)(end - first) : G;
        int64_t carry = (first - p->first_key) / G;

        CHECK(depth < ATTENTION_NODES);
        rows = CPU(attention_rows)(&p->k, key_row + first, f->kv, count,
                                   f->nodes[depth].values, &stride);
        CPU(attention_pack_columns)(f->keys, rows, stride, count, f->width);
        rows = CPU(attention_rows)(&p->v, key_row + first, f->kv, count,
                                   f->nodes[depth].values, &stride);
        CPU(attention_pack_rows)(f->values, rows, stride, count, f->width);
        for (int i = 0; i < f->rows; i += BLOCK_ROWS)
            rows_forward(f, &f->nodes[depth], i, first);
        depth++;
        for (; carry & 1; carry >>= 1, depth--)
            node_merge(f, &f->nodes[depth - 2], &f->nodes[depth - 1]);
    }
    for (; depth > 1; depth--)
        node_merge(f, &f->nodes[depth - 2], &f->nodes[depth - 1]);
    block_finish(f, &f->nodes[0]);
}

struct forward_job {
    const struct attention *p;
    float *scratch;
    int64_t floats; /* of a thread */
};

/* With fewer heads than threads, threads share the blocks of a head. */
static void forward_body(void *argument, int index, int count)
{
    const struct forward_job *job = argument;
    const struct attention *p = job->p;
    int64_t units = p->sequences * p->heads, first, last;
    int64_t parts = units < 2 * count ? count : 1;
    struct forward f;

    forward_init(&f, p, job->scratch + index * job->floats);
    threads_split(units * parts, 1, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) {
        int64_t unit = i / parts, part = i % parts;

        f.sequence = unit / p->heads;
        f.head = (int)(unit % p->heads);
        f.kv = f.head / (p->heads / p->kv_heads);
        for (int64_t q = part * ATTENTION_QUERIES; q < p->queries;
             q += parts * ATTENTION_QUERIES) {
            int64_t left = p->queries - q;

            f.row = attention_query_first(p, f.sequence) + q;
            f.position = p->first_query + q;
            f.rows = left < ATTENTION_QUERIES ? (int)left : ATTENTION_QUERIES;
            block_forward(&f);
        }
    }
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
    threads_run(stream->threads, forward_body, &job);
    return OK;
}
