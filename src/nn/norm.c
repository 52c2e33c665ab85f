/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - RMSNorm and LayerNorm over the width of a slot.
 * Source: Zhang and Sennrich 2019, arXiv:1910.07467, equation 4; Ba, Kiros and
 * Hinton 2016, arXiv:1607.06450, equation 4. */
#include "nn/layer.h"

/* The host does not wait for a device apart: it writes ones, and a kernel adds
 * them. A sum of two elements has the bits of the host's: each is rounded once,
 * or to more than twice the bits first. */
status norm_weight(const struct run *run, struct tensor weight, bool plus_one,
                   void *memory, struct tensor *out)
{
    const bool apart = run->stream->device != NULL;
    struct tensor here = weight;

    *out = weight;
    if (!plus_one) return OK;
    out->data = memory;
    here.data = run_list(run, memory);
    for (int64_t i = 0; i < weight.shape[0]; i++)
        tensor_set(&here, i, 1 + (apart ? 0 : tensor_get(&weight, i)));
    if (!apart) return OK;
    TRY(run_told(run, memory,
                 (size_t)(weight.shape[0] * dtype_bytes(weight.dtype))));
    return run->kernels->add(run->stream, *out, weight, *out);
}

/* Behind the sums in scratch. */
static status own_weight(const struct step *step, struct run *run,
                         struct tensor *out)
{
    const struct tensor weight = run_weight(run, step, 0);

    return norm_weight(run, weight, step->set.norm.plus_one,
                       (char *)run->scratch +
                           vector_scratch(run->program, 1, weight.shape[0]),
                       out);
}

static status rmsnorm_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    const struct tensor dy = run_gradient(run, step->output);
    const struct tensor x = run_slot(run, step->input);
    const struct tensor rrms = run_slot(run, step->aux);
    struct vector_pass pass = {0};
    struct tensor weight;

    TRY(own_weight(step, run, &weight));
    while (vector_next(run, step, 0, &pass)) {
        const struct tensor part = addend_rows(run, rrms, &pass.addend);

        TRY(run->kernels->rmsnorm_backward(
            run->stream, addend_rows(run, dx, &pass.addend), run->event->adds,
            pass.sums[0], addend_rows(run, dy, &pass.addend),
            addend_rows(run, x, &pass.addend),
            tensor_1d(part.data, part.dtype, part.shape[0]), weight,
            &pass.order));
        TRY(vector_end(run, step, 0, &pass));
    }
    return OK;
}

/* In scratch, where the layer has none. */
static status zero_bias(struct run *run, struct tensor weight,
                        struct tensor *out)
{
    *out = tensor_1d(run->scratch, weight.dtype, weight.shape[0]);
    return device_fill(run->stream, run->scratch, 0,
                       (size_t)(weight.shape[0] * dtype_bytes(weight.dtype)));
}

status norm_call(struct run *run, int step, struct norm_after *out)
{
    const struct step *norm = &run->program->steps[step];

    *out = (struct norm_after){.layer =
                                   run->program->slots[norm->aux].width == 2,
                               .y = run_slot(run, norm->output),
                               .stats = run_slot(run, norm->aux),
                               .epsilon = norm->set.norm.epsilon};
    if (!out->layer) return own_weight(norm, run, &out->weight);
    out->weight = run_weight(run, norm, 0);
    if (norm->param[1] < 0) return zero_bias(run, out->weight, &out->bias);
    out->bias = run_weight(run, norm, 1);
    return OK;
}

static status rmsnorm_forward(const struct step *step, struct run *run)
{
    struct norm_after norm;

    TRY(norm_call(run, step->index, &norm));
    return run->kernels->rmsnorm_forward(
        run->stream, norm.y,
        tensor_1d(norm.stats.data, norm.stats.dtype, norm.stats.shape[0]),
        run_slot(run, step->input), norm.weight, norm.epsilon);
}

static status layernorm_forward(const struct step *step, struct run *run)
{
    struct norm_after norm;

    TRY(norm_call(run, step->index, &norm));
    return run->kernels->layernorm_forward(
        run->stream, norm.y, norm.stats, run_slot(run, step->input),
        norm.weight, norm.bias, norm.epsilon);
}

