/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.cu - kernels whose elements do not see each other. */
#include "kernels/cuda/words.h"
#include "kernels/activations.h"

struct pair_of { float first, second; };

DEVICE float forward_of(enum activation activation, float x)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return gelu_tanh(x);
    case ACTIVATION_GELU_ERF: return x * normal_cumulative(x);
    case ACTIVATION_SILU: return silu_f32(x);
    case ACTIVATION_RELU: return x < 0 ? 0.0f : x;
    }
    return 0;
}

DEVICE float backward_of(enum activation activation, float dy, float x)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return dy * gelu_tanh_slope(x);
    case ACTIVATION_GELU_ERF: return dy * gelu_erf_slope(x);
    case ACTIVATION_SILU: return dy * silu_slope(x);
    case ACTIVATION_RELU: return x > 0 ? dy : 0.0f;
    }
    return 0;
}

/* first: dgate, second: dup. */
DEVICE struct pair_of gated_backward_of(enum activation activation, float dy,
                                        float gate, float up)
{
    struct pair_of out;

    if (activation == ACTIVATION_SILU) {
        const float s = 1.0f / one_plus_exp_f32(gate);
        const float silu = gate * s;

        out.second = dy * silu;
        out.first = dy * up * __builtin_fmaf(silu, 1.0f - s, s);
    } else {
        out.second = dy * gelu_tanh(gate);
        out.first = dy * up * gelu_tanh_slope(gate);
    }
    return out;
}

DEVICE float clamped_of(float gate, float up, float alpha, float limit)
{
    const float g = gate > limit ? limit : gate;
    const float v = up > limit ? limit : up;
    const float u = v < -limit ? -limit : v;

    return (u + 1.0f) * (g * (1.0f / one_plus_exp_f32(alpha * g)));
}

DEVICE struct pair_of clamped_backward_of(const struct elementwise_call *p,
                                          float dy, float gate, float up)
{
    const float alpha = p->constant[0], limit = p->constant[1];
    const float g = gate > limit ? limit : gate;
    const float low = up > limit ? limit : up;
    const float u = low < -limit ? -limit : low;
    const float t = 1.0f / one_plus_exp_f32(alpha * g);
    const float slope = __builtin_fmaf(alpha * g * t, 1.0f - t, t);
    struct pair_of out;

    out.first = gate > limit ? 0.0f : dy * (u + 1.0f) * slope;
    out.second = up > limit || up < -limit ? 0.0f : dy * (g * t);
    return out;
}

DEVICE float one_of(const struct elementwise_call *p, const float *x)
{
    const float a = x[0], b = x[1];
    const float t = b * p->constant[1]; /* of the soft cap backward */

    switch (p->op) {
    case OP_ADD: return a + b;
    case OP_SUM: return x[2] + (a + b);
    case OP_SCALE: return a * p->constant[0];
    case OP_FORWARD: return forward_of(p->activation, a);
    case OP_BACKWARD: return backward_of(p->activation, a, b);
    case OP_GATED: return forward_of(p->activation, a) * b;
    case OP_SOFTCAP: return p->constant[0] * tanh_f32(a * p->constant[1]);
    case OP_SOFTCAP_BACKWARD: return a * __builtin_fmaf(-t, t, 1.0f);
    case OP_CLAMPED:
        return clamped_of(a, b, p->constant[0], p->constant[1]);
    default: return 0; /* those of two results */
    }
}

/* Operands may be the same memory, element by element. */
CUDA_KERNEL(elementwise)
{
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t column = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;
    float x[3] = {0, 0, 0};
    struct pair_of both;

    if (column >= p->to[0].width) return;
    for (int i = 0; i < 3; i++)
        if (p->from[i].data) x[i] = value_get(p->from[i], row, column);
    if (p->op != OP_GATED_BACKWARD && p->op != OP_CLAMPED_BACKWARD) {
        value_set(p->to[0], row, column, one_of(p, x));
        return;
    }
    if (p->op == OP_GATED_BACKWARD)
        both = gated_backward_of(p->activation, x[0], x[1], x[2]);
    else
        both = clamped_backward_of(p, x[0], x[1], x[2]);
    value_set(p->to[0], row, column, both.first);
    value_set(p->to[1], row, column, both.second);
}

/* A thread turns one pair. */
CUDA_KERNEL(rope)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t token = i / (p->heads * p->half);

    if (token >= p->tokens) return;
    const int64_t head = i / p->half % p->heads, at = i % p->half;
    const float *turn =
        p->table + p->positions[token] * p->table_stride + 2 * at;
    const int64_t first =
        token * p->token_stride + head * p->head_stride + at;
    const float c = turn[0], s = p->backward ? -turn[1] : turn[1];
    const float x1 = element_get(p->x, p->dtype, first);
    const float x2 = element_get(p->x, p->dtype, first + p->half);

    element_set(p->x, p->dtype, first, __builtin_fmaf(x1, c, -(x2 * s)));
    element_set(p->x, p->dtype, first + p->half,
                __builtin_fmaf(x2, c, x1 * s));
}
