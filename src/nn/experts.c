/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - the experts of a mixture: each token's rows, and no others.
 * Source: Tan et al. 2024 (ScatterMoE), arXiv:2403.08245, section 3.
 *
 *   x [tokens, width] --up--> [rows, 2 f] --gate--> [rows, f] --down-->
 *     [rows, width] --combine, gates--> y [tokens, width]
 *
 * A token has as many rows as choices, so slots have a fixed size under every
 * routing: choices * width elements for each token. Their rows lie expert after
 * expert (kernels/experts.h). Where a row goes is computed again by each step
 * from the choice, in scratch.
 *
 * The gradient of the rows is gate * dy: it is not stored, the products read dy
 * and the gates. So the gradient of that slot has the width of dy. */
#include "nn/expert_ranks.h"
#include "nn/expert_sums.h"

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
    return choice_lists_bytes(p->mesh.size[AXIS_EXPERT] * p->tokens *
                                  form_of(step)->choices,
                              form_of(step)->experts);
}

/* Behind the lists in scratch. */
static void *behind_lists(const struct step *step, const struct run *run)
{
    return (char *)run->scratch + lists_bytes(step, run->program);
}

/* The rows of the experts that this rank has: all of them, or some, then for
 * the tokens of all sources. */
static void make_lists(const struct step *step, struct run *run,
                       struct choice *choice, struct choice_lists *lists)
{
    const struct program *p = run->program;
    const struct expert_span held = experts_held(p, form_of(step)->experts);

    *choice = experts_are_spread(p) ? joined_of(run, step)
                                    : choice_of(run, step, step->second);
    choice_lists_make(choice, held.first, held.count, run->scratch, lists);
}

/* All experts' matrices [experts, rows, cols], which lie at equal distances. */
static struct tensor weights_of(const struct step *step, struct run *run)
{
    struct tensor all = run_weight(run, step, 0);
    const char *first = all.data;
    struct step other = *step;
    int64_t bytes = 0;

    for (int i = 1; i < step->each; i++) {
        other.param[0] = step->param[0] + i;
        const struct tensor one = run_weight(run, &other, 0);

        if (i == 1) bytes = (const char *)one.data - first;
        CHECK((const char *)one.data - first == i * bytes);
    }
    const struct tensor matrix = all;

    all = tensor_3d(matrix.data, matrix.dtype, step->each, matrix.shape[0],
                    matrix.shape[1]);
    if (step->each > 1) all.stride[0] = bytes / dtype_bytes(matrix.dtype);
    return all;
}

static struct tensor transposed(struct tensor all)
{
    const struct tensor from = all;

    all.shape[1] = from.shape[2];
    all.shape[2] = from.shape[1];
    all.stride[1] = from.stride[2];
    all.stride[2] = from.stride[1];
    return all;
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

/* x of tokens; where ranks divide the experts, of rows that were sent. */
static struct expert_rows up_rows(const struct step *step, struct run *run)
{
    const struct tensor x = run_slot(run, step->input);

    if (!experts_are_spread(run->program))
        return (struct expert_rows){.matrix = x, .gathered = true};
    return (struct expert_rows){
        .matrix = choice_rows(x, first_param(run, step)->cols)};
}

static status up_forward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct sum_order order = run_order_whole(run, param->cols);
    struct choice_lists lists;
    struct choice choice;
    struct experts_product call = {
        .groups = &lists.groups,
        .c = choice_rows(run_slot(run, step->output), param->rows),
        .a = up_rows(step, run),
        .b = transposed(weights_of(step, run)), .order = &order};

    TRY(overlap_wait_all(run, run_slot(run, step->input)));
    make_lists(step, run, &choice, &lists);
    return run->kernels->experts_product(run->stream, &call);
}

