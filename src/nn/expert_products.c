/* SPDX-License-Identifier: Apache-2.0 */
/* expert_products.c - the products of experts: rows of tokens, rows of rows.
 * Where a row goes is computed again by each step from the choice, in scratch.
 *
 * The gradient of the rows is gate * dy: it is not stored, the products read dy
 * and the gates. So the gradient of that slot has the width of dy. */
#include "nn/expert_adapter.h"
#include "nn/expert_bias.h"
#include "nn/expert_products.h"
#include "nn/expert_ranks.h"
#include "nn/quantized_experts.h"

static const struct param *first_param(const struct run *run,
                                       const struct step *step)
{
    return &run->program->params.items[step->param[0]];
}

static const struct router_form *form_of(const struct step *step)
{
    return &step->set.experts.form;
}

/* Room for the lists of a product's rows. */
static size_t lists_bytes(const struct step *step, const struct program *p)
{
    return choice_lists_bytes(p->size.tokens * form_of(step)->choices,
                              form_of(step)->experts);
}

static size_t few_scratch(const struct step *step, const struct program *p)
{
    return quantized_experts_bytes(step, p,
                                   p->size.tokens * form_of(step)->choices);
}

static enum expert_side side_of(const struct step *step)
{
    return expert_adapter_is(step, EXPERT_UP) ? EXPERT_UP : EXPERT_DOWN;
}

static size_t beside_scratch(const struct step *step, const struct program *p)
{
    return expert_adapter_bytes(step, p, side_of(step),
                                p->size.tokens * form_of(step)->choices);
}

/* The room of an adapter is before that of operands in few bits. */
static struct expert_adapter beside_of(const struct step *step,
                                       struct run *run,
                                       const struct choice_lists *lists)
{
    const struct program *p = run->program;

    return (struct expert_adapter){
        step, side_of(step), lists,
        (char *)run->scratch + step->layer->scratch(step, p) -
            few_scratch(step, p) - beside_scratch(step, p),
        p->size.tokens * form_of(step)->choices};
}

/* Operands in few bits are at the end of scratch. */
static struct quantized_experts few_of(const struct step *step,
                                       struct run *run,
                                       const struct choice_lists *lists)
{
    const size_t end = step->layer->scratch(step, run->program);

    return (struct quantized_experts){
        .step = step, .lists = lists,
        .memory = (char *)run->scratch + end - few_scratch(step, run->program),
        .rows = run->program->size.tokens * form_of(step)->choices,
        .tokens = run->program->size.tokens};
}

/* Like few_of, where the input waits for W as codes. */
static struct quantized_experts saved_of(const struct step *step,
                                         struct run *run,
                                         const struct choice_lists *lists)
{
    struct quantized_experts few = few_of(step, run, lists);

    if (quantized_is_saved(run, step)) few.codes = run_codes(run, step);
    return few;
}

/* Behind the lists in scratch. */
static void *behind_lists(const struct step *step, const struct run *run)
{
    return (char *)run->scratch + lists_bytes(step, run->program);
}

static status make_lists(const struct step *step, struct run *run,
                         struct choice *choice, struct choice_lists *lists)
{
    *choice = choice_of(run, step, step->second);
    TRY(choice_read(run, choice));
    choice_lists_make(choice, 0, form_of(step)->experts, run->lists, lists);
    return OK;
}

/* Whether tensor ranks share the experts: rows that are sums over them lie in
 * the order of tokens and choices. */
static bool is_shared(const struct run *run)
{
    return program_tensor_ranks(run->program) > 1;
}

/* Rows of groups, in the order of tokens and choices. */
static status to_entries(struct run *run, struct tensor out,
                         struct tensor rows, const struct choice_lists *lists)
{
    return run->real->gather_rows(run->stream, out, false, rows,
                                  lists->places);
}

/* ---- up: rows of tokens ---- */

static status up_forward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct sum_order order = run_order_whole(run, param->cols);
    struct choice_lists lists;
    struct choice choice;
    struct experts_product call = {
        .groups = &lists.groups,
        .c = choice_rows(run_slot(run, step->output), param->rows),
        .a = {.matrix = run_slot(run, step->input), .gathered = true},
        .bias = expert_bias_of(step, 1, run),
        .b = transposed(weights_of(step, run)), .order = &order};

    TRY(overlap_wait_all(run, run_slot(run, step->input)));
    TRY(make_lists(step, run, &choice, &lists));
    const struct quantized_experts few = few_of(step, run, &lists);
    const struct expert_adapter beside = beside_of(step, run, &lists);

    TRY(quantized_experts_product(run, &few, USE_FORWARD, &call));
    return expert_adapter_add(&beside, run, &call.a, call.c);
}

