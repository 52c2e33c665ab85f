/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMSNorm and LayerNorm: threads share out rows, then, for the
 * gradients of weights, columns. */
#include "kernels/cpu/token_sums.h"
#include "kernels/lanes.h"
#include "kernels/view.h"

struct norm {
    struct view y, x; /* backward: y is dx */
    struct view dy;
    const void *weight, *bias;
    float *stats;     /* rms: [tokens]; layer: [tokens, 2] mean, rstd */
    float epsilon;
    bool adds;
    struct tensor sums_weight, sums_bias;
    const struct token_order *order;
};

/* A row of a matrix whose type the caller knows. */
ELEMENTARY struct elements row_of(struct view view, enum dtype dtype,
                                  int64_t row)
{
    return (struct elements){element_at(view.data, dtype, row * view.stride),
                             dtype};
}

static const void *vector_of(struct tensor tensor, struct view x)
{
    CHECK(tensor.dtype == x.dtype && tensor_count(&tensor) == x.width);
    return tensor.data;
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

ELEMENTARY void rms_forward_rows(enum dtype dtype, const struct norm *n,
                                 int64_t first, int64_t last)
{
    const struct elements w = {n->weight, dtype};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
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
    n.weight = vector_of(weight, n.x);
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

ELEMENTARY void rms_backward_rows(enum dtype dtype, bool adds,
                                  const struct norm *n, int64_t first,
                                  int64_t last)
{
    const struct elements w = {n->weight, dtype};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
        struct elements dy = row_of(n->dy, dtype, token);
        void *dx = element_at(n->y.data, dtype, token * n->y.stride);
        float r = n->stats[token], s = lanes_triple(dy, w, x, 0, width);
        float c = s * r * r * r / (float)width;

        SIMD for (int64_t i = 0; i < width; i++) {
            float value = __builtin_fmaf(-c, element_of(x, i),
                                         element_of(dy, i) *
                                             element_of(w, i) * r);

            element_set(dx, dtype, i,
                        adds ? element_get(dx, dtype, i) + value : value);
        }
    }
}

static void rms_backward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    if (n->adds) /* a constant makes better code */
        ELEMENT_CHOOSE(n->x.dtype, rms_backward_rows, true, n, first, last);
    else
        ELEMENT_CHOOSE(n->x.dtype, rms_backward_rows, false, n, first, last);
}

status CPU(rmsnorm_backward)(struct stream *stream, struct tensor dx,
                             bool adds, struct tensor sums, struct tensor dy,
                             struct tensor x, struct tensor rrms,
                             struct tensor weight,
                             const struct token_order *order)
{
    struct norm n = {.y = view_any(dx), .x = view_any(x),
                     .dy = view_any(dy), .adds = adds,
                     .sums_weight = sums, .order = order};
    int64_t work = n.x.rows * n.x.width;

    norm_check(&n, true);
    n.weight = vector_of(weight, n.x);
    n.stats = stats_of(rrms, n.x.rows);
    token_sums_check(sums, n.x.rows, n.x.width, order);
    cpu_run(stream, work, rms_sums_body, &n); /* first: dx may be dy */
    cpu_run(stream, work, rms_backward_body, &n);
    return OK;
}

ELEMENTARY void layer_forward_rows(enum dtype dtype, const struct norm *n,
                                   int64_t first, int64_t last)
{
    const struct elements w = {n->weight, dtype}, b = {n->bias, dtype};
    int64_t width = n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
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
    n.weight = vector_of(weight, n.x);
    n.bias = vector_of(bias, n.x);
    n.stats = stats_of(stats, 2 * n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width, layer_forward_body, &n);
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

ELEMENTARY void layer_backward_rows(enum dtype dtype, bool adds,
                                    const struct norm *n, int64_t first,
                                    int64_t last)
{
    const struct elements w = {n->weight, dtype};
    const float width = (float)n->x.width;

    for (int64_t token = first; token < last; token++) {
        struct elements x = row_of(n->x, dtype, token);
        struct elements dy = row_of(n->dy, dtype, token);
        void *dx = element_at(n->y.data, dtype, token * n->y.stride);
        float mean = n->stats[2 * token], r = n->stats[2 * token + 1];
        float a = lanes_dot(dy, w, n->x.width) / width;
        float c = lanes_triple(dy, w, x, mean, n->x.width) * r / width;

        SIMD for (int64_t i = 0; i < n->x.width; i++) {
            float xhat = (element_of(x, i) - mean) * r;
            float value = __builtin_fmaf(
                -c, xhat, __builtin_fmaf(element_of(dy, i), element_of(w, i),
                                         -a)) * r;

            element_set(dx, dtype, i,
                        adds ? element_get(dx, dtype, i) + value : value);
        }
    }
}

static void layer_backward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    if (n->adds) /* a constant makes better code */
        ELEMENT_CHOOSE(n->x.dtype, layer_backward_rows, true, n, first, last);
    else
        ELEMENT_CHOOSE(n->x.dtype, layer_backward_rows, false, n, first, last);
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
                     .order = order};
    int64_t work = n.x.rows * n.x.width;

    norm_check(&n, true);
    n.weight = vector_of(weight, n.x);
    n.stats = stats_of(stats, 2 * n.x.rows);
    token_sums_check(sums_weight, n.x.rows, n.x.width, order);
    token_sums_check(sums_bias, n.x.rows, n.x.width, order);
    cpu_run(stream, work, layer_sums_body, &n); /* first: dx may be dy */
    cpu_run(stream, work, layer_backward_body, &n);
    return OK;
}
