/* SPDX-License-Identifier: Apache-2.0 */
/* activation.c - layers without weights that work element by element: SwiGLU
 * (Shazeer 2020, arXiv:2002.05202, equation 6), GELU and its kin. */
#include "nn/glu_codes.h"
#include "nn/layer.h"

static bool is_gelu(const struct step *step)
{
    return step->set.activation.activation == ACTIVATION_GELU_TANH;
}

static status gated(const struct step *step, struct run *run, struct tensor x)
{
    const struct tensor out = run_slot(run, step->output);

    return is_gelu(step) ? run->kernels->geglu_forward(run->stream, out, x)
                         : run->kernels->swiglu_forward(run->stream, out, x);
}

static status gated_back(const struct step *step, struct run *run,
                         struct tensor x)
{
    const struct tensor dx = run_gradient(run, step->input);
    const struct tensor dy = run_gradient(run, step->output);

    CHECK(!run->event->adds); /* gate and up have one reader */
    return is_gelu(step)
               ? run->kernels->geglu_backward(run->stream, dx, dy, x)
               : run->kernels->swiglu_backward(run->stream, dx, dy, x);
}

static status gated_forward(const struct step *step, struct run *run)
{
    return gated(step, run, run_slot(run, step->input));
}

static status gated_backward(const struct step *step, struct run *run)
{
    return gated_back(step, run, run_slot(run, step->input));
}

/* ---- the same, with an input that waits for B as codes ---- */

static status coded_forward(const struct step *step, struct run *run)
{
    struct tensor x;

    if (run->event->pass == PASS_FORWARD) {
        x = run_slot(run, step->input);
        TRY(glu_codes_make(run, step, x));
    } else {
        TRY(glu_codes_read(run, step, &x));
    }
    return gated(step, run, x);
}

static status coded_backward(const struct step *step, struct run *run)
{
    struct tensor x;

    TRY(glu_codes_read(run, step, &x));
    return gated_back(step, run, x);
}

/* ---- without gates ---- */

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

#define GATED(text) \
    {.name = text, .kind = LAYER_ACTIVATION, .forward = gated_forward, \
     .backward_input = gated_backward, .cost = elementwise_cost, \
     .keeps_input_for_b = true}
#define CODED(text) \
    {.name = text, .kind = LAYER_ACTIVATION, .forward = coded_forward, \
     .backward_input = coded_backward, .cost = elementwise_cost, \
     .scratch = glu_codes_scratch, .keeps_codes = true}

/* [GeGLU][codes] */
static const struct layer gates[2][2] = {
    {GATED("swiglu"), CODED("swiglu")}, {GATED("geglu"), CODED("geglu")}};

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

static slot add_gate(struct program *p, slot gate_up,
                     enum activation activation)
{
    if (p->error != OK) return -1;
    const bool codes = glu_codes_apply(p);
    const slot output = add_elementwise(
        p, &gates[activation == ACTIVATION_GELU_TANH][codes], gate_up,
        p->slots[gate_up].width / 2);

    if (p->error != OK) return -1;
    p->steps[p->step_count - 1].set.activation.activation = activation;
    if (codes) glu_codes_name(p, p->step_count - 1);
    return output;
}

slot nn_swiglu(struct program *p, slot gate_up)
{
    return add_gate(p, gate_up, ACTIVATION_SILU);
}

slot nn_geglu(struct program *p, slot gate_up)
{
    return add_gate(p, gate_up, ACTIVATION_GELU_TANH);
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