static status up_backward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct tensor dx = run_gradient(run, step->input);
    const struct sum_order order = run_order_cut(run, param);
    struct choice_lists lists;
    struct choice choice;
    struct experts_product call = {
        .groups = &lists.groups,
        .a = {.matrix = choice_rows(run_gradient(run, step->output),
                                    param->rows)},
        .b = weights_of(step, run), .order = &order};

    make_lists(step, run, &choice, &lists);
    if (experts_are_spread(run->program)) {
        CHECK(!run->event->adds);
        call.c = choice_rows(dx, param->cols);
        return run->kernels->experts_product(run->stream, &call);
    }
    call.c = tensor_2d(behind_lists(step, run), dx.dtype,
                       choice.tokens * choice.choices, param->cols);
    TRY(run->kernels->experts_product(run->stream, &call));
    if (is_shared(run)) {
        CHECK(!run->event->adds);
        return to_entries(run, choice_rows(dx, param->cols), call.c, &lists);
    }
    const struct experts_combine combine = {
        .y = dx, .rows = call.c, .places = lists.places,
        .numbers = choice.chosen, .choices = choice.choices,
        .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};

    return run->kernels->experts_combine(run->stream, &combine);
}

static status up_weight(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    struct choice_lists lists;
    struct choice choice;
    const struct expert_operands of = {
        .lists = &lists,
        .a = {.matrix = choice_rows(run_gradient(run, step->output),
                                    param->rows)},
        .b = up_rows(step, run)};

    TRY(overlap_wait_all(run, run_slot(run, step->input)));
    make_lists(step, run, &choice, &lists);
    return experts_weight(step, run, &of);
}

/* ---- down: rows of rows ---- */

/* The gradient of rows: gate dy; where ranks divide the experts, it was sent
 * so. */
static struct expert_rows down_gradient(const struct step *step,
                                        struct run *run,
                                        const struct choice *choice)
{
    const struct tensor dy = run_gradient(run, step->output);

    if (!experts_are_spread(run->program))
        return (struct expert_rows){.matrix = dy, .gathered = true,
                                    .scales = choice->gates.data};
    return (struct expert_rows){
        .matrix = choice_rows(dy, first_param(run, step)->rows)};
}

/* Whether rows leave the order of groups here. */
static bool by_entries(const struct run *run)
{
    return is_shared(run) && !experts_are_spread(run->program);
}

static status down_forward(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    const struct sum_order order = run_order_cut(run, param);
    struct choice_lists lists;
    struct choice choice;
    const struct tensor rows =
        choice_rows(run_slot(run, step->output), param->rows);
    struct experts_product call = {
        .groups = &lists.groups, .c = rows,
        .a = {.matrix = choice_rows(run_slot(run, step->input), param->cols)},
        .b = transposed(weights_of(step, run)), .order = &order};

    make_lists(step, run, &choice, &lists);
    if (by_entries(run)) call.c.data = behind_lists(step, run);
    TRY(run->kernels->experts_product(run->stream, &call));
    return by_entries(run) ? to_entries(run, rows, call.c, &lists) : OK;
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
        .b = weights_of(step, run), .order = &order};

    CHECK(!run->event->adds);
    make_lists(step, run, &choice, &lists);
    call.a = down_gradient(step, run, &choice);
    return run->kernels->experts_product(run->stream, &call);
}

static status down_weight(const struct step *step, struct run *run)
{
    const struct param *param = first_param(run, step);
    struct choice_lists lists;
    struct choice choice;
    struct expert_operands of = {
        .lists = &lists,
        .b = {.matrix = choice_rows(run_slot(run, step->input),
                                    param->cols)}};

    make_lists(step, run, &choice, &lists);
    of.a = down_gradient(step, run, &choice);
    return experts_weight(step, run, &of);
}

static struct step_cost product_cost(const struct step *step,
                                     const struct program *p)
{
    const struct param *param = &p->params.items[step->param[0]];
    const int64_t rows = p->tokens * form_of(step)->choices;

    return (struct step_cost){
        .flops = 2 * (double)rows * (double)param->elements,
        .bytes_moved = (double)((rows * (param->rows + param->cols) +
                                 param->elements * step->each) *
                                dtype_bytes(p->dtype))};
}

