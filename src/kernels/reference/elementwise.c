/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c - kernels whose elements do not see each other. The order of
 * operations here is the definition: one expression, one rounding each, FMAs
 * named. */
#include "kernels/reference/real.h"
#include "kernels/view.h"

/* sqrt(2 / pi), and 0.044715 times it: tanh form of GELU, Hendrycks and Gimpel,
 * "Gaussian Error Linear Units", arXiv 1606.08415, section 2. */
#define GELU_A 0.79788456080286535588
#define GELU_B (0.044715 * GELU_A)
#define SQRT_HALF 0.70710678118654752440
#define INVERSE_SQRT_TWO_PI 0.39894228040143267794

static real *row_of(struct view view, int64_t row)
{
    return (real *)view.data + row * view.stride;
}

status NAME(add)(struct stream *stream, struct tensor y, struct tensor a,
                 struct tensor b)
{
    struct view to = view_of(y, REAL_DTYPE), left = view_of(a, REAL_DTYPE);
    struct view right = view_of(b, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, left) && view_same_shape(to, right));
    for (int64_t row = 0; row < to.rows; row++) {
        const real *u = row_of(left, row), *v = row_of(right, row);
        real *out = row_of(to, row);

        for (int64_t i = 0; i < to.width; i++) out[i] = u[i] + v[i];
    }
    return OK;
}

status NAME(scale)(struct stream *stream, struct tensor y, struct tensor x,
                   double factor)
{
    struct view to = view_of(y, REAL_DTYPE), from = view_of(x, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, from));
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++)
            row_of(to, row)[i] = row_of(from, row)[i] * (real)factor;
    return OK;
}

static real sigmoid(real x)
{
    return 1 / (1 + REAL_EXP(-x));
}

static real silu(real x)
{
    return x / (1 + REAL_EXP(-x));
}

/* s + x s (1 - s) with s = sigmoid(x) */
static real silu_slope(real x)
{
    real s = sigmoid(x);

    return REAL_FMA(x * s, 1 - s, s);
}

/* tanh of its argument, x (A + B x^2) */
static real gelu_inner(real x)
{
    return REAL_TANH(x * REAL_FMA(x * x, (real)GELU_B, (real)GELU_A));
}

static real gelu_tanh_slope(real x)
{
    real t = gelu_inner(x);
    real inner = REAL_FMA(x * x, (real)(3 * GELU_B), (real)GELU_A);

    return REAL_FMA((real)0.5 * x * inner, REAL_FMA(-t, t, 1),
                    (real)0.5 * (1 + t));
}

static real normal_cumulative(real x)
{
    return (real)0.5 * (1 + REAL_ERF(x * (real)SQRT_HALF));
}

static real gelu_erf_slope(real x)
{
    real density = REAL_EXP((real)-0.5 * x * x) * (real)INVERSE_SQRT_TWO_PI;

    return REAL_FMA(x, density, normal_cumulative(x));
}

/* Comparisons are written so that NaN stays NaN. */
static real activate(real x, enum activation activation)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return (real)0.5 * x * (1 + gelu_inner(x));
    case ACTIVATION_GELU_ERF: return x * normal_cumulative(x);
    case ACTIVATION_SILU: return silu(x);
    case ACTIVATION_RELU: return x < 0 ? 0 : x;
    }
    CHECK(false && "an activation");
    return 0;
}

static real activate_backward(real dy, real x, enum activation activation)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return dy * gelu_tanh_slope(x);
    case ACTIVATION_GELU_ERF: return dy * gelu_erf_slope(x);
    case ACTIVATION_SILU: return dy * silu_slope(x);
    case ACTIVATION_RELU: return x > 0 ? dy : 0;
    }
    CHECK(false && "an activation");
    return 0;
}

status NAME(activation_forward)(struct stream *stream, struct tensor y,
                                struct tensor x, enum activation activation)
{
    struct view to = view_of(y, REAL_DTYPE), from = view_of(x, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, from));
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++)
            row_of(to, row)[i] = activate(row_of(from, row)[i], activation);
    return OK;
}

