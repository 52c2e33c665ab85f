/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMSNorm and LayerNorm: threads share out rows, then, for the
 * gradients of weights, columns. */
#include "kernels/cpu/token_sums.h"
#include "kernels/lanes.h"
#include "kernels/view.h"

struct norm {
    struct view y, x; /* backward: y is dx */
    struct view dy;
    const float *weight, *bias;
    float *stats;     /* rms: [tokens]; layer: [tokens, 2] mean, rstd */
    float epsilon;
    bool adds;
    struct tensor sums_weight, sums_bias;
    const struct token_order *order;
};

ELEMENTARY float *row_of(struct view view, int64_t row)
{
    return (float *)view.data + row * view.stride;
}

static const float *vector_of(struct tensor tensor, int64_t count)
{
    CHECK(tensor.dtype == DTYPE_F32 && tensor_count(&tensor) == count);
    return tensor.data;
}

static float *stats_of(struct tensor tensor, int64_t count)
{
    CHECK(tensor.dtype == DTYPE_F32 && tensor_count(&tensor) == count);
    return tensor.data;
}

static void rms_forward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    const float *w = n->weight;
    int64_t first, last, width = n->x.width;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        const float *x = row_of(n->x, token);
        float *y = row_of(n->y, token), sum = lanes_dot(x, x, width);
        float r = 1.0f / __builtin_sqrtf(sum / (float)width + n->epsilon);

        n->stats[token] = r;
        SIMD for (int64_t i = 0; i < width; i++) y[i] = x[i] * r * w[i];
    }
}

status CPU(rmsnorm_forward)(struct stream *stream, struct tensor y,
                            struct tensor rrms, struct tensor x,
                            struct tensor weight, double epsilon)
{
    struct norm n = {.y = view_of(y, DTYPE_F32), .x = view_of(x, DTYPE_F32),
                     .epsilon = (float)epsilon};

    CHECK(view_same_shape(n.y, n.x));
    n.weight = vector_of(weight, n.x.width);
    n.stats = stats_of(rrms, n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width, rms_forward_body, &n);
    return OK;
}

ELEMENTARY void rms_term(const void *context, int64_t token, int64_t column,
                         int count, float *chain)
{
    const struct norm *n = context;
    const float *dy = row_of(n->dy, token) + column;
    const float *x = row_of(n->x, token) + column;
    float r = n->stats[token];

    SIMD for (int j = 0; j < count; j++)
        chain[j] = __builtin_fmaf(dy[j], x[j] * r, chain[j]);
}

static void rms_sums_body(void *argument, int index, int count)
{
    const struct norm *n = argument;

    token_sums(n->sums_weight, n->order, rms_term, n, index, count);
}

static void rms_backward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    const float *w = n->weight;
    int64_t first, last, width = n->x.width;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        const float *x = row_of(n->x, token), *dy = row_of(n->dy, token);
        float *dx = row_of(n->y, token), r = n->stats[token];
        float s = lanes_triple(dy, w, x, 0, width);
        float c = s * r * r * r / (float)width;

        if (n->adds) {
            SIMD for (int64_t i = 0; i < width; i++)
                dx[i] = dx[i] + __builtin_fmaf(-c, x[i], dy[i] * w[i] * r);
        } else {
            SIMD for (int64_t i = 0; i < width; i++)
                dx[i] = __builtin_fmaf(-c, x[i], dy[i] * w[i] * r);
        }
    }
}

status CPU(rmsnorm_backward)(struct stream *stream, struct tensor dx,
                             bool adds, struct tensor sums, struct tensor dy,
                             struct tensor x, struct tensor rrms,
                             struct tensor weight,
                             const struct token_order *order)
{
    struct norm n = {.y = view_of(dx, DTYPE_F32), .x = view_of(x, DTYPE_F32),
                     .dy = view_of(dy, DTYPE_F32), .adds = adds,
                     .sums_weight = sums, .order = order};
    int64_t work = n.x.rows * n.x.width;

    CHECK(view_same_shape(n.y, n.x) && view_same_shape(n.y, n.dy));
    n.weight = vector_of(weight, n.x.width);
    n.stats = stats_of(rrms, n.x.rows);
    token_sums_check(sums, n.x.rows, n.x.width, order);
    cpu_run(stream, work, rms_sums_body, &n); /* first: dx may be dy */
    cpu_run(stream, work, rms_backward_body, &n);
    return OK;
}

