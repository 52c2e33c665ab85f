/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - y = x W^T (+ bias) (+ residual), W [rows, cols].
 *
 * Sums (docs/numerics.md): in-features are one leaf unless the weight is cut
 * by columns; out-features are one leaf unless it is cut by rows; tokens by
 * the leaves of the grid. */
#include "nn/straight_through.h"

static const struct param *weight_param(const struct run *run,
                                        const struct step *step)
{
    return &run->program->params.items[step->param[0]];
}

/* Where the relayout after the product puts the sums over ranks, if the
 * product is to start them; no data: it is not. */
static struct tensor relayout_target(const struct run *run)
{
    const struct step *ahead = &run->program->steps[run->event->ahead];

    if (run->event->ahead == 0) return (struct tensor){0};
    return ahead->layer->relayout == RELAYOUT_SCATTER
               ? run_sums(run, ahead->output, false)
               : run_sums(run, ahead->input, true);
}

/* Rows of a sub-batch; F may see no others. */
static struct tensor sub_batch_view(const struct run *run, struct tensor view,
                                    int number)
{
    return run->window > 0 ? view : overlap_rows(run->program, view, number);
}

/* The left operand of the product is rounded as the recipe says. */
static status multiply_rounded(struct run *run, const struct matmul *all,
                               enum product_use use, int64_t first)
{
    const struct step *step = &run->program->steps[run->event->step];
    struct matmul call = *all;

    if (quantized_is(run, step))
        TRY(quantized_tokens(run, step, use, use == USE_DGRAD, first,
                             &call.a));
    if (use == USE_FORWARD && quantized_is_integer(run, step))
        return quantized_product(run, step, &call);
    return run->kernels->matmul(run->stream, &call);
}

/* The product, sub-batch by sub-batch: each begins when its operand is there,
 * and its sums over ranks while the next one is made. */
static status multiply(struct run *run, const struct matmul *all,
                       enum product_use use, struct tensor sums)
{
    const struct program *p = run->program;
    const int first = run->window > 0 ? run->window - 1 : 0;
    const int last = run->window > 0 ? run->window : overlap_batches(p);

    if (p->layout.overlap.count <= 1) return multiply_rounded(run, all, use, 0);
    for (int i = first; i < last; i++) {
        struct matmul call = *all;
        struct tensor left;

        call.a = sub_batch_view(run, all->a, i);
        call.c = sub_batch_view(run, all->c, i);
        TRY(overlap_wait(run, call.a.data));
        if (all->left != NULL) {
            left = sub_batch_view(run, *all->left, i);
            call.left = &left;
        }
        TRY(multiply_rounded(run, &call, use,
                             run->window > 0
                                 ? 0 : program_rows(p) * i /
                                           overlap_batches(p)));
        if (sums.data != NULL)
            TRY(overlap_sum(run, sub_batch_view(run, sums, i), call.c, i));
    }
    return OK;
}

static status linear_forward(const struct step *step, struct run *run)
{
    const struct param *param = weight_param(run, step);
    struct norm_after norm;
    struct product_room room;
    struct matmul call = {
        .c = run_slot(run, step->output), .a = run_slot(run, step->input),
        .b = tensor_transpose(run_weight(run, step, 0)),
        .strips = run_in_strips(run, step, 0),
        .accumulator = quantized_accumulator(run, step)};
    const struct sum_order order =
        param->spec.split_cols == AXIS_TENSOR
            ? run_order_cut(run, param)
            : run_order_whole(run, param->cols);

    call.order = &order;
    product_beside(run, step, &room, &call);
    if (run->event->norm > 0) {
        TRY(norm_call(run, run->event->norm, &norm));
        call.norm = &norm;
    }
    if (run->event->pass == PASS_FORWARD && quantized_is_saved(run, step))
        TRY(quantized_save(run, step, overlap_first(run), call.a));
    if (quantized_is(run, step)) {
        struct tensor weight = run_weight(run, step, 0);

        CHECK(!call.strips);
        TRY(quantized_weight(run, step, USE_FORWARD, &weight));
        call.b = tensor_transpose(weight);
    }
    return multiply(run, &call, USE_FORWARD, relayout_target(run));
}