status NAME(activation_backward)(struct stream *stream, struct tensor dx,
                                 struct tensor dy, struct tensor x,
                                 enum activation activation)
{
    struct view to = view_of(dx, REAL_DTYPE), from = view_of(dy, REAL_DTYPE);
    struct view at = view_of(x, REAL_DTYPE);

    (void)stream;
    CHECK(view_same_shape(to, from) && view_same_shape(to, at));
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++)
            row_of(to, row)[i] = activate_backward(
                row_of(from, row)[i], row_of(at, row)[i], activation);
    return OK;
}

static status gated_forward(struct tensor out, struct tensor gate_up,
                            enum activation activation)
{
    struct view to = view_of(out, REAL_DTYPE);
    struct view from = view_of(gate_up, REAL_DTYPE);

    CHECK(from.rows == to.rows && from.width == 2 * to.width);
    for (int64_t row = 0; row < to.rows; row++) {
        const real *gate = row_of(from, row), *up = gate + to.width;

        for (int64_t i = 0; i < to.width; i++)
            row_of(to, row)[i] = activate(gate[i], activation) * up[i];
    }
    return OK;
}

/* The value and the slope of what gates. */
struct gate { real value, slope; };

static status gated_backward(struct tensor dgate_up, struct tensor dout,
                             struct tensor gate_up,
                             struct gate (*gate_at)(real x))
{
    struct view to = view_of(dgate_up, REAL_DTYPE);
    struct view dy = view_of(dout, REAL_DTYPE);
    struct view from = view_of(gate_up, REAL_DTYPE);

    CHECK(view_same_shape(to, from));
    CHECK(dy.rows == to.rows && 2 * dy.width == to.width);
    for (int64_t row = 0; row < to.rows; row++) {
        const real *d = row_of(dy, row), *in = row_of(from, row);
        real *dgate = row_of(to, row), *dup = dgate + dy.width;

        for (int64_t i = 0; i < dy.width; i++) {
            const struct gate gate = gate_at(in[i]);
            const real up = in[dy.width + i];

            dup[i] = d[i] * gate.value;
            dgate[i] = d[i] * up * gate.slope;
        }
    }
    return OK;
}

static struct gate silu_gate(real x)
{
    return (struct gate){x * sigmoid(x), silu_slope(x)};
}

static struct gate gelu_tanh_gate(real x)
{
    return (struct gate){activate(x, ACTIVATION_GELU_TANH),
                         gelu_tanh_slope(x)};
}

status NAME(swiglu_forward)(struct stream *stream, struct tensor out,
                            struct tensor gate_up)
{
    (void)stream;
    return gated_forward(out, gate_up, ACTIVATION_SILU);
}

status NAME(swiglu_backward)(struct stream *stream, struct tensor dgate_up,
                             struct tensor dout, struct tensor gate_up)
{
    (void)stream;
    return gated_backward(dgate_up, dout, gate_up, silu_gate);
}

status NAME(geglu_forward)(struct stream *stream, struct tensor out,
                           struct tensor gate_up)
{
    (void)stream;
    return gated_forward(out, gate_up, ACTIVATION_GELU_TANH);
}

status NAME(geglu_backward)(struct stream *stream, struct tensor dgate_up,
                            struct tensor dout, struct tensor gate_up)
{
    (void)stream;
    return gated_backward(dgate_up, dout, gate_up, gelu_tanh_gate);
}

/* Source: Gemma team 2024, arXiv:2408.00118, section 2. */
status NAME(softcap_forward)(struct stream *stream, struct tensor y,
                             struct tensor x, double cap)
{
    struct view to = view_of(y, REAL_DTYPE), from = view_of(x, REAL_DTYPE);
    const real most = (real)cap, inverse = (real)(1 / cap);

    (void)stream;
    CHECK(view_same_shape(to, from));
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++)
            row_of(to, row)[i] =
                most * REAL_TANH(row_of(from, row)[i] * inverse);
    return OK;
}

