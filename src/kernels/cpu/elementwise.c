/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c - kernels whose elements do not see each other.
 *
 * One engine cuts the operands into blocks of columns and hands blocks to
 * threads; each kernel is then a loop over one block of float32. A block of a
 * narrow operand is widened before and rounded after it, while it is in the
 * first cache. Operands may be the same memory element by element, which the
 * loops allow. */
#include <math.h>
#include "kernels/activations.h"
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"
#include "kernels/view.h"

enum { BLOCK = 4096, NARROW_BLOCK = 1024, OPERANDS_MAX = 5 };

/* `at` points to the block's first element of each operand. */
typedef void (*block_kernel)(float *const *at, int64_t count,
                             const void *constants);

struct elementwise {
    block_kernel kernel;
    const void *constants;
    int operands, outputs; /* outputs come first */
    struct view views[OPERANDS_MAX];
};

struct elementwise_job {
    const struct elementwise *e;
    bool narrow; /* an operand is */
};

static void *operand_at(const struct view *view, int64_t row, int64_t column)
{
    return element_at(view->data, view->dtype, row * view->stride + column);
}

static void widen(float *out, const void *x, enum dtype dtype, int64_t count)
{
    if (dtype == DTYPE_BF16) {
        SIMD for (int64_t i = 0; i < count; i++)
            out[i] = element_get(x, DTYPE_BF16, i);
    } else {
        SIMD for (int64_t i = 0; i < count; i++)
            out[i] = element_get(x, DTYPE_F16, i);
    }
}

static void narrow(void *out, const float *x, enum dtype dtype, int64_t count)
{
    if (dtype == DTYPE_BF16) {
        SIMD for (int64_t i = 0; i < count; i++)
            element_set(out, DTYPE_BF16, i, x[i]);
    } else {
        SIMD for (int64_t i = 0; i < count; i++)
            element_set(out, DTYPE_F16, i, x[i]);
    }
}

/* A block through copies of its narrow operands. */
static void block_narrow(const struct elementwise *e, int64_t row,
                         int64_t column, int64_t count)
{
    float copies[OPERANDS_MAX][NARROW_BLOCK], *at[OPERANDS_MAX];

    for (int i = 0; i < e->operands; i++) {
        const struct view *view = &e->views[i];

        at[i] = copies[i];
        if (view->dtype == DTYPE_F32)
            at[i] = operand_at(view, row, column);
        else if (i >= e->outputs)
            widen(copies[i], operand_at(view, row, column), view->dtype,
                  count);
    }
    e->kernel(at, count, e->constants);
    for (int i = 0; i < e->outputs; i++)
        if (e->views[i].dtype != DTYPE_F32)
            narrow(operand_at(&e->views[i], row, column), copies[i],
                   e->views[i].dtype, count);
}

static void block_run(const struct elementwise *e, int64_t row, int64_t column,
                      int64_t count)
{
    float *at[OPERANDS_MAX];

    for (int i = 0; i < e->operands; i++)
        at[i] = operand_at(&e->views[i], row, column);
    e->kernel(at, count, e->constants);
}

static void elementwise_body(void *argument, int index, int count)
{
    const struct elementwise_job *job = argument;
    const struct elementwise *e = job->e;
    const int64_t size = job->narrow ? NARROW_BLOCK : BLOCK;
    int64_t width = e->views[0].width, blocks = (width + size - 1) / size;
    int64_t first, last;

    threads_split(e->views[0].rows * blocks, 1, index, count, &first, &last);
    for (int64_t unit = first; unit < last; unit++) {
        int64_t row = unit / blocks, column = unit % blocks * size;
        int64_t rest = width - column;

        if (job->narrow)
            block_narrow(e, row, column, rest < size ? rest : size);
        else
            block_run(e, row, column, rest < size ? rest : size);
    }
}