static size_t up_scratch(const struct step *step, const struct program *p)
{
    if (experts_are_spread(p)) return lists_bytes(step, p);
    return lists_bytes(step, p) +
           (size_t)(p->tokens * form_of(step)->choices *
                    p->params.items[step->param[0]].cols *
                    dtype_bytes(program_real(p)));
}

static size_t down_scratch(const struct step *step, const struct program *p)
{
    const size_t rows = (size_t)(p->tokens * p->slots[step->output].width *
                                 dtype_bytes(program_real(p)));

    return lists_bytes(step, p) +
           (program_tensor_ranks(p) > 1 && !experts_are_spread(p) ? rows : 0);
}

static const struct layer layer_up = {
    .name = "experts_up", .kind = LAYER_EXPERTS, .forward = up_forward,
    .backward_input = up_backward, .backward_weight = up_weight,
    .cost = product_cost, .scratch = up_scratch, .keeps_input_for_w = true,
    .keeps_output_gradient_for_w = true};

static const struct layer layer_down = {
    .name = "experts_down", .kind = LAYER_EXPERTS, .forward = down_forward,
    .backward_input = down_backward, .backward_weight = down_weight,
    .cost = product_cost, .scratch = down_scratch, .keeps_input_for_w = true,
    .keeps_output_gradient_for_w = true};

/* ---- between them: the gate of each row ---- */

static int64_t gate_width(const struct step *step, const struct program *p)
{
    return p->slots[step->output].width / experts_rows_most(p, form_of(step));
}

/* Rows that exist: as many as choices, or, where they were sent, those of the
 * experts held. */
static struct tensor rows_made(const struct step *step, struct run *run,
                               struct tensor view, int64_t width)
{
    const struct program *p = run->program;
    const struct tensor rows = choice_rows(view, width);
    const struct expert_span held = experts_held(p, form_of(step)->experts);
    int64_t count = 0;

    if (!experts_are_spread(p)) return rows;
    const struct choice joined = joined_of(run, step);

    for (int64_t i = 0; i < joined.tokens * joined.choices; i++)
        count += joined.chosen[i] >= held.first &&
                 joined.chosen[i] < held.first + held.count;
    return tensor_rows(rows, 0, count);
}

static status gate_forward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);

    return run->kernels->swiglu_forward(
        run->stream,
        rows_made(step, run, run_slot(run, step->output), width),
        rows_made(step, run, run_slot(run, step->input), 2 * width));
}

static status gate_backward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);

    CHECK(!run->event->adds);
    return run->kernels->swiglu_backward(
        run->stream,
        rows_made(step, run, run_gradient(run, step->input), 2 * width),
        rows_made(step, run, run_gradient(run, step->output), width),
        rows_made(step, run, run_slot(run, step->input), 2 * width));
}

static struct step_cost gate_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t out = p->tokens * p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)(10 * out),
        .bytes_moved = (double)(3 * out * dtype_bytes(p->dtype))};
}

static const struct layer layer_gate = {
    .name = "experts_gate", .kind = LAYER_ACTIVATION, .forward = gate_forward,
    .backward_input = gate_backward, .cost = gate_cost,
    .keeps_input_for_b = true};

/* ---- combine: rows return to their tokens ---- */

/* Rows lie as the tokens and their choices do. */
static const int32_t *places_by_entry(struct run *run,
                                      const struct choice *choice)
{
    int32_t *places = run->scratch;

    for (int64_t i = 0; i < choice->tokens * choice->choices; i++)
        places[i] = (int32_t)i;
    return places;
}

static const int32_t *places_of(const struct step *step, struct run *run,
                                struct choice *choice)
{
    struct choice_lists lists;

    *choice = choice_of(run, step, step->second);
    if (step->set.experts.by_entry) return places_by_entry(run, choice);
    choice_lists_make(choice, 0, form_of(step)->experts, run->scratch,
                      &lists);
    return lists.places;
}