static void layer_forward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    const float *w = n->weight, *b = n->bias;
    int64_t first, last, width = n->x.width;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        const float *x = row_of(n->x, token);
        float *y = row_of(n->y, token);
        float mean = lanes_sum(x, width) / (float)width;
        float sum = lanes_squares(x, mean, width);
        float r = 1.0f / __builtin_sqrtf(sum / (float)width + n->epsilon);

        n->stats[2 * token] = mean;
        n->stats[2 * token + 1] = r;
        SIMD for (int64_t i = 0; i < width; i++)
            y[i] = __builtin_fmaf((x[i] - mean) * r, w[i], b[i]);
    }
}

status CPU(layernorm_forward)(struct stream *stream, struct tensor y,
                              struct tensor stats, struct tensor x,
                              struct tensor weight, struct tensor bias,
                              double epsilon)
{
    struct norm n = {.y = view_of(y, DTYPE_F32), .x = view_of(x, DTYPE_F32),
                     .epsilon = (float)epsilon};

    CHECK(view_same_shape(n.y, n.x));
    n.weight = vector_of(weight, n.x.width);
    n.bias = vector_of(bias, n.x.width);
    n.stats = stats_of(stats, 2 * n.x.rows);
    cpu_run(stream, n.x.rows * n.x.width, layer_forward_body, &n);
    return OK;
}

ELEMENTARY void layer_weight_term(const void *context, int64_t token,
                                  int64_t column, int count, float *chain)
{
    const struct norm *n = context;
    const float *dy = row_of(n->dy, token) + column;
    const float *x = row_of(n->x, token) + column;
    float mean = n->stats[2 * token], r = n->stats[2 * token + 1];

    SIMD for (int j = 0; j < count; j++)
        chain[j] = __builtin_fmaf(dy[j], (x[j] - mean) * r, chain[j]);
}

ELEMENTARY void layer_bias_term(const void *context, int64_t token,
                                int64_t column, int count, float *chain)
{
    const struct norm *n = context;
    const float *dy = row_of(n->dy, token) + column;

    SIMD for (int j = 0; j < count; j++) chain[j] = chain[j] + dy[j];
}

static void layer_sums_body(void *argument, int index, int count)
{
    const struct norm *n = argument;

    token_sums(n->sums_weight, n->order, layer_weight_term, n, index, count);
    token_sums(n->sums_bias, n->order, layer_bias_term, n, index, count);
}

ELEMENTARY void layer_row_backward(const struct norm *n, int64_t token,
                                   bool adds)
{
    const float *x = row_of(n->x, token), *dy = row_of(n->dy, token);
    const float *w = n->weight;
    float mean = n->stats[2 * token], r = n->stats[2 * token + 1];
    float *dx = row_of(n->y, token), width = (float)n->x.width;
    float a = lanes_dot(dy, w, n->x.width) / width;
    float c = lanes_triple(dy, w, x, mean, n->x.width) * r / width;

    SIMD for (int64_t i = 0; i < n->x.width; i++) {
        float xhat = (x[i] - mean) * r;
        float value = __builtin_fmaf(-c, xhat,
                                     __builtin_fmaf(dy[i], w[i], -a)) * r;

        dx[i] = adds ? dx[i] + value : value;
    }
}

static void layer_backward_body(void *argument, int index, int count)
{
    const struct norm *n = argument;
    int64_t first, last;

    threads_split(n->x.rows, 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        if (n->adds) /* a constant makes better code */
            layer_row_backward(n, token, true);
        else
            layer_row_backward(n, token, false);
    }
}

status CPU(layernorm_backward)(struct stream *stream, struct tensor dx,
                               bool adds, struct tensor sums_weight,
                               struct tensor sums_bias, struct tensor dy,
                               struct tensor x, struct tensor stats,
                               struct tensor weight,
                               const struct token_order *order)
{
    struct norm n = {.y = view_of(dx, DTYPE_F32), .x = view_of(x, DTYPE_F32),
                     .dy = view_of(dy, DTYPE_F32), .adds = adds,
                     .sums_weight = sums_weight, .sums_bias = sums_bias,
                     .order = order};
    int64_t work = n.x.rows * n.x.width;

    CHECK(view_same_shape(n.y, n.x) && view_same_shape(n.y, n.dy));
    n.weight = vector_of(weight, n.x.width);
    n.stats = stats_of(stats, 2 * n.x.rows);
    token_sums_check(sums_weight, n.x.rows, n.x.width, order);
    token_sums_check(sums_bias, n.x.rows, n.x.width, order);
    cpu_run(stream, work, layer_sums_body, &n); /* first: dx may be dy */
    cpu_run(stream, work, layer_backward_body, &n);
    return OK;
}