static status elementwise_run(struct stream *stream,
                              const struct elementwise *e)
{
    struct elementwise_job job = {e, false};

    for (int i = 0; i < e->operands; i++) {
        CHECK(view_same_shape(e->views[0], e->views[i]));
        CHECK(dtype_real(e->views[i].dtype) == DTYPE_F32);
        if (e->views[i].dtype != DTYPE_F32) job.narrow = true;
    }
    cpu_run(stream, e->views[0].rows * e->views[0].width, elementwise_body,
            &job);
    return OK;
}

static void add_block(float *const *at, int64_t count, const void *constants)
{
    float *y = at[0];
    const float *a = at[1], *b = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

status CPU(add)(struct stream *stream, struct tensor y, struct tensor a,
                struct tensor b)
{
    struct elementwise e = {add_block, NULL, 3, 1,
                            {view_any(y), view_any(a), view_any(b)}};

    return elementwise_run(stream, &e);
}

static void scale_block(float *const *at, int64_t count, const void *constants)
{
    float *y = at[0], factor = *(const float *)constants;
    const float *x = at[1];

    SIMD for (int64_t i = 0; i < count; i++) y[i] = x[i] * factor;
}

status CPU(scale)(struct stream *stream, struct tensor y, struct tensor x,
                  double factor)
{
    float rounded = (float)factor;
    struct elementwise e = {scale_block, &rounded, 2, 1,
                            {view_any(y), view_any(x)}};

    return elementwise_run(stream, &e);
}

static void gelu_tanh_block(float *const *at, int64_t count,
                            const void *constants)
{
    float *y = at[0];
    const float *x = at[1];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++)
        y[i] = gelu_tanh(x[i]);
}

static void gelu_erf_block(float *const *at, int64_t count,
                           const void *constants)
{
    float *y = at[0];
    const float *x = at[1];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++)
        y[i] = x[i] * normal_cumulative(x[i]);
}

static void silu_block(float *const *at, int64_t count, const void *constants)
{
    float *y = at[0];
    const float *x = at[1];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) y[i] = silu_f32(x[i]);
}

static void relu_block(float *const *at, int64_t count, const void *constants)
{
    float *y = at[0];
    const float *x = at[1];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) y[i] = x[i] < 0 ? 0.0f : x[i];
}

static block_kernel forward_block(enum activation activation)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return gelu_tanh_block;
    case ACTIVATION_GELU_ERF: return gelu_erf_block;
    case ACTIVATION_SILU: return silu_block;
    case ACTIVATION_RELU: return relu_block;
    }
    CHECK(false && "an activation");
    return NULL;
}

status CPU(activation_forward)(struct stream *stream, struct tensor y,
                               struct tensor x, enum activation activation)
{
    struct elementwise e = {forward_block(activation), NULL, 2, 1,
                            {view_any(y), view_any(x)}};

    return elementwise_run(stream, &e);
}

static void gelu_tanh_backward_block(float *const *at, int64_t count,
                                     const void *constants)
{
    float *dx = at[0];
    const float *dy = at[1], *x = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * gelu_tanh_slope(x[i]);
}

static void gelu_erf_backward_block(float *const *at, int64_t count,
                                    const void *constants)
{
    float *dx = at[0];
    const float *dy = at[1], *x = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * gelu_erf_slope(x[i]);
}

static void silu_backward_block(float *const *at, int64_t count,
                                const void *constants)
{
    float *dx = at[0];
    const float *dy = at[1], *x = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * silu_slope(x[i]);
}

static void relu_backward_block(float *const *at, int64_t count,
                                const void *constants)
{
    float *dx = at[0];
    const float *dy = at[1], *x = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) dx[i] = x[i] > 0 ? dy[i] : 0.0f;
}

static block_kernel backward_block(enum activation activation)
{
    switch (activation) {
    case ACTIVATION_GELU_TANH: return gelu_tanh_backward_block;
    case ACTIVATION_GELU_ERF: return gelu_erf_backward_block;
    case ACTIVATION_SILU: return silu_backward_block;
    case ACTIVATION_RELU: return relu_backward_block;
    }
    CHECK(false && "an activation");
    return NULL;
}

