/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMSNorm and LayerNorm: threads share out rows.
 *
 * Backward, threads share out granules of tokens: one reading of x and dy gives
 * dx and the granule's sums, which are then added up. Where granules are too
 * few for the threads, sums are made first, shared by columns, then dx. */
#include "kernels/cpu/token_sums.h"
#include "kernels/lanes.h"
#include "kernels/view.h"

struct norm {
    struct view y, x; /* backward: y is dx */
    struct view dy;
    struct view left, added; /* forward: x becomes their sum; no data: it is
                              * there */
    const float *weight, *bias; /* narrow ones widened */
    float *stats;     /* rms: [tokens]; layer: [tokens, 2] mean, rstd */
    float epsilon;
    bool adds;
    struct tensor sums_weight, sums_bias;
    const struct token_order *order;
    float *granules;  /* [granules, vectors of sums, width] */
    int64_t granule_count, apart; /* apart: floats of a granule's sums */
    /* Tokens [first, last) of dx; chain NULL: else their sums too. */
    void (*backward)(const struct norm *n, int64_t first, int64_t last,
                     float *chain);
};

/* A row of a matrix whose type the caller knows. */
ELEMENTARY struct elements row_of(struct view view, enum dtype dtype,
                                  int64_t row)
{
    return (struct elements){element_at(view.data, dtype, row * view.stride),
                             dtype};
}

ELEMENTARY void vector_widen(enum dtype dtype, float *out, const void *x,
                             int64_t count)
{
    SIMD for (int64_t i = 0; i < count; i++) out[i] = element_get(x, dtype, i);
}

/* A weight or bias as float32: where it is, or widened in scratch, which has
 * place `index` for it. */
static const float *vector_of(struct stream *stream, struct tensor tensor,
                              struct view x, int index)
{
    float *copy = (float *)stream->scratch + index * x.width;
    const size_t bytes = (size_t)((index + 1) * x.width) * sizeof *copy;

    CHECK(tensor.dtype == x.dtype && tensor_count(&tensor) == x.width);
    if (tensor.dtype == DTYPE_F32) return tensor.data;
    CHECK(stream->scratch_bytes >= bytes);
    ELEMENT_CHOOSE(tensor.dtype, vector_widen, copy, tensor.data, x.width);
    return copy;
}

/* All are of one type. */
static void norm_check(const struct norm *n, bool backward)
{
    CHECK(dtype_real(n->x.dtype) == DTYPE_F32);
    CHECK(n->y.dtype == n->x.dtype && view_same_shape(n->y, n->x));
    CHECK(!backward ||
          (n->dy.dtype == n->x.dtype && view_same_shape(n->dy, n->x)));
}

static float *stats_of(struct tensor tensor, int64_t count)
{
    CHECK(tensor.dtype == DTYPE_F32 && tensor_count(&tensor) == count);
    return tensor.data;
}

ELEMENTARY void sum_row(enum dtype dtype, enum dtype added_dtype,
                        const struct norm *n, int64_t token)
{
    void *x = element_at(n->x.data, dtype, token * n->x.stride);
    const struct elements left = row_of(n->left, dtype, token);
    const struct elements added = row_of(n->added, added_dtype, token);

    SIMD for (int64_t i = 0; i < n->x.width; i++)
        element_set(x, dtype, i,
                    element_of(left, i) + element_of(added, i));
}

/* The row of a token that a norm reads. */
ELEMENTARY struct elements row_before(const struct norm *n, enum dtype dtype,
                                      int64_t token)
{
    if (n->left.data && n->added.dtype == dtype)
        sum_row(dtype, dtype, n, token);
    else if (n->left.data)
        sum_row(dtype, DTYPE_F32, n, token);
    return row_of(n->x, dtype, token);
}

ELEMENTARY void rms_forward_rows(enum dtype dtype, const struct norm *n,
                                 int64_t first, int64_t last)
{
    const struct elements w = {n->weight, DTYPE_F32};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_before(n, dtype, token);
        void *y = element_at(n->y.data, dtype, token * n->y.stride);
        float sum = lanes_dot(x, x, width);
        float r = 1.0f / __builtin_sqrtf(sum / (float)width + n->epsilon);

        n->stats[token] = r;
        SIMD for (int64_t i = 0; i < width; i++)
            element_set(y, dtype, i,
                        element_of(x, i) * r * element_of(w, i));
    }
}