static status up_input(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct tensor dx = run_gradient(run, step->input);
    struct choice_lists lists;
    struct choice choice;

    TRY(make_lists(step, run, &choice, &lists));
    struct expert_product product = {
        .few = few_of(step, run, &lists), .use = USE_DGRAD,
        .call = {.groups = &lists.groups,
                 .a = {.matrix = choice_rows(run_gradient(run, step->output),
                                             param->rows)},
                 .b = weights_of(step, run),
                 .c = tensor_2d(behind_lists(step, run), dx.dtype,
                                choice.tokens * choice.choices,
                                param->cols)}};
    const struct expert_adapter beside = beside_of(step, run, &lists);

    TRY(expert_adapter_product(&beside, run, &product));
    if (is_shared(run)) {
        CHECK(!run->event->adds);
        return to_entries(run, choice_rows(dx, param->cols), product.call.c,
                          &lists);
    }
    const struct experts_combine combine = {
        .y = dx, .rows = product.call.c, .places = lists.places,
        .numbers = choice.chosen, .choices = choice.choices,
        .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};

    return run->kernels->experts_combine(run->stream, &combine);
}

/* The biases' gradients need lists and segments of their own. */
static status up_backward(const struct step *step, struct run *run)
{
    struct choice_lists lists;
    struct choice choice;

    TRY(up_input(step, run));
    if (step->param[1] < 0) return OK;
    TRY(make_lists(step, run, &choice, &lists));
    return expert_bias_sums(step, run, &lists,
                            choice_rows(run_gradient(run, step->output),
                                        first_param(run, step)->rows));
}

/* The gradients of an adapter. */
static status beside_weight(const struct step *step, struct run *run,
                            const struct expert_operands *of)
{
    const struct expert_adapter beside = beside_of(step, run, of->lists);
    const struct expert_adapter_rows rows = {.dy = of->a, .x = of->b};

    return expert_adapter_weight(&beside, run, &rows);
}

static status up_weight(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    struct choice_lists lists;
    struct choice choice;
    struct expert_operands of = {
        .lists = &lists,
        .a = {.matrix = choice_rows(run_gradient(run, step->output),
                                    param->rows)},
        .b = {.matrix = run_slot(run, step->input), .gathered = true}};

    TRY(overlap_wait_all(run, run_slot(run, step->input)));
    TRY(make_lists(step, run, &choice, &lists));
    TRY(beside_weight(step, run, &of));
    const struct quantized_experts few = few_of(step, run, &lists);

    TRY(quantized_experts_operands(run, &few, &of));
    return experts_weight(step, run, &of);
}

/* ---- down: rows of rows ---- */

/* The input's codes, from F to W. */
static status down_save(const struct step *step, struct run *run,
                        const struct choice_lists *lists)
{
    const struct quantized_experts few = saved_of(step, run, lists);
    struct saved_rows at = {.rows = few.rows};

    if (run->event->pass != PASS_FORWARD || few.codes == NULL) return OK;
    return quantized_experts_save(
        run, &few, choice_rows(run_slot(run, step->input),
                               first_param(run, step)->cols), &at);
}

static status down_forward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct tensor rows =
        choice_rows(run_slot(run, step->output), param->rows);
    struct choice_lists lists;
    struct choice choice;

    TRY(make_lists(step, run, &choice, &lists));
    struct expert_product product = {
        .few = few_of(step, run, &lists), .use = USE_FORWARD,
        .call = {.groups = &lists.groups, .c = rows,
                 .a = {.matrix = choice_rows(run_slot(run, step->input),
                                             param->cols)},
                 .b = transposed(weights_of(step, run))}};
    const struct expert_adapter beside = beside_of(step, run, &lists);

    TRY(down_save(step, run, &lists));
    if (is_shared(run)) product.call.c.data = behind_lists(step, run);
    TRY(expert_adapter_product(&beside, run, &product));
    return is_shared(run) ? to_entries(run, rows, product.call.c, &lists) : OK;
}

