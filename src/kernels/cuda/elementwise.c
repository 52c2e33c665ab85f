/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c - starts the kernels of elementwise.cu. */
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"
#include "kernels/element.h"

/* The same elements as one row, where rows follow each other. */
static bool is_dense(const struct elementwise_call *call)
{
    for (int i = 0; i < 2; i++)
        if (call->to[i].data && call->to[i].stride != call->to[i].width)
            return false;
    for (int i = 0; i < 3; i++)
        if (call->from[i].data && call->from[i].stride != call->from[i].width)
            return false;
    return true;
}

static void view_flatten(struct view *view)
{
    view->width = view->stride = view->rows * view->width;
    view->rows = 1;
}

static status elementwise(struct stream *stream, struct elementwise_call *call)
{
    for (int i = 0; i < 3; i++)
        CHECK(!call->from[i].data ||
              view_same_shape(call->from[i], call->to[0]));
    if (is_dense(call)) {
        for (int i = 0; i < 2; i++) view_flatten(&call->to[i]);
        for (int i = 0; i < 3; i++) view_flatten(&call->from[i]);
    }
    call->row_blocks = blocks_of(call->to[0].width);
    LAUNCH(stream, elementwise, call->to[0].rows * call->row_blocks, call);
    return OK;
}

/* One half of the columns: 0 the gate, 1 the other. */
static struct view half_of(struct tensor tensor, int which)
{
    struct view view = view_real(tensor);

    CHECK(view.width % 2 == 0);
    view.width /= 2;
    view.data = element_at(view.data, view.dtype, which * view.width);
    return view;
}

status cuda_add(struct stream *stream, struct tensor y, struct tensor a,
                struct tensor b)
{
    struct elementwise_call call = {
        .op = OP_ADD, .to = {view_real(y)},
        .from = {view_real(a), view_real(b)}};

    return elementwise(stream, &call);
}

status cuda_sum(struct stream *stream, struct tensor y, struct tensor left,
                struct tensor a, struct tensor b)
{
    struct elementwise_call call = {
        .op = OP_SUM, .to = {view_real(y)},
        .from = {view_real(a), view_real(b), view_real(left)}};

    return elementwise(stream, &call);
}

status cuda_scale(struct stream *stream, struct tensor y, struct tensor x,
                  double factor)
{
    struct elementwise_call call = {.op = OP_SCALE, .to = {view_real(y)},
                                    .from = {view_real(x)},
                                    .constant = {(float)factor}};

    return elementwise(stream, &call);
}

status cuda_activation_forward(struct stream *stream, struct tensor y,
                               struct tensor x, enum activation activation)
{
    struct elementwise_call call = {.op = OP_FORWARD, .activation = activation,
                                    .to = {view_real(y)},
                                    .from = {view_real(x)}};

    return elementwise(stream, &call);
}

status cuda_activation_backward(struct stream *stream, struct tensor dx,
                                struct tensor dy, struct tensor x,
                                enum activation activation)
{
    struct elementwise_call call = {
        .op = OP_BACKWARD, .activation = activation, .to = {view_real(dx)},
        .from = {view_real(dy), view_real(x)}};

    return elementwise(stream, &call);
}

static status gated_forward(struct stream *stream, struct tensor out,
                            struct tensor gate_up, enum activation activation)
{
    struct elementwise_call call = {
        .op = OP_GATED, .activation = activation, .to = {view_real(out)},
        .from = {half_of(gate_up, 0), half_of(gate_up, 1)}};

    return elementwise(stream, &call);
}

static status gated_backward(struct stream *stream, struct tensor dgate_up,
                             struct tensor dout, struct tensor gate_up,
                             enum activation activation)
{
    struct elementwise_call call = {
        .op = OP_GATED_BACKWARD, .activation = activation,
        .to = {half_of(dgate_up, 0), half_of(dgate_up, 1)},
        .from = {view_real(dout), half_of(gate_up, 0), half_of(gate_up, 1)}};

    return elementwise(stream, &call);
}

status cuda_swiglu_forward(struct stream *stream, struct tensor out,
                           struct tensor gate_up)
{
    return gated_forward(stream, out, gate_up, ACTIVATION_SILU);
}

status cuda_swiglu_backward(struct stream *stream, struct tensor dgate_up,
                            struct tensor dout, struct tensor gate_up)
{
    return gated_backward(stream, dgate_up, dout, gate_up, ACTIVATION_SILU);
}

status cuda_geglu_forward(struct stream *stream, struct tensor out,
                          struct tensor gate_up)
{
    return gated_forward(stream, out, gate_up, ACTIVATION_GELU_TANH);
}

status cuda_geglu_backward(struct stream *stream, struct tensor dgate_up,
                           struct tensor dout, struct tensor gate_up)
{
    return gated_backward(stream, dgate_up, dout, gate_up,
                          ACTIVATION_GELU_TANH);
}

status cuda_softcap_forward(struct stream *stream, struct tensor y,
                            struct tensor x, double cap)
{
    struct elementwise_call call = {
        .op = OP_SOFTCAP, .to = {view_real(y)}, .from = {view_real(x)},
        .constant = {(float)cap, (float)(1 / cap)}};

    return elementwise(stream, &call);
}

status cuda_softcap_backward(struct stream *stream, struct tensor dx,
                             struct tensor y, double cap)
{
    struct elementwise_call call = {
        .op = OP_SOFTCAP_BACKWARD, .to = {view_real(dx)},
        .from = {view_real(dx), view_real(y)},
        .constant = {(float)cap, (float)(1 / cap)}};

    return elementwise(stream, &call);
}

status cuda_clamped_forward(struct stream *stream, const struct clamped_glu *p)
{
    struct elementwise_call call = {
        .op = OP_CLAMPED, .to = {view_real(p->out)},
        .from = {half_of(p->gate_up, 0), half_of(p->gate_up, 1)},
        .constant = {(float)p->alpha, (float)p->limit}};

    return elementwise(stream, &call);
}

status cuda_clamped_backward(struct stream *stream,
                             const struct clamped_glu *p)
{
    struct elementwise_call call = {
        .op = OP_CLAMPED_BACKWARD,
        .to = {half_of(p->dgate_up, 0), half_of(p->dgate_up, 1)},
        .from = {view_real(p->dout), half_of(p->gate_up, 0),
                 half_of(p->gate_up, 1)},
        .constant = {(float)p->alpha, (float)p->limit}};

    return elementwise(stream, &call);
}

status cuda_rope(struct stream *stream, struct tensor x,
                 const int32_t *positions, struct tensor table, int rotary,
                 bool backward)
{
    const struct rope_call call = {
        x.data, x.dtype, x.shape[0], x.shape[1], x.stride[0], x.stride[1],
        positions, table.data, table.stride[0], rotary / 2, backward};

    CHECK(dtype_real(x.dtype) == DTYPE_F32 && table.dtype == DTYPE_F32);
    CHECK(x.dimensions == 3 && x.stride[2] == 1 && rotary % 2 == 0);
    CHECK(rotary <= x.shape[2] && table.shape[1] == rotary / 2);
    LAUNCH(stream, rope, blocks_of(call.tokens * call.heads * call.half),
           &call);
    return OK;
}
