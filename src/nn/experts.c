/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - the experts of a mixture: each token's rows, and no others.
 * Source: Tan et al. 2024 (ScatterMoE), arXiv:2403.08245, section 3.
 *
 *   x [tokens, width] --up--> [rows, 2 f] --gate--> [rows, f] --down-->
 *     [rows, width] --combine, gates--> y [tokens, width]
 *
 * A token has as many rows as choices, so slots have a fixed size under every
 * routing: choices * width elements for each token. Their rows lie expert after
 * expert (kernels/experts.h). The products are in expert_products.c. */
#include <string.h>

#include "nn/expert_adapter.h"
#include "nn/expert_bias.h"
#include "nn/expert_products.h"
#include "nn/expert_ranks.h"
#include "nn/glu_codes.h"
#include "nn/quantized_experts.h"
#include "nn/straight_through.h"

static const struct router_form *form_of(const struct step *step)
{
    return &step->set.experts.form;
}

/* ---- between them: the gate of each row ---- */

static int64_t gate_width(const struct step *step, const struct program *p)
{
    return p->slots[step->output].width / form_of(step)->choices;
}

static status gate_forward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);

    return experts_gate(step, run,
                        choice_rows(run_slot(run, step->output), width),
                        choice_rows(run_slot(run, step->input), 2 * width));
}

static status gate_backward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);

    CHECK(!run->event->adds);
    return experts_gate_backward(
        step, run, choice_rows(run_gradient(run, step->input), 2 * width),
        choice_rows(run_gradient(run, step->output), width),
        choice_rows(run_slot(run, step->input), 2 * width));
}

static struct step_cost gate_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t out = p->size.tokens * p->slots[step->output].width;

    return (struct step_cost){
        .flops = (double)(10 * out),
        .bytes_moved = (double)(3 * out * dtype_bytes(p->dtype))};
}

static const struct layer layer_gate = {
    .name = "experts_gate", .kind = LAYER_ACTIVATION, .forward = gate_forward,
    .backward_input = gate_backward, .cost = gate_cost,
    .keeps_input_for_b = true};

/* ---- the same, with an input that waits for B as codes ---- */

static status coded_forward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);
    struct tensor x;

    if (run->event->pass == PASS_FORWARD) {
        x = choice_rows(run_slot(run, step->input), 2 * width);
        TRY(glu_codes_make(run, step, x));
    } else {
        TRY(glu_codes_read(run, step, &x));
    }
    return experts_gate(step, run,
                        choice_rows(run_slot(run, step->output), width), x);
}

static status coded_backward(const struct step *step, struct run *run)
{
    const int64_t width = gate_width(step, run->program);
    struct tensor x;

    CHECK(!run->event->adds);
    TRY(glu_codes_read(run, step, &x));
    return experts_gate_backward(
        step, run, choice_rows(run_gradient(run, step->input), 2 * width),
        choice_rows(run_gradient(run, step->output), width), x);
}

static const struct layer layer_gate_coded = {
    .name = "experts_gate", .kind = LAYER_ACTIVATION, .forward = coded_forward,
    .backward_input = coded_backward, .cost = gate_cost,
    .scratch = glu_codes_scratch, .keeps_codes = true};

/* ---- combine: rows return to their tokens ---- */

/* Rows lie as the tokens and their choices do; dropped ones (router_drop) are
 * none. */
static const int32_t *places_by_entry(struct run *run,
                                      const struct choice *choice)
{
    int32_t *places = run->lists;

    for (int64_t i = 0; i < choice->tokens * choice->choices; i++)
        places[i] = choice->chosen[i] < 0 ? -1 : (int32_t)i;
    return places;
}

static status find_places(const struct step *step, struct run *run,
                          struct choice *choice, const int32_t **places)
{
    struct choice_lists lists;

    *choice = choice_of(run, step, step->second);
    TRY(choice_read(run, choice));
    if (step->set.experts.by_entry) {
        *places = places_by_entry(run, choice);
        return OK;
    }
    choice_lists_make(choice, 0, form_of(step)->experts, run->lists, &lists);
    *places = lists.places;
    return OK;
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
        .leaf_experts = step->set.experts.leaf};

    TRY(find_places(step, run, &choice, &call.places));
    call.numbers = choice.chosen;
    call.gates = choice.gates.data;
    call.choices = choice.choices;
    if (step->left >= 0) {
        left = run_slot(run, step->left);
        call.left = &left;
    }
    TRY(run->kernels->experts_combine(run->stream, &call));
    return expert_bias_add(step, run, &choice, call.y);
}