static void rms_forward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    ELEMENT_CHOOSE(n->x.dtype, rms_forward_rows, n, first, last);
}

status CPU(rmsnorm_forward)(struct stream *stream, struct tensor y,
                            struct tensor rrms, struct tensor x,
                            struct tensor weight, double epsilon)
{
    struct norm n = {.y = view_any(y), .x = view_any(x),
                     .epsilon = (float)epsilon};

    norm_check(&n, false);
    n.weight = vector_of(stream, weight, n.x, 0);
    n.stats = stats_of(rrms, n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width, rms_forward_body, &n);
    return OK;
}

ELEMENTARY void rms_term(enum dtype dtype, const void *context,
                         struct token_at at)
{
    const struct norm *n = context;
    const void *dy = element_at(n->dy.data, dtype,
                                at.token * n->dy.stride + at.column);
    const void *x = element_at(n->x.data, dtype,
                               at.token * n->x.stride + at.column);
    float r = n->stats[at.token], *chain = at.chain;

    SIMD for (int j = 0; j < at.count; j++)
        chain[j] = __builtin_fmaf(element_get(dy, dtype, j),
                                  element_get(x, dtype, j) * r, chain[j]);
}

static void rms_sums_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    const struct token_sums sums = {n->sums_weight, n->order, n};

    ELEMENT_CHOOSE(n->x.dtype, token_sums, rms_term, &sums, index, count);
}

/* Tokens [first, last) of dx; chain NULL: else their sums too. */
ELEMENTARY void rms_backward_rows(enum dtype dtype, bool adds,
                                  const struct norm *n, int64_t first,
                                  int64_t last, float *chain)
{
    const struct elements w = {n->weight, DTYPE_F32};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
        struct elements dy = row_of(n->dy, dtype, token);
        void *dx = element_at(n->y.data, dtype, token * n->y.stride);
        float r = n->stats[token], s = lanes_triple(dy, w, x, 0, width);
        float c = s * r * r * r / (float)width;

        SIMD for (int64_t i = 0; i < width; i++) {
            float at = element_of(x, i), d = element_of(dy, i);
            float value = __builtin_fmaf(-c, at, d * element_of(w, i) * r);

            if (chain) chain[i] = __builtin_fmaf(d, at * r, chain[i]);
            element_set(dx, dtype, i,
                        adds ? element_get(dx, dtype, i) + value : value);
        }
    }
}

ELEMENTARY void rms_backward_typed(enum dtype dtype, const struct norm *n,
                                   int64_t first, int64_t last, float *chain)
{
    if (n->adds) /* constants make better code */
        rms_backward_rows(dtype, true, n, first, last, chain);
    else
        rms_backward_rows(dtype, false, n, first, last, chain);
}

static void rms_backward(const struct norm *n, int64_t first, int64_t last,
                         float *chain)
{
    ELEMENT_CHOOSE(n->x.dtype, rms_backward_typed, n, first, last, chain);
}

static void backward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    n->backward(n, first, last, NULL);
}

static void granules_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    struct token_granules g = {0};
    int64_t first, last;

    threads_split(n->granule_count, 1, index, count, &first, &last);
    for (int64_t i = 0; i < last && token_granule_next(n->order, &g); i++) {
        float *chain = n->granules + i * n->apart;

        if (i < first) continue;
        memset(chain, 0, (size_t)n->apart * sizeof *chain);
        n->backward(n, g.first, g.last, chain);
    }
}

/* Whether granules are shared out; then there is memory for their sums. */
static bool granules_shared(struct stream *stream, struct norm *n, int vectors)
{
    const int threads = threads_count(stream->threads);
    const int64_t count = token_granule_count(n->order);
    const int64_t rounds = (count + threads - 1) / threads;
    const int64_t before = 2 * n->x.width; /* widened vectors */
    const int64_t floats = before + count * vectors * n->x.width;

    n->granules = (float *)stream->scratch + before;
    n->granule_count = count;
    n->apart = vectors * n->x.width;
    return n->x.rows >= 16 * count && 4 * rounds * threads <= 5 * count &&
           (int64_t)(stream->scratch_bytes / sizeof(float)) >= floats;
}