static status layernorm_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    const struct tensor dy = run_gradient(run, step->output);
    const struct tensor x = run_slot(run, step->input);
    const struct tensor stats = run_slot(run, step->aux);
    struct vector_pass pass = {0};

    while (vector_next(run, step, 0, &pass)) {
        if (step->param[1] < 0) { /* sums that nobody reads */
            pass.sums[1] = pass.sums[0];
            pass.sums[1].data =
                (char *)run->scratch + vector_scratch(run->program, 1,
                                                      x.shape[1]);
        }
        TRY(run->kernels->layernorm_backward(
            run->stream, addend_rows(run, dx, &pass.addend), run->event->adds,
            pass.sums[0], pass.sums[1], addend_rows(run, dy, &pass.addend),
            addend_rows(run, x, &pass.addend),
            addend_rows(run, stats, &pass.addend), run_weight(run, step, 0),
            &pass.order));
        TRY(vector_end(run, step, 0, &pass));
    }
    return OK;
}

static struct step_cost norm_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t n = program_slot_rows(p, step->output) *
                      p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)(5 * n),
        .bytes_moved = (double)(2 * n * dtype_bytes(p->dtype))};
}

static size_t norm_scratch(const struct step *step, const struct program *p)
{
    const int64_t width = p->slots[step->output].width;
    const size_t sums =
        vector_scratch(p, p->slots[step->aux].width == 1 ? 1 : 2, width);

    return sums + (step->set.norm.plus_one
                       ? (size_t)(width * dtype_bytes(p->dtype)) : 0);
}

static const struct layer layer_rmsnorm = {
    .name = "rmsnorm", .kind = LAYER_NORM, .forward = rmsnorm_forward,
    .backward_input = rmsnorm_backward, .cost = norm_cost,
    .scratch = norm_scratch, .made_before = true, .keeps_input_for_b = true,
    .keeps_aux_for_b = true};

static const struct layer layer_layernorm = {
    .name = "layernorm", .kind = LAYER_NORM, .forward = layernorm_forward,
    .backward_input = layernorm_backward, .cost = norm_cost,
    .scratch = norm_scratch, .made_before = true, .keeps_input_for_b = true,
    .keeps_aux_for_b = true};

/* Whether a norm needs no scratch. */
static bool is_plain(const struct program *p, const struct step *norm)
{
    return !norm->set.norm.plus_one &&
           (norm->param[1] >= 0 || p->slots[norm->aux].width == 1);
}

bool norm_is_joined(const struct program *p, const struct step *step)
{
    const struct step *norm = step + 1;
    const bool product = step->layer->kind == LAYER_LINEAR;
    const slot left = step->left;

    return step->layer->makes_norm && step->index + 1 < p->step_count &&
           norm->layer->made_before && norm->input == step->output &&
           p->slots[step->output].dtype == p->dtype &&
           p->layout.overlap.count <= 1 &&
           (product ? p->joins_norms.products && !step->few
                    : p->joins_norms.sums && left >= 0 &&
                          p->slots[left].dtype == p->dtype &&
                          (step->layer->scratch == NULL || is_plain(p, norm)));
}

/* One statistic a token: 1 / root mean square; two: mean, 1 / deviation. */
static slot add_norm(struct program *p, const struct layer *layer, slot x,
                     int statistics, double epsilon)
{
    x = relayout_local(p, x);
    const int step = program_add_step(p, layer, x);
    const slot output =
        program_add_slot(p, layer->name, x < 0 ? 0 : p->slots[x].width, false);
    const slot aux = program_add_slot(p, "statistics", statistics, true);

    if (p->error != OK) return -1;
    p->slots[output].layout.tokens = p->slots[x].layout.tokens;
    p->slots[aux].layout.tokens = p->slots[x].layout.tokens;
    p->steps[step].output = output;
    p->steps[step].aux = aux;
    p->steps[step].set.norm.epsilon = epsilon;
    return output;
}

slot nn_rmsnorm(struct program *p, slot x, const struct param_spec *weight,
                double epsilon)
{
    const slot output = add_norm(p, &layer_rmsnorm, x, 1, epsilon);

    if (p->error == OK) program_add_param(p, p->step_count - 1, 0, weight);
    return output;
}

slot nn_rmsnorm_plus_one(struct program *p, slot x,
                         const struct param_spec *weight, double epsilon)
{
    const slot output = nn_rmsnorm(p, x, weight, epsilon);

    if (p->error == OK) p->steps[p->step_count - 1].set.norm.plus_one = true;
    return output;
}

slot nn_layernorm(struct program *p, slot x, const struct param_spec *weight,
                  const struct param_spec *bias, double epsilon)
{
    const slot output = add_norm(p, &layer_layernorm, x, 2, epsilon);

    if (p->error == OK) program_add_param(p, p->step_count - 1, 0, weight);
    if (p->error == OK && bias != NULL)
        program_add_param(p, p->step_count - 1, 1, bias);
    return output;
}