static struct tensor rows_of(const struct step *step, struct run *run)
{
    return choice_rows(run_slot(run, step->input),
                       run->program->slots[step->output].width);
}

static status combine_forward(const struct step *step, struct run *run)
{
    struct choice choice;
    struct tensor left;
    struct experts_combine call = {
        .y = run_slot(run, step->output), .rows = rows_of(step, run),
        .places = places_of(step, run, &choice),
        .leaf_experts = step->set.experts.leaf};

    call.numbers = choice.chosen;
    call.gates = choice.gates.data;
    call.choices = choice.choices;
    if (step->left >= 0) {
        left = run_slot(run, step->left);
        call.left = &left;
    }
    return run->kernels->experts_combine(run->stream, &call);
}

/* The rows' gradient: dy itself, where products take the gates, too. */
static status combine_rows(const struct step *step, struct run *run,
                           const struct choice *choice, const int32_t *places)
{
    const struct tensor to = run_gradient(run, step->input);
    const struct tensor dy = run_gradient(run, step->output);
    const struct experts_combine call = {
        .y = to, .rows = dy, .places = places, .numbers = choice->chosen,
        .gates = choice->gates.data, .choices = 1, .leaf_experts = 1};
    const int64_t n = tensor_count(&dy);

    CHECK(!run->event->adds);
    if (step->set.experts.scaled)
        return run->kernels->experts_combine(run->stream, &call);
    return run->kernels->scale(run->stream, tensor_1d(to.data, to.dtype, n),
                               tensor_1d(dy.data, dy.dtype, n), 1.0);
}

static status combine_backward(const struct step *step, struct run *run)
{
    struct choice choice;
    const int32_t *places = places_of(step, run, &choice);
    const struct experts_gates call = {
        .dgates = run_gradient(run, step->second),
        .dy = run_gradient(run, step->output), .rows = rows_of(step, run),
        .places = places, .choices = choice.choices};

    CHECK(!run->event->adds_second);
    TRY(run->kernels->experts_gates(run->stream, &call));
    return combine_rows(step, run, &choice, places);
}

static struct step_cost combine_cost(const struct step *step,
                                     const struct program *p)
{
    const int64_t rows = program_slot_rows(p, step->output) *
                         p->slots[step->input].width;

    return (struct step_cost){
        .flops = 2 * (double)rows,
        .bytes_moved = (double)(rows * dtype_bytes(p->dtype))};
}

static size_t combine_scratch(const struct step *step, const struct program *p)
{
    return lists_bytes(step, p);
}

const struct layer layer_combine = {
    .name = "combine", .kind = LAYER_EXPERTS, .forward = combine_forward,
    .backward_input = combine_backward, .cost = combine_cost,
    .scratch = combine_scratch, .second_gradient = true,
    .keeps_input_for_b = true};

/* ---- building ---- */

/* One parameter of each expert that this rank has. */
static void add_params(struct program *p, int step,
                       const struct param_spec *spec, int experts)
{
    const struct expert_span held = experts_held(p, experts);
    int first[2] = {-1, -1};

    for (int i = 0; i < experts && p->error == OK; i++) {
        struct param_spec one = *spec;

        one.expert = i + 1;
        one.spread = experts_are_spread(p);
        if (i < held.first || i >= held.first + held.count) {
            p->error = param_skip(&p->params, &one);
            continue;
        }
        program_add_param(p, step, 0, &one);
        if (p->error != OK) return;
        if (i == held.first) {
            first[0] = p->steps[step].param[0];
            first[1] = p->steps[step].stream[0];
        }
    }
    p->steps[step].param[0] = first[0];
    p->steps[step].stream[0] = first[1];
    p->steps[step].each = held.count;
}

