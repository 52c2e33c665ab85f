/* SPDX-License-Identifier: Apache-2.0 */
/* activation.c - layers without weights that work element by element: SwiGLU
 * (Shazeer 2020, arXiv:2002.05202, equation 6), GELU and its kin. */
#include "nn/layer.h"

static status swiglu_forward(const struct step *step, struct run *run)
{
    return run->kernels->swiglu_forward(run->stream,
                                        run_slot(run, step->output),
                                        run_slot(run, step->input));
}

static status swiglu_backward(const struct step *step, struct run *run)
{
    CHECK(!run->event->adds); /* gate and up have one reader */
    return run->kernels->swiglu_backward(
        run->stream, run_gradient(run, step->input),
        run_gradient(run, step->output), run_slot(run, step->input));
}

static status geglu_forward(const struct step *step, struct run *run)
{
    return run->kernels->geglu_forward(run->stream,
                                       run_slot(run, step->output),
                                       run_slot(run, step->input));
}

static status geglu_backward(const struct step *step, struct run *run)
{
    CHECK(!run->event->adds);
    return run->kernels->geglu_backward(
        run->stream, run_gradient(run, step->input),
        run_gradient(run, step->output), run_slot(run, step->input));
}

static status activation_forward(const struct step *step, struct run *run)
{
    return run->kernels->activation_forward(
        run->stream, run_slot(run, step->output), run_slot(run, step->input),
        step->set.activation.activation);
}

static status activation_backward(const struct step *step, struct run *run)
{
    CHECK(!run->event->adds);
    return run->kernels->activation_backward(
        run->stream, run_gradient(run, step->input),
        run_gradient(run, step->output), run_slot(run, step->input),
        step->set.activation.activation);
}

static struct step_cost elementwise_cost(const struct step *step,
                                         const struct program *p)
{
    const int64_t in = p->size.tokens * p->slots[step->input].width;
    const int64_t out = p->size.tokens * p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)(10 * out),
        .bytes_moved = (double)((in + out) * dtype_bytes(p->dtype))};
}

static const struct layer layer_swiglu = {
    .name = "swiglu", .kind = LAYER_ACTIVATION, .forward = swiglu_forward,
    .backward_input = swiglu_backward, .cost = elementwise_cost,
    .keeps_input_for_b = true};

static const struct layer layer_geglu = {
    .name = "geglu", .kind = LAYER_ACTIVATION, .forward = geglu_forward,
    .backward_input = geglu_backward, .cost = elementwise_cost,
    .keeps_input_for_b = true};

static const struct layer layer_activation = {
    .name = "activation", .kind = LAYER_ACTIVATION,
    .forward = activation_forward,
    .backward_input = activation_backward, .cost = elementwise_cost,
    .keeps_input_for_b = true};

static slot add_elementwise(struct program *p, const struct layer *layer,
                            slot x, int64_t width)
{
    const int step = program_add_step(p, layer, x);
    const slot output = program_add_slot(p, layer->name, width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    program_lay_as(p, output, x);
    return output;
}

slot nn_swiglu(struct program *p, slot gate_up)
{
    if (p->error != OK) return -1;
    return add_elementwise(p, &layer_swiglu, gate_up,
                           p->slots[gate_up].width / 2);
}

slot nn_geglu(struct program *p, slot gate_up)
{
    if (p->error != OK) return -1;
    return add_elementwise(p, &layer_geglu, gate_up,
                           p->slots[gate_up].width / 2);
}

slot nn_activation(struct program *p, slot x, enum activation activation)
{
    if (p->error != OK) return -1;
    const slot output =
        add_elementwise(p, &layer_activation, x, p->slots[x].width);

    if (p->error == OK)
        p->steps[p->step_count - 1].set.activation.activation = activation;
    return output;
}
