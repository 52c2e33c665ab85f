/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - sums over tokens, over leaves, and of squares. */
#include "kernels/cpu/token_sums.h"
#include "kernels/view.h"

enum {
    FOLD_GRAIN = 64,     /* columns that a thread folds at least */
    SQUARES_BLOCK = 1024,
    CHUNKS_MAX = 1024,   /* subtrees of blocks that threads share out */
    LEVELS = 48
};

struct row_sums {
    struct view dy;
    struct tensor sums;
    const struct token_order *order;
};

ELEMENTARY void row_term(const void *context, int64_t token, int64_t column,
                         int count, float *chain)
{
    const struct row_sums *p = context;
    const float *dy = (const float *)p->dy.data + token * p->dy.stride +
                      column;

    SIMD for (int j = 0; j < count; j++) chain[j] = chain[j] + dy[j];
}

static void sum_rows_body(void *argument, int index, int count)
{
    const struct row_sums *p = argument;

    token_sums(p->sums, p->order, row_term, p, index, count);
}

status CPU(sum_rows)(struct stream *stream, struct tensor sums,
                     struct tensor dy, const struct token_order *order)
{
    struct row_sums p = {view_of(dy, DTYPE_F32), sums, order};

    token_sums_check(sums, p.dy.rows, p.dy.width, order);
    cpu_run(stream, p.dy.rows * p.dy.width, sum_rows_body, &p);
    return OK;
}

struct fold {
    struct view rows;
    float *out;
    int leaves, parts;
};

/* Rows first, first + step, ... (`count` of them) become their tree, in the
 * first one: neighbours, then pairs of neighbours and so on. */
static void rows_fold(float *first, int64_t stride, int count, int64_t width)
{
    for (int apart = 1; apart < count; apart *= 2)
        for (int i = 0; i + apart < count; i += 2 * apart) {
            float *left = first + i * stride;
            const float *right = left + apart * stride;

            SIMD for (int64_t j = 0; j < width; j++)
                left[j] = left[j] + right[j];
        }
}

static void fold_body(void *argument, int index, int count)
{
    const struct fold *p = argument;
    int64_t first, last, stride = p->rows.stride;
    float *rows;

    threads_split(p->rows.width, FOLD_GRAIN, index, count, &first, &last);
    rows = (float *)p->rows.data + first;
    for (int leaf = 0; leaf < p->leaves; leaf++)
        rows_fold(rows + leaf * p->parts * stride, stride, p->parts,
                  last - first);
    rows_fold(rows, p->parts * stride, p->leaves, last - first);
    for (int64_t j = 0; j < last - first; j++) p->out[first + j] = rows[j];
}

status CPU(fold)(struct stream *stream, struct tensor out, struct tensor in,
                 int leaves, int parts)
{
    struct fold p = {view_of(in, DTYPE_F32), out.data, leaves, parts};
    struct view to = view_of(out, DTYPE_F32);

    CHECK(p.rows.rows == (int64_t)leaves * parts && leaves >= 1 && parts >= 1);
    CHECK(to.rows == 1 && to.width == p.rows.width);
    cpu_run(stream, p.rows.rows * p.rows.width, fold_body, &p);
    return OK;
}

struct squares {
    struct view x;
    int64_t count;        /* elements */
    int64_t chunk_blocks; /* a power of two */
    int64_t chunks;
    double sums[CHUNKS_MAX];
};

static double block_squares(const float *x, int64_t count)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        SIMD for (int j = 0; j < LANES; j++)
            lanes[j] = __builtin_fma((double)x[i + j], (double)x[i + j],
                                     lanes[j]);
    }
    for (int j = 0; i + j < count; j++)
        lanes[j] = __builtin_fma((double)x[i + j], (double)x[i + j], lanes[j]);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

/* Elements [first, last) of the matrix as one run, copied if rows are apart. */
static const float *block_of(const struct view *x, int64_t first, int64_t last,
                             float *copy)
{
    const float *data = x->data;

    if (x->stride == x->width || x->rows == 1) return data + first;
    for (int64_t i = first; i < last; i++)
        copy[i - first] = data[i / x->width * x->stride + i % x->width];
    return copy;
}

/* The absolute tree, grown like a binary counter: level l holds a finished
 * node of 2^l items. */
struct counter {
    double levels[LEVELS];
    int64_t items;
};

static void counter_push(struct counter *counter, double node)
{
    int level = 0;

    for (; counter->items >> level & 1; level++)
        node = counter->levels[level] + node;
    counter->levels[level] = node;
    counter->items++;
}

/* A node without right sibling moves up. */
static double counter_total(const struct counter *counter)
{
    double total = 0;
    bool any = false;

    for (int level = 0; counter->items >> level > 0; level++) {
        if (!(counter->items >> level & 1)) continue;
        total = any ? counter->levels[level] + total : counter->levels[level];
        any = true;
    }
    return total;
}

static void squares_body(void *argument, int index, int count)
{
    struct squares *p = argument;
    int64_t first, last;
    float copy[SQUARES_BLOCK];

    threads_split(p->chunks, 1, index, count, &first, &last);
    for (int64_t chunk = first; chunk < last; chunk++) {
        struct counter counter = {.items = 0};
        int64_t begin = chunk * p->chunk_blocks * SQUARES_BLOCK;
        int64_t end = begin + p->chunk_blocks * SQUARES_BLOCK;

        if (end > p->count) end = p->count;
        for (int64_t i = begin; i < end; i += SQUARES_BLOCK) {
            int64_t stop = i + SQUARES_BLOCK < end ? i + SQUARES_BLOCK : end;

            counter_push(&counter, block_squares(
                block_of(&p->x, i, stop, copy), stop - i));
        }
        p->sums[chunk] = counter_total(&counter);
    }
}

/* Chunks are whole subtrees of the tree over blocks (the last may be cut off,
 * as the tree itself is), so their tree is the tree over all blocks. */
status CPU(sum_squares)(struct stream *stream, double *sum, struct tensor x)
{
    struct squares p = {.x = view_of(x, DTYPE_F32), .chunk_blocks = 1};
    struct counter counter = {.items = 0};
    int64_t blocks;

    p.count = p.x.rows * p.x.width;
    blocks = (p.count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    while (p.chunk_blocks * CHUNKS_MAX < blocks) p.chunk_blocks *= 2;
    p.chunks = (blocks + p.chunk_blocks - 1) / p.chunk_blocks;
    cpu_run(stream, p.count, squares_body, &p);
    for (int64_t i = 0; i < p.chunks; i++) counter_push(&counter, p.sums[i]);
    *sum = counter_total(&counter);
    return OK;
}