/* The rows' gradient: dy itself, where products take the gates, too. */
static status combine_rows(const struct step *step, struct run *run,
                           const struct choice *choice, const int32_t *places)
{
    const struct tensor to = run_gradient(run, step->input);
    const struct tensor dy = run_gradient(run, step->output);
    const struct experts_combine call = {
        .y = to, .rows = dy, .places = places, .numbers = choice->chosen,
        .gates = choice->gates.data, .choices = 1, .leaf_experts = 1,
        .left = run->event->adds ? &to : NULL};
    const int64_t n = tensor_count(&dy);

    CHECK(!run->event->adds || step->set.experts.scaled);
    if (step->set.experts.scaled)
        return run->kernels->experts_combine(run->stream, &call);
    return run->kernels->scale(run->stream, tensor_1d(to.data, to.dtype, n),
                               tensor_1d(dy.data, dy.dtype, n), 1.0);
}

static status combine_backward(const struct step *step, struct run *run)
{
    const int32_t *places;
    struct choice choice;
    struct experts_gates call = {
        .dgates = run_gradient(run, step->second),
        .dy = run_gradient(run, step->output), .rows = rows_of(step, run)};

    CHECK(!run->event->adds_second);
    TRY(find_places(step, run, &choice, &places));
    call.places = places;
    call.choices = choice.choices;
    TRY(run->kernels->experts_gates(run->stream, &call));
    TRY(combine_rows(step, run, &choice, places));
    return expert_bias_backward(step, run, &choice);
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
    const size_t lists = choice_lists_bytes(
        p->size.tokens * form_of(step)->choices, form_of(step)->experts);
    const size_t bias = expert_bias_scratch(step, p);

    return lists > bias ? lists : bias;
}

const struct layer layer_combine = {
    .name = "combine", .kind = LAYER_EXPERTS, .forward = combine_forward,
    .backward_input = combine_backward, .cost = combine_cost,
    .scratch = combine_scratch, .second_gradient = true,
    .keeps_input_for_b = true};

/* ---- building ---- */