static void granules_add_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t begin, end;

    threads_split(n->x.width, LANES, index, count, &begin, &end);
    token_granules_add(n->sums_weight, n->order, n->granules, n->apart, begin,
                       end);
    if (n->sums_bias.data)
        token_granules_add(n->sums_bias, n->order, n->granules + n->x.width,
                           n->apart, begin, end);
}

/* dx and the sums; `sums_body` makes the sums of `vectors` vectors alone. */
static void backward_run(struct stream *stream, struct norm *n, int vectors,
                         void (*sums_body)(void *argument, int index,
                                           int count))
{
    const int64_t work = n->x.rows * n->x.width;

    if (granules_shared(stream, n, vectors)) {
        cpu_run(stream, work, granules_body, n);
        cpu_run(stream, n->granule_count * n->x.width, granules_add_body, n);
        return;
    }
    cpu_run(stream, work, sums_body, n); /* first: dx may be dy */
    cpu_run(stream, work, backward_body, n);
}

status CPU(rmsnorm_backward)(struct stream *stream, struct tensor dx,
                             bool adds, struct tensor sums, struct tensor dy,
                             struct tensor x, struct tensor rrms,
                             struct tensor weight,
                             const struct token_order *order)
{
    struct norm n = {.y = view_any(dx), .x = view_any(x),
                     .dy = view_any(dy), .adds = adds,
                     .sums_weight = sums, .order = order,
                     .backward = rms_backward};

    norm_check(&n, true);
    n.weight = vector_of(stream, weight, n.x, 0);
    n.stats = stats_of(rrms, n.x.rows);
    token_sums_check(sums, n.x.rows, n.x.width, order);
    backward_run(stream, &n, 1, rms_sums_body);
    return OK;
}

ELEMENTARY void layer_forward_rows(enum dtype dtype, const struct norm *n,
                                   int64_t first, int64_t last)
{
    const struct elements w = {n->weight, DTYPE_F32};
    const struct elements b = {n->bias, DTYPE_F32};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_before(n, dtype, token);
        void *y = element_at(n->y.data, dtype, token * n->y.stride);
        float mean = lanes_sum(x, width) / (float)width;
        float sum = lanes_squares(x, mean, width);
        float r = 1.0f / __builtin_sqrtf(sum / (float)width + n->epsilon);

        n->stats[2 * token] = mean;
        n->stats[2 * token + 1] = r;
        SIMD for (int64_t i = 0; i < width; i++)
            element_set(y, dtype, i,
                        __builtin_fmaf((element_of(x, i) - mean) * r,
                                       element_of(w, i), element_of(b, i)));
    }
}

static void layer_forward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    ELEMENT_CHOOSE(n->x.dtype, layer_forward_rows, n, first, last);
}

status CPU(layernorm_forward)(struct stream *stream, struct tensor y,
                              struct tensor stats, struct tensor x,
                              struct tensor weight, struct tensor bias,
                              double epsilon)
{
    struct norm n = {.y = view_any(y), .x = view_any(x),
                     .epsilon = (float)epsilon};

    norm_check(&n, false);
    n.weight = vector_of(stream, weight, n.x, 0);
    n.bias = vector_of(stream, bias, n.x, 1);
    n.stats = stats_of(stats, 2 * n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width, layer_forward_body, &n);
    return OK;
}

status CPU(add_norm)(struct stream *stream, const struct add_norm *p)
{
    const struct norm_after *norm = &p->norm;
    struct norm n = {.y = view_any(norm->y), .x = view_any(p->x),
                     .left = view_any(p->left), .added = view_any(p->y),
                     .epsilon = (float)norm->epsilon};

    norm_check(&n, false);
    CHECK(n.left.dtype == n.x.dtype && view_same_shape(n.left, n.x));
    CHECK(view_same_shape(n.added, n.x));
    CHECK(n.added.dtype == n.x.dtype || n.added.dtype == DTYPE_F32);
    n.weight = vector_of(stream, norm->weight, n.x, 0);
    if (norm->layer) n.bias = vector_of(stream, norm->bias, n.x, 1);
    n.stats = stats_of(norm->stats, (norm->layer ? 2 : 1) * n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width,
            norm->layer ? layer_forward_body : rms_forward_body, &n);
    return OK;
}