/* A step whose output has `width` elements for each row. */
static int add_step(struct program *p, const struct layer *layer, slot x,
                    const struct router_form *form)
{
    const int step = program_add_step(p, layer, x);
    const slot output = program_add_slot(p, layer->name, 1, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.experts.form = *form;
    p->slots[output].layout = p->slots[x].layout;
    return step;
}

static slot add_product(struct program *p, const struct layer *layer, slot x,
                        slot choice, const struct experts_spec *spec)
{
    const bool up = layer == &layer_up;
    const int step = add_step(p, layer, x, &spec->form);

    if (p->error != OK) return -1;
    const slot output = p->steps[step].output;
    struct slot_layout *layout = &p->slots[output].layout;

    p->steps[step].second = choice;
    p->steps[step].set.experts.leaf = spec->leaf;
    add_params(p, step, up ? &spec->up : &spec->down, spec->form.experts);
    if (p->error != OK) return -1;
    p->slots[output].width =
        p->params.items[p->steps[step].param[0]].rows *
        experts_rows_most(p, &spec->form);
    if (up) {
        layout->width |= 1u << AXIS_TENSOR;
        return output;
    }
    layout->width &= ~(1u << AXIS_TENSOR);
    layout->partial |= 1u << AXIS_TENSOR;
    if (experts_are_spread(p)) x = expert_ranks_return(p, output, choice, spec);
    else x = output;
    if (p->error != OK) return -1;
    p->slots[x].gradient_width = spec->down.rows;
    if (program_tensor_ranks(p) == 1) return x;
    x = relayout_scatter(p, x, NULL);
    if (p->error == OK) p->slots[x].gradient_width = spec->down.rows;
    return x;
}

static slot add_combine(struct program *p, slot rows, slot choice,
                        const struct experts_spec *spec)
{
    const int step = add_step(p, &layer_combine, rows, &spec->form);

    if (p->error != OK) return -1;
    const slot output = p->steps[step].output;

    p->steps[step].second = choice;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->steps[step].set.experts.by_entry =
        program_tensor_ranks(p) > 1 || experts_are_spread(p);
    p->slots[output].width = p->slots[rows].width / spec->form.choices;
    p->slots[output].layout.partial = 0;
    return output;
}

static status fail_domino(void)
{
    FAIL(ERR_CONFIG, "tensor.domino: it takes a micro-batch in pieces, whose "
                     "tokens would meet an expert one piece after the other; "
                     "with experts use tensor.overlap without it");
}

slot nn_experts(struct program *p, slot x, slot choice,
                const struct experts_spec *spec)
{
    slot whole = choice;

    if (p->error == OK && p->domino) p->error = fail_domino();
    if (p->error == OK && program_tensor_ranks(p) > 1)
        x = dispatch_tokens(p, x, &whole, spec);
    if (p->error == OK) p->error = experts_check_ranks(p, &spec->form);
    if (p->error == OK && experts_are_spread(p))
        x = expert_ranks_send(p, x, whole, spec, &whole);
    if (p->error != OK) return -1;
    x = add_product(p, &layer_up, x, whole, spec);
    if (p->error != OK) return -1;
    const int step = add_step(p, &layer_gate, x, &spec->form);

    if (p->error != OK) return -1;
    if (experts_are_spread(p)) p->steps[step].second = whole;
    p->slots[p->steps[step].output].width = p->slots[x].width / 2;
    x = add_product(p, &layer_down, p->steps[step].output, whole, spec);
    return p->error == OK ? add_combine(p, x, choice, spec) : -1;
}

slot nn_share(struct program *p, slot x, slot logits)
{
    const struct experts_spec spec = {
        .form = {.score = ROUTER_SIGMOID, .experts = 1, .choices = 1},
        .leaf = 1};

    x = relayout_local(p, x);
    logits = nn_choose(p, logits, &spec.form);
    if (p->error != OK) return -1;
    x = add_combine(p, x, logits, &spec);
    if (p->error != OK) return -1;
    struct step *last = &p->steps[p->step_count - 1];

    last->set.experts.by_entry = last->set.experts.scaled = true;
    return x;
}