static status bias_backward(const struct step *step, struct run *run)
{
    struct vector_pass pass = {0};

    if (step->param[1] < 0) return OK;
    while (vector_next(run, step, 1, &pass)) {
        TRY(run->kernels->sum_rows(
            run->stream, pass.sums[1],
            addend_rows(run, run_gradient(run, step->output), &pass.addend),
            &pass.order));
        TRY(vector_end(run, step, 1, &pass));
    }
    return OK;
}

static status linear_backward_input(const struct step *step, struct run *run)
{
    const struct param *param = weight_param(run, step);
    const struct tensor dx = run_gradient(run, step->input);
    struct matmul call = {.c = dx, .a = run_gradient(run, step->output),
                          .b = run_weight(run, step, 0),
                          .accumulator = quantized_accumulator(run, step)};
    const struct sum_order order =
        param->spec.split_rows == AXIS_TENSOR
            ? run_order_cut(run, param)
            : run_order_whole(run, param->rows);

    call.order = &order;
    if (run->event->adds) call.left = &dx;
    if (quantized_is(run, step))
        TRY(quantized_weight(run, step, USE_DGRAD, &call.b));
    TRY(multiply(run, &call, USE_DGRAD, relayout_target(run)));
    return bias_backward(step, run);
}

static status linear_product(struct run *run, const struct step *step,
                             const struct addend *addend)
{
    const int64_t first =
        addend->first_sequence * run->program->size.context_chunks;
    struct tensor dy =
        addend_rows(run, run_gradient(run, step->output), addend);
    const bool saved = quantized_is_saved(run, step);
    struct tensor x;

    if (!saved) x = addend_rows(run, run_slot(run, step->input), addend);
    if (quantized_is(run, step)) {
        CHECK(!addend->cut);
        TRY(quantized_tokens(run, step, USE_WGRAD, true, first, &dy));
        TRY(saved ? quantized_saved(run, step, first, dy.shape[0], &x)
                  : quantized_tokens(run, step, USE_WGRAD, false, first, &x));
    }
    return weight_product(run, step, dy, x, addend);
}

static status linear_backward_weight(const struct step *step, struct run *run)
{
    struct straight_weights straight;

    straight_begin(&straight, run, step);
    const status result = weight_addends(step, run, linear_product);

    straight_end(run);
    return result;
}

static struct step_cost linear_cost(const struct step *step,
                                    const struct program *p)
{
    const struct param *weight = &p->params.items[step->param[0]];
    const int64_t rows = weight->rows, cols = weight->cols;

    return (struct step_cost){
        .flops = 2 * (double)p->size.tokens * (double)weight->elements,
        .bytes_moved = (double)((p->size.tokens * (rows + cols) +
                                 weight->elements) * dtype_bytes(p->dtype))};
}

static size_t linear_scratch(const struct step *step, const struct program *p)
{
    return quantized_scratch(step, p);
}

static const struct layer layer_linear = {
    .name = "linear", .kind = LAYER_LINEAR, .forward = linear_forward,
    .backward_input = linear_backward_input,
    .backward_weight = linear_backward_weight, .cost = linear_cost,
    .scratch = linear_scratch, .makes_norm = true, .keeps_input_for_w = true,
    .keeps_output_gradient_for_w = true};

/* Under tensor parallelism a product needs all tokens. Cut by rows, it makes
 * this rank's columns of y; cut by columns, this rank's share of a sum, which a
 * scatter ends (and then the bias is the scatter's). */