status CPU(activation_backward)(struct stream *stream, struct tensor dx,
                                struct tensor dy, struct tensor x,
                                enum activation activation)
{
    struct elementwise e = {backward_block(activation), NULL, 3, 1,
                            {view_any(dx), view_any(dy), view_any(x)}};

    return elementwise_run(stream, &e);
}

/* One half of the columns: 0 the gate, 1 the other. */
static struct view half_of(struct tensor tensor, int which)
{
    struct view view = view_any(tensor);

    CHECK(view.width % 2 == 0);
    view.width /= 2;
    view.data = element_at(view.data, view.dtype, which * view.width);
    return view;
}

typedef void elementwise_block(float *const *at, int64_t count,
                               const void *constants);

static status gated_forward(struct stream *stream, elementwise_block *block,
                            struct tensor out, struct tensor gate_up)
{
    struct elementwise e = {block, NULL, 3, 1,
                            {view_any(out), half_of(gate_up, 0),
                             half_of(gate_up, 1)}};

    return elementwise_run(stream, &e);
}

static status gated_backward(struct stream *stream, elementwise_block *block,
                             struct tensor dgate_up, struct tensor dout,
                             struct tensor gate_up)
{
    struct elementwise e = {block, NULL, 5, 2,
                            {half_of(dgate_up, 0), half_of(dgate_up, 1),
                             view_any(dout), half_of(gate_up, 0),
                             half_of(gate_up, 1)}};

    return elementwise_run(stream, &e);
}

static void swiglu_block(float *const *at, int64_t count,
                         const void *constants)
{
    float *y = at[0];
    const float *gate = at[1], *up = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) y[i] = silu_f32(gate[i]) * up[i];
}

status CPU(swiglu_forward)(struct stream *stream, struct tensor out,
                           struct tensor gate_up)
{
    return gated_forward(stream, swiglu_block, out, gate_up);
}

static void swiglu_backward_block(float *const *at, int64_t count,
                                  const void *constants)
{
    float *dgate = at[0], *dup = at[1];
    const float *dy = at[2], *gate = at[3], *up = at[4];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) {
        float s = 1.0f / one_plus_exp_f32(gate[i]); /* NaN: by the gate */
        float silu = gate[i] * s, u = up[i];

        dup[i] = dy[i] * silu;
        dgate[i] = dy[i] * u * __builtin_fmaf(silu, 1.0f - s, s);
    }
}

status CPU(swiglu_backward)(struct stream *stream, struct tensor dgate_up,
                            struct tensor dout, struct tensor gate_up)
{
    return gated_backward(stream, swiglu_backward_block, dgate_up, dout,
                          gate_up);
}

static void geglu_block(float *const *at, int64_t count, const void *constants)
{
    float *y = at[0];
    const float *gate = at[1], *up = at[2];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++)
        y[i] = gelu_tanh(gate[i]) * up[i];
}

status CPU(geglu_forward)(struct stream *stream, struct tensor out,
                          struct tensor gate_up)
{
    return gated_forward(stream, geglu_block, out, gate_up);
}

static void geglu_backward_block(float *const *at, int64_t count,
                                 const void *constants)
{
    float *dgate = at[0], *dup = at[1];
    const float *dy = at[2], *gate = at[3], *up = at[4];

    (void)constants;
    SIMD for (int64_t i = 0; i < count; i++) {
        float x = gate[i], d = dy[i], u = up[i], t = gelu_inner(x);
        float inner = __builtin_fmaf(x * x, (float)(3 * GELU_B),
                                     (float)GELU_A);

        dup[i] = d * (0.5f * x * (1.0f + t));
        dgate[i] = d * u * __builtin_fmaf(0.5f * x * inner,
                                          __builtin_fmaf(-t, t, 1.0f),
                                          0.5f * (1.0f + t));
    }
}