status NAME(softcap_backward)(struct stream *stream, struct tensor dx,
                              struct tensor y, double cap)
{
    struct view to = view_of(dx, REAL_DTYPE), from = view_of(y, REAL_DTYPE);
    const real inverse = (real)(1 / cap);

    (void)stream;
    CHECK(view_same_shape(to, from));
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++) {
            real t = row_of(from, row)[i] * inverse;

            row_of(to, row)[i] = row_of(to, row)[i] * REAL_FMA(-t, t, 1);
        }
    return OK;
}

/* x [tokens, heads, width]: one rotation per pair (i, i + rotary / 2).
 * Source: Su and others, "RoFormer", arXiv 2104.09864, equation 34, with the
 * two elements of a pair half the rotary width apart. */
status NAME(rope)(struct stream *stream, struct tensor x,
                  const int32_t *positions, struct tensor table, int rotary,
                  bool backward)
{
    int64_t half = rotary / 2;

    (void)stream;
    CHECK(x.dtype == REAL_DTYPE && table.dtype == REAL_DTYPE);
    CHECK(x.dimensions == 3 && x.stride[2] == 1 && rotary % 2 == 0);
    CHECK(rotary <= x.shape[2] && table.shape[1] == half);
    for (int64_t token = 0; token < x.shape[0]; token++) {
        const real *turn = (const real *)table.data +
                           positions[token] * table.stride[0];

        CHECK(positions[token] >= 0 && positions[token] < table.shape[0]);
        for (int64_t head = 0; head < x.shape[1]; head++) {
            real *first = (real *)x.data + token * x.stride[0] +
                          head * x.stride[1];
            real *second = first + half;

            for (int64_t i = 0; i < half; i++) {
                real c = turn[2 * i], s = turn[2 * i + 1];
                real x1 = first[i], x2 = second[i];

                if (backward) s = -s;
                first[i] = REAL_FMA(x1, c, -(x2 * s));
                second[i] = REAL_FMA(x2, c, x1 * s);
            }
        }
    }
    return OK;
}

/* Source: gpt-oss, as released. NaN stays NaN. */
static real clamped_gate(real x, real limit)
{
    return x > limit ? limit : x;
}

static real clamped_up(real x, real limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

status NAME(clamped_forward)(struct stream *stream, const struct clamped_glu *p)
{
    struct view to = view_of(p->out, REAL_DTYPE);
    struct view from = view_of(p->gate_up, REAL_DTYPE);
    const real alpha = (real)p->alpha, limit = (real)p->limit;

    (void)stream;
    CHECK(from.rows == to.rows && from.width == 2 * to.width);
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < to.width; i++) {
            const real g = clamped_gate(row_of(from, row)[i], limit);
            const real u = clamped_up(row_of(from, row)[to.width + i], limit);

            row_of(to, row)[i] = (u + 1) * (g * sigmoid(alpha * g));
        }
    return OK;
}

status NAME(clamped_backward)(struct stream *stream,
                              const struct clamped_glu *p)
{
    struct view to = view_of(p->dgate_up, REAL_DTYPE);
    struct view dy = view_of(p->dout, REAL_DTYPE);
    struct view from = view_of(p->gate_up, REAL_DTYPE);
    const real alpha = (real)p->alpha, limit = (real)p->limit;

    (void)stream;
    CHECK(view_same_shape(to, from));
    CHECK(dy.rows == to.rows && 2 * dy.width == to.width);
    for (int64_t row = 0; row < to.rows; row++)
        for (int64_t i = 0; i < dy.width; i++) {
            const real gate = row_of(from, row)[i];
            const real up = row_of(from, row)[dy.width + i];
            const real d = row_of(dy, row)[i];
            const real g = clamped_gate(gate, limit);
            const real u = clamped_up(up, limit);
            const real t = sigmoid(alpha * g);
            const real dgate =
                d * (u + 1) * REAL_FMA(alpha * g * t, 1 - t, t);

            row_of(to, row)[i] = gate > limit ? 0 : dgate;
            row_of(to, row)[dy.width + i] =
                up > limit || up < -limit ? 0 : d * (g * t);
        }
    return OK;
}