slot nn_linear(struct program *p, slot x, const struct param_spec *weight,
               const struct param_spec *bias)
{
    const bool shares = weight->split_cols == AXIS_TENSOR &&
                        program_tensor_ranks(p) > 1;

    const slot read = straight_rotate(p, x, weight, -1, 0);

    x = relayout_whole(p, read, true);
    const int step = program_add_step(p, &layer_linear, x);
    const slot output = program_add_slot(p, "linear", weight->rows, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].few = quantized_applies(p, weight);
    if (weight->split_rows != AXIS_NONE)
        p->slots[output].layout.width |= 1u << weight->split_rows;
    if (weight->split_cols != AXIS_NONE)
        program_set_partial(p, output, weight->split_cols);
    program_add_param(p, step, 0, weight);
    if (p->error != OK) return -1;
    straight_name(p, read, p->steps[step].param[0]);
    p->slots[output].width = p->params.items[p->steps[step].param[0]].rows;
    if (shares) return relayout_scatter(p, output, bias);
    if (bias != NULL) program_add_param(p, step, 1, bias);
    return weight->split_rows == AXIS_TENSOR
               ? output : relayout_uncut(p, output, weight->name);
}

static status add_forward(const struct step *step, struct run *run)
{
    struct tensor y = run_slot(run, step->output);
    struct tensor a = run_slot(run, step->left);
    struct tensor b = run_slot(run, step->input);
    const int64_t n = tensor_count(&y);

    if (run->event->norm > 0) {
        struct add_norm call = {.x = y, .left = a, .y = b};

        TRY(norm_call(run, run->event->norm, &call.norm));
        return run->kernels->add_norm(run->stream, &call);
    }
    return run->kernels->add(run->stream, tensor_1d(y.data, y.dtype, n),
                             tensor_1d(a.data, a.dtype, n),
                             tensor_1d(b.data, b.dtype, n));
}

static status add_backward(const struct step *step, struct run *run)
{
    struct tensor dx = run_gradient(run, step->input);
    struct tensor dy = run_gradient(run, step->output);
    const int64_t n = tensor_count(&dx);

    dx = tensor_1d(dx.data, dx.dtype, n);
    dy = tensor_1d(dy.data, dy.dtype, n);
    if (run->event->adds) return run->kernels->add(run->stream, dx, dx, dy);
    return run->kernels->scale(run->stream, dx, dy, 1.0);
}

static struct step_cost add_cost(const struct step *step,
                                 const struct program *p)
{
    const int64_t n = p->size.tokens * p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)n,
        .bytes_moved = (double)(3 * n * dtype_bytes(p->dtype))};
}

static const struct layer layer_add = {
    .name = "add", .kind = LAYER_ADD, .forward = add_forward,
    .backward_input = add_backward, .cost = add_cost, .makes_norm = true};

/* May the step take a residual as its epilogue? */
static bool takes_left(const struct step *last, slot y)
{
    return last->output == y && last->left < 0 &&
           (last->layer == &layer_linear || last->layer == &layer_scatter ||
            last->layer == &layer_dropout || last->layer == &layer_combine);
}

static slot add_step(struct program *p, slot x, slot y)
{
    const int step = program_add_step(p, &layer_add, y);
    const slot output = program_add_slot(p, "add", p->slots[x].width, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].left = x;
    p->slots[output].layout.tokens = p->slots[x].layout.tokens;
    return output;
}

slot nn_add(struct program *p, slot x, slot y)
{
    struct step *last;

    x = relayout_local(p, x);
    y = relayout_local(p, y);
    if (p->error != OK) return -1;
    last = p->step_count > 0 ? &p->steps[p->step_count - 1] : NULL;
    if (last == NULL || !takes_left(last, y)) return add_step(p, x, y);
    last->left = x;
    program_set_complete(p, y);
    return y;
}

slot nn_add_later(struct program *p, slot x, slot y)
{
    const struct step *last =
        p->step_count > 0 ? &p->steps[p->step_count - 1] : NULL;

    if (p->error != OK || last == NULL || last->layer != &layer_linear ||
        !takes_left(last, y) || program_tensor_ranks(p) > 1)
        return nn_add(p, x, y);
    program_set_complete(p, y);
    p->slots[y].dtype = program_real(p); /* the next step adds, and rounds */
    return add_step(p, x, y);
}
