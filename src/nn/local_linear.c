/* SPDX-License-Identifier: Apache-2.0 */
/* local_linear.c - y = x Wᵀ with a small matrix that every tensor rank has
 * whole: each works on the tokens that it has. The gradient is summed as that
 * of a norm's weight: by parts of each sequence (docs/numerics.md). */
#include "nn/layer.h"

static const struct param *weight_of(const struct run *run,
                                     const struct step *step)
{
    return &run->program->params.items[step->param[0]];
}

static status local_forward(const struct step *step, struct run *run)
{
    const struct sum_order order =
        run_order_whole(run, weight_of(run, step)->cols);
    struct matmul call = {
        .c = run_slot(run, step->output), .a = run_slot(run, step->input),
        .b = tensor_transpose(run_weight(run, step, 0)), .order = &order};
    struct product_room room;

    product_beside(run, step, &room, &call);
    return run->kernels->matmul(run->stream, &call);
}

/* The gradient of the logits' bias. */
static status bias_backward(const struct step *step, struct run *run)
{
    const struct tensor dy = run_gradient(run, step->output);
    struct vector_pass pass = {0};

    if (step->param[1] < 0) return OK;
    while (vector_next(run, step, 1, &pass)) {
        TRY(run->real->sum_rows(run->stream, pass.sums[1],
                                addend_rows(run, dy, &pass.addend),
                                &pass.order));
        TRY(vector_end(run, step, 1, &pass));
    }
    return OK;
}

static status local_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    const struct sum_order order =
        run_order_whole(run, weight_of(run, step)->rows);
    const struct matmul call = {
        .c = dx, .a = run_gradient(run, step->output),
        .b = run_weight(run, step, 0), .order = &order,
        .left = run->event->adds ? &dx : NULL};

    TRY(run->kernels->matmul(run->stream, &call));
    return bias_backward(step, run);
}

/* The tokens of one part of one leaf: of each of its sequences, or of both
 * context chunks of a context leaf of each. */
static struct sum_order order_part(struct run *run,
                                   const struct token_order *order, int leaf,
                                   int part)
{
    const int contexts = token_order_contexts(order);
    const int halves = order->context_chunks > 1 ? 2 : 1;
    const int64_t from = token_order_part(order, part);
    const int64_t length = token_order_part(order, part + 1) - from;
    int64_t count = 0;

    for (int64_t i = 0; i < order->sequences_per_leaf; i++) {
        const int64_t sequence =
            (leaf / contexts * order->sequences_per_leaf + i) * order->length;

        for (int second = 0; second < halves; second++)
            run->segments[count++] = (struct sum_segment){
                sequence + from +
                    (halves > 1
                         ? token_order_first(order, leaf % contexts, second)
                         : 0),
                length, 0};
    }
    return (struct sum_order){run->segments, count, 1};
}

status local_sums(const struct step *whole, struct run *run, struct tensor dy,
                  struct tensor x)
{
    const struct param *param = weight_of(run, whole);
    struct step own = *whole;
    const struct step *step = &own;
    const struct kernels *kernels =
        dtype_is_narrow(x.dtype) ? run->kernels : run->real;
    struct vector_pass pass = {0};

    own.param[1] = own.use[1] = -1; /* a bias is the work of B */

    if (!gradient_made(run->program, step->use[0])) return OK; /* frozen */
    while (vector_next(run, step, 0, &pass)) {
        const struct token_order *order = &pass.order;
        const int leaves = order->leaves * token_order_contexts(order);

        for (int i = 0; i < leaves * order->parts; i++) {
            const struct sum_order part =
                order_part(run, order, i / order->parts, i % order->parts);
            const struct tensor row = tensor_rows(pass.sums[0], i, 1);
            const struct matmul call = {
                .c = tensor_2d(row.data, row.dtype, param->rows, param->cols),
                .a = tensor_transpose(addend_rows(run, dy, &pass.addend)),
                .b = addend_rows(run, x, &pass.addend), .order = &part,
                .continues = order->continues};

            TRY(kernels->matmul(run->stream, &call));
        }
        TRY(vector_end(run, step, 0, &pass));
    }
    return OK;
}

static status local_backward_weight(const struct step *step, struct run *run)
{
    return local_sums(step, run, run_gradient(run, step->output),
                      run_slot(run, step->input));
}

struct step_cost local_cost(const struct step *step,
                                     const struct program *p)
{
    const struct param *weight = &p->params.items[step->param[0]];
    const int64_t tokens = program_slot_rows(p, step->output);
    const int64_t width = p->slots[step->input].width +
                          p->slots[step->output].width;

    return (struct step_cost){
        .flops = 2 * (double)tokens * (double)weight->elements,
        .bytes_moved = (double)((tokens * width + weight->elements) *
                                dtype_bytes(p->dtype))};
}

static size_t local_scratch(const struct step *step, const struct program *p)
{
    const size_t matrix =
        vector_scratch(p, 1, p->params.items[step->param[0]].elements);

    if (step->param[1] < 0) return matrix;
    const size_t bias =
        vector_scratch(p, 1, p->params.items[step->param[1]].elements);

    return matrix > bias ? matrix : bias;
}

#define LOCAL_PASSES \
    .forward = local_forward, .backward_input = local_backward, \
    .backward_weight = local_backward_weight, .cost = local_cost, \
    .scratch = local_scratch, .keeps_input_for_w = true, \
    .keeps_output_gradient_for_w = true

static const struct layer layer_local = {
    .name = "adapter", .kind = LAYER_ADAPTER, LOCAL_PASSES};

static const struct layer layer_router = {
    .name = "router", .kind = LAYER_ROUTER, LOCAL_PASSES};

/* Its sums are added to logits, which are real. */
static const struct layer layer_logits = {
    .name = "router adapter", .kind = LAYER_ADAPTER, LOCAL_PASSES};

static const struct layer layer_down = {
    .name = "down", .kind = LAYER_DOWN, LOCAL_PASSES};

static slot add_local(struct program *p, const struct layer *layer, slot x,
                      const struct param_spec *spec)
{
    x = relayout_local(p, x);
    const int step = program_add_step(p, layer, x);
    const slot output = program_add_slot(
        p, layer->name, spec->rows,
        layer == &layer_router || layer == &layer_logits);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->slots[output].layout.tokens = p->slots[x].layout.tokens;
    program_add_param(p, step, 0, spec);
    if (p->error != OK) return -1;
    struct use_info *use = &p->uses[p->use_count - 1];

    use->vector = true;
    use->local = p->slots[output].layout.tokens >> AXIS_TENSOR & 1;
    return output;
}

slot local_adapter(struct program *p, slot x, const struct param_spec *spec)
{
    return add_local(p, &layer_local, x, spec);
}

slot local_logits(struct program *p, slot x, const struct param_spec *spec)
{
    return add_local(p, &layer_logits, x, spec);
}

/* Logits are real: nobody rounds what a choice is made by. */
slot nn_router(struct program *p, slot x, const struct param_spec *weight,
               const struct param_spec *bias)
{
    const slot output = add_local(p, &layer_router, x, weight);

    if (p->error != OK || bias == NULL) return output;
    program_add_param(p, p->step_count - 1, 1, bias);
    return p->error == OK ? output : -1;
}

slot nn_down(struct program *p, slot x, const struct param_spec *weight)
{
    return add_local(p, &layer_down, x, weight);
}