ELEMENTARY void layer_weight_term(enum dtype dtype, const void *context,
                                  struct token_at at)
{
    const struct norm *n = context;
    const void *dy = element_at(n->dy.data, dtype,
                                at.token * n->dy.stride + at.column);
    const void *x = element_at(n->x.data, dtype,
                               at.token * n->x.stride + at.column);
    float mean = n->stats[2 * at.token], r = n->stats[2 * at.token + 1];
    float *chain = at.chain;

    SIMD for (int j = 0; j < at.count; j++)
        chain[j] = __builtin_fmaf(element_get(dy, dtype, j),
                                  (element_get(x, dtype, j) - mean) * r,
                                  chain[j]);
}

ELEMENTARY void layer_bias_term(enum dtype dtype, const void *context,
                                struct token_at at)
{
    const struct norm *n = context;
    const void *dy = element_at(n->dy.data, dtype,
                                at.token * n->dy.stride + at.column);
    float *chain = at.chain;

    SIMD for (int j = 0; j < at.count; j++)
        chain[j] = chain[j] + element_get(dy, dtype, j);
}

static void layer_sums_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    const struct token_sums weight = {n->sums_weight, n->order, n};
    const struct token_sums bias = {n->sums_bias, n->order, n};
    const enum dtype dtype = n->x.dtype;

    ELEMENT_CHOOSE(dtype, token_sums, layer_weight_term, &weight, index,
                   count);
    ELEMENT_CHOOSE(dtype, token_sums, layer_bias_term, &bias, index, count);
}

/* Tokens [first, last) of dx; chain NULL: else their sums too, weight, bias. */
ELEMENTARY void layer_backward_rows(enum dtype dtype, bool adds,
                                    const struct norm *n, int64_t first,
                                    int64_t last, float *chain)
{
    const struct elements w = {n->weight, DTYPE_F32};
    const float width = (float)n->x.width;
    float *bias = chain ? chain + n->x.width : NULL;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
        struct elements dy = row_of(n->dy, dtype, token);
        void *dx = element_at(n->y.data, dtype, token * n->y.stride);
        float mean = n->stats[2 * token], r = n->stats[2 * token + 1];
        float a = lanes_dot(dy, w, n->x.width) / width;
        float c = lanes_triple(dy, w, x, mean, n->x.width) * r / width;

        SIMD for (int64_t i = 0; i < n->x.width; i++) {
            float xhat = (element_of(x, i) - mean) * r, d = element_of(dy, i);
            float value = __builtin_fmaf(
                -c, xhat, __builtin_fmaf(d, element_of(w, i), -a)) * r;

            if (chain) {
                chain[i] = __builtin_fmaf(d, xhat, chain[i]);
                bias[i] = bias[i] + d;
            }
            element_set(dx, dtype, i,
                        adds ? element_get(dx, dtype, i) + value : value);
        }
    }
}

ELEMENTARY void layer_backward_typed(enum dtype dtype, const struct norm *n,
                                     int64_t first, int64_t last, float *chain)
{
    if (n->adds) /* constants make better code */
        layer_backward_rows(dtype, true, n, first, last, chain);
    else
        layer_backward_rows(dtype, false, n, first, last, chain);
}

static void layer_backward(const struct norm *n, int64_t first, int64_t last,
                           float *chain)
{
    ELEMENT_CHOOSE(n->x.dtype, layer_backward_typed, n, first, last, chain);
}

status CPU(layernorm_backward)(struct stream *stream, struct tensor dx,
                               bool adds, struct tensor sums_weight,
                               struct tensor sums_bias, struct tensor dy,
                               struct tensor x, struct tensor stats,
                               struct tensor weight,
                               const struct token_order *order)
{
    struct norm n = {.y = view_any(dx), .x = view_any(x),
                     .dy = view_any(dy), .adds = adds,
                     .sums_weight = sums_weight, .sums_bias = sums_bias,
                     .order = order, .backward = layer_backward};

    norm_check(&n, true);
    n.weight = vector_of(stream, weight, n.x, 0);
    n.stats = stats_of(stats, 2 * n.x.rows);
    token_sums_check(sums_weight, n.x.rows, n.x.width, order);
    token_sums_check(sums_bias, n.x.rows, n.x.width, order);
    backward_run(stream, &n, 2, layer_sums_body);
    return OK;
}