status CPU(geglu_backward)(struct stream *stream, struct tensor dgate_up,
                           struct tensor dout, struct tensor gate_up)
{
    return gated_backward(stream, geglu_backward_block, dgate_up, dout,
                          gate_up);
}

static void softcap_block(float *const *at, int64_t count,
                          const void *constants)
{
    const float *cap = constants; /* and its reciprocal */
    float *y = at[0], most = cap[0], inverse = cap[1];
    const float *x = at[1];

    SIMD for (int64_t i = 0; i < count; i++)
        y[i] = most * tanh_f32(x[i] * inverse);
}

status CPU(softcap_forward)(struct stream *stream, struct tensor y,
                            struct tensor x, double cap)
{
    float constants[2] = {(float)cap, (float)(1 / cap)};
    struct elementwise e = {softcap_block, constants, 2, 1,
                            {view_any(y), view_any(x)}};

    return elementwise_run(stream, &e);
}

static void softcap_backward_block(float *const *at, int64_t count,
                                   const void *constants)
{
    const float *dy = at[1], *y = at[2], *inverse = constants;
    float *dx = at[0], factor = *inverse;

    SIMD for (int64_t i = 0; i < count; i++) {
        float t = y[i] * factor;

        dx[i] = dy[i] * __builtin_fmaf(-t, t, 1.0f);
    }
}

status CPU(softcap_backward)(struct stream *stream, struct tensor dx,
                             struct tensor y, double cap)
{
    float inverse = (float)(1 / cap);
    struct elementwise e = {softcap_backward_block, &inverse, 3, 1,
                            {view_any(dx), view_any(dx), view_any(y)}};

    return elementwise_run(stream, &e);
}

static void clamped_block(float *const *at, int64_t count,
                          const void *constants)
{
    const float *c = constants; /* alpha, limit */
    float *y = at[0], alpha = c[0], limit = c[1];
    const float *gate = at[1], *up = at[2];

    SIMD for (int64_t i = 0; i < count; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float v = up[i] > limit ? limit : up[i];
        const float u = v < -limit ? -limit : v;

        y[i] = (u + 1.0f) * (g * (1.0f / one_plus_exp_f32(alpha * g)));
    }
}

status CPU(clamped_forward)(struct stream *stream, const struct clamped_glu *p)
{
    float constants[2] = {(float)p->alpha, (float)p->limit};
    struct elementwise e = {clamped_block, constants, 3, 1,
                            {view_any(p->out), half_of(p->gate_up, 0),
                             half_of(p->gate_up, 1)}};

    return elementwise_run(stream, &e);
}

static void clamped_backward_block(float *const *at, int64_t count,
                                   const void *constants)
{
    const float *c = constants;
    float *dgate = at[0], *dup = at[1], alpha = c[0], limit = c[1];
    const float *dy = at[2], *gate = at[3], *up = at[4];

    SIMD for (int64_t i = 0; i < count; i++) {
        const float x = gate[i], v = up[i], d = dy[i];
        const float g = x > limit ? limit : x;
        const float low = v > limit ? limit : v;
        const float u = low < -limit ? -limit : low;
        const float t = 1.0f / one_plus_exp_f32(alpha * g);
        const float slope = __builtin_fmaf(alpha * g * t, 1.0f - t, t);
        const float of_gate = d * (u + 1.0f) * slope, of_up = d * (g * t);
        const bool outside = (v > limit) | (v < -limit);

        dgate[i] = x > limit ? 0.0f : of_gate;
        dup[i] = outside ? 0.0f : of_up;
    }
}

status CPU(clamped_backward)(struct stream *stream,
                             const struct clamped_glu *p)
{
    float constants[2] = {(float)p->alpha, (float)p->limit};
    struct elementwise e = {clamped_backward_block, constants, 5, 2,
                            {half_of(p->dgate_up, 0), half_of(p->dgate_up, 1),
                             view_any(p->dout), half_of(p->gate_up, 0),
                             half_of(p->gate_up, 1)}};

    return elementwise_run(stream, &e);
}