/* A step whose output has `width` elements for each row. */
static int add_step(struct program *p, const struct layer *layer, slot x,
                    const struct router_form *form)
{
    const int step = program_add_step(p, layer, x);
    const slot output = program_add_slot(p, layer->name, 1, false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.experts.form = *form;
    program_lay_as(p, output, x);
    return step;
}

/* Rows that are sums over tensor ranks, as wholes. */
static slot scatter_rows(struct program *p, slot rows,
                         const struct experts_spec *spec)
{
    if (p->error != OK) return -1;
    p->slots[rows].gradient_width = spec->down.rows;
    if (program_tensor_ranks(p) == 1 || experts_are_folded(p)) return rows;
    rows = relayout_scatter(p, rows, NULL);
    if (p->error == OK) p->slots[rows].gradient_width = spec->down.rows;
    return rows;
}

static slot add_product(struct program *p, enum expert_side side, slot x,
                        slot choice, const struct experts_spec *spec)
{
    const bool up = side == EXPERT_UP;
    const bool adapted =
        (up ? spec->up_adapter.pieces : spec->down_adapter.pieces) > 0;
    const struct layer *layer =
        up ? adapted ? &layer_experts_up_adapted : &layer_experts_up
           : adapted ? &layer_experts_down_adapted : &layer_experts_down;
    const int step = add_step(p, layer, x, &spec->form);

    if (p->error != OK) return -1;
    const slot output = p->steps[step].output;
    struct slot_layout *layout = &p->slots[output].layout;

    p->steps[step].second = choice;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->steps[step].few = quantized_applies(p, up ? &spec->up : &spec->down);
    experts_params(p, step, 0, up ? &spec->up : &spec->down,
                   spec->form.experts);
    if (up && spec->up_bias.rows > 0)
        experts_params(p, step, 1, &spec->up_bias, spec->form.experts);
    expert_adapter_params(p, step, side, spec);
    if (p->error != OK) return -1;
    p->slots[output].width =
        p->params.items[p->steps[step].param[0]].rows *
        spec->form.choices;
    if (up) {
        layout->width |= 1u << AXIS_TENSOR;
        return output;
    }
    layout->width &= ~(1u << AXIS_TENSOR);
    program_set_partial(p, output, AXIS_TENSOR);
    return scatter_rows(p, output, spec);
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
    program_set_complete(p, output);
    if (spec->down_bias.rows == 0) return output;
    program_add_param(p, step, 0, &spec->down_bias);
    if (p->error != OK) return -1;
    struct use_info *use = &p->uses[p->use_count - 1];

    use->vector = true;
    use->local = p->slots[output].layout.tokens >> AXIS_TENSOR & 1;
    return output;
}

static slot add_gate(struct program *p, slot x, const struct experts_spec *spec)
{
    const bool codes = glu_codes_apply(p);
    const int step = add_step(p, codes ? &layer_gate_coded : &layer_gate, x,
                              &spec->form);

    if (p->error != OK) return -1;
    const slot output = p->steps[step].output;

    p->steps[step].set.experts.alpha = spec->alpha;
    p->steps[step].set.experts.limit = spec->limit;
    p->steps[step].set.experts.gelu = spec->gelu;
    p->slots[output].width = p->slots[x].width / 2;
    if (codes) glu_codes_name(p, step);
    return output;
}

static status fail_domino(void)
{
    FAIL(ERR_CONFIG,
         "tensor.domino: it takes a micro-batch in sub-batches, whose "
         "tokens would meet an expert one after the other; "
         "with experts use tensor.overlap without it");
}

/* The rotation that wrote `read` is for the last product's first expert. */
static void name_first(struct program *p, slot read)
{
    for (int i = p->step_count - 1; p->error == OK && i >= 0; i--)
        if (p->steps[i].layer->kind == LAYER_EXPERTS &&
            p->steps[i].param[0] >= 0) {
            straight_name(p, read, p->steps[i].param[0]);
            return;
        }
}

/* Tensor ranks that cut adapters send sums of a length that the choices do not
 * show: rows then come in one turn. */
static bool needs_one_turn(const struct program *p,
                           const struct experts_spec *spec)
{
    return spec->up_adapter.pieces + spec->down_adapter.pieces > 0 &&
           program_tensor_ranks(p) > 1 && !experts_are_folded(p);
}

slot nn_experts(struct program *p, slot x, slot choice,
                const struct experts_spec *spec)
{
    slot whole = choice, read;

    if (needs_one_turn(p, spec)) p->one_turn = true;
    if (p->error == OK && p->layout.overlap.domino) p->error = fail_domino();
    x = read = straight_rotate(p, x, &spec->up, -1, 0);
    if (p->error == OK && experts_are_folded(p))
        x = relayout_local(p, x);
    else if (p->error == OK && program_tensor_ranks(p) > 1)
        x = dispatch_tokens(p, x, &whole, spec);
    if (p->error == OK) p->error = experts_check_ranks(p, &spec->form);
    if (p->error == OK) p->error = quantized_experts_check(p);
    if (p->error == OK) p->error = expert_adapter_check(p, spec);
    if (p->error != OK) return -1;
    if (experts_are_spread(p)) {
        x = scatter_rows(p, spread_experts(p, x, whole, spec), spec);
        name_first(p, read);
        return p->error == OK ? add_combine(p, x, choice, spec) : -1;
    }
    x = add_product(p, EXPERT_UP, x, whole, spec);
    name_first(p, read);
    if (p->error != OK) return -1;
    read = add_gate(p, x, spec);
    if (p->error != OK) return -1;
    read = straight_rotate(p, read, &spec->down, whole, spec->form.choices);
    x = add_product(p, EXPERT_DOWN, read, whole, spec);
    name_first(p, read);
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

/* ---- gates on the way in ---- */

static status ones_forward(const struct step *step, struct run *run)
{
    const struct choice from = choice_of(run, step, step->input);
    const struct choice to = choice_of(run, step, step->output);
    const size_t count = (size_t)(from.tokens * from.choices);

    struct tensor ones = to.gates;

    TRY(device_copy(run->stream, to.chosen, from.chosen,
                    count * sizeof *to.chosen));
    if (run->stream->device != NULL) ones.data = run->lists;
    for (size_t i = 0; i < count; i++) tensor_set(&ones, (int64_t)i, 1);
    return device_write(run->stream, to.gates.data, ones.data,
                        count * (size_t)dtype_bytes(ones.dtype));
}

/* Gates of 1 have no gradient; the step behind this one has set that of those
 * which it reads. */
static status ones_backward(const struct step *step, struct run *run)
{
    (void)step;
    CHECK(run->event->adds);
    return OK;
}

static struct step_cost ones_cost(const struct step *step,
                                  const struct program *p)
{
    const int64_t rows = program_slot_rows(p, step->output);

    return (struct step_cost){
        .bytes_moved = (double)(2 * rows * p->slots[step->output].width *
                                (int64_t)sizeof(int32_t))};
}

static const struct layer layer_ones = {
    .name = "gates_of_one", .kind = LAYER_ROUTER, .forward = ones_forward,
    .backward_input = ones_backward, .cost = ones_cost};

slot nn_gated(struct program *p, slot x, slot *choice,
              const struct experts_spec *spec)
{
    const slot gates = *choice;
    struct experts_spec one = *spec;

    CHECK(spec->form.choices == 1);
    x = relayout_local(p, x);
    const int step = add_step(p, &layer_ones, gates, &spec->form);

    if (p->error != OK) return -1;
    *choice = p->steps[step].output;
    p->slots[*choice] = p->slots[gates];
    p->slots[*choice].name = layer_ones.name;
    one.leaf = 1;
    one.down_bias = (struct param_spec){0};
    x = add_combine(p, x, gates, &one);
    if (p->error != OK) return -1;
    struct step *last = &p->steps[p->step_count - 1];

    last->set.experts.by_entry = last->set.experts.scaled = true;
    return x;
}