static status down_backward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct sum_order order = run_order_whole(run, param->rows);
    struct choice_lists lists;
    struct choice choice;
    struct experts_product call = {
        .groups = &lists.groups,
        .c = choice_rows(run_gradient(run, step->input), param->cols),
        .a = {.matrix = run_gradient(run, step->output), .gathered = true},
        .b = weights_of(step, run), .order = &order};

    CHECK(!run->event->adds);
    TRY(make_lists(step, run, &choice, &lists));
    const struct quantized_experts few = few_of(step, run, &lists);

    const struct expert_adapter beside = beside_of(step, run, &lists);

    call.a.scales = choice.gates.data;
    TRY(quantized_experts_product(run, &few, USE_DGRAD, &call));
    return expert_adapter_back(&beside, run, &call.a, call.c);
}

static status down_weight(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    struct choice_lists lists;
    struct choice choice;
    struct expert_operands of = {
        .lists = &lists,
        .a = {.matrix = run_gradient(run, step->output), .gathered = true},
        .b = {.matrix = tensor_2d(NULL, run->program->dtype, 0, param->cols)}};

    TRY(make_lists(step, run, &choice, &lists));
    const struct quantized_experts few = saved_of(step, run, &lists);

    if (few.codes == NULL)
        of.b.matrix = choice_rows(run_slot(run, step->input), param->cols);
    of.a.scales = choice.gates.data;
    TRY(beside_weight(step, run, &of));
    TRY(quantized_experts_operands(run, &few, &of));
    return experts_weight(step, run, &of);
}

static struct step_cost product_cost(const struct step *step,
                                     const struct program *p)
{
    const struct param *param = &p->params.items[step->param[0]];
    const int64_t rows = p->size.tokens * form_of(step)->choices;
    const int64_t elements =
        param->elements + expert_adapter_elements(step, p, side_of(step));

    return (struct step_cost){
        .flops = 2 * (double)rows * (double)elements,
        .bytes_moved = (double)((rows * (param->rows + param->cols) +
                                 param->elements * step->each) *
                                dtype_bytes(p->dtype))};
}

static size_t up_scratch(const struct step *step, const struct program *p)
{
    const size_t sums = (size_t)(p->size.tokens * form_of(step)->choices *
                                 p->params.items[step->param[0]].cols *
                                 dtype_bytes(program_real(p)));

    return lists_bytes(step, p) + arena_aligned(sums) +
           beside_scratch(step, p) + few_scratch(step, p);
}

static size_t down_scratch(const struct step *step, const struct program *p)
{
    const size_t rows = (size_t)(p->size.tokens * p->slots[step->output].width *
                                 dtype_bytes(program_real(p)));

    return lists_bytes(step, p) +
           (program_tensor_ranks(p) > 1 ? arena_aligned(rows) : 0) +
           beside_scratch(step, p) + few_scratch(step, p);
}

static struct expert_adapter_sum sum_of(const struct step *step,
                                        const struct program *p)
{
    const int64_t rows = p->size.tokens * form_of(step)->choices;

    return (struct expert_adapter_sum){step, side_of(step), rows, rows, 1};
}

static void product_exchanges(const struct step *step,
                              const struct program *p,
                              const struct exchange_case *at,
                              struct layer_exchanges *out)
{
    const struct expert_adapter_sum sum = sum_of(step, p);

    expert_adapter_exchanges(&sum, p, at, out);
}

static size_t product_messages(const struct step *step,
                               const struct program *p,
                               const struct group *tensor)
{
    const struct expert_adapter_sum sum = sum_of(step, p);

    return expert_adapter_messages(&sum, p, tensor);
}

#define UP_PASSES \
    .name = "experts_up", .kind = LAYER_EXPERTS, .forward = up_forward, \
    .backward_input = up_backward, .backward_weight = up_weight, \
    .cost = product_cost, .scratch = up_scratch, .keeps_input_for_w = true, \
    .keeps_output_gradient_for_w = true
#define DOWN_PASSES \
    .name = "experts_down", .kind = LAYER_EXPERTS, .forward = down_forward, \
    .backward_input = down_backward, .backward_weight = down_weight, \
    .cost = product_cost, .scratch = down_scratch, \
    .keeps_input_for_w = true, .keeps_output_gradient_for_w = true
/* The gradients of an adapter's matrices read both of them. */
#define WITH_ADAPTER \
    .two_matrices = true, .reads_in_w = true, \
    .exchanges = product_exchanges, .messages = product_messages

const struct layer layer_experts_up = {UP_PASSES};
const struct layer layer_experts_down = {DOWN_PASSES};
const struct layer layer_experts_up_adapted = {UP_PASSES, WITH_ADAPTER};
const struct layer layer_experts_down_adapted = {DOWN_PASSES, WITH_ADAPTER};
