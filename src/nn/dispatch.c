/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c - tokens, and what they have chosen, to all tensor ranks, each of
 * which has a part of every expert.
 *
 *   F   every rank's tokens and choices to all
 *   B   the gradient of a token's row of each choice is a sum over ranks; then
 *       a token's rows are added, expert by expert, as one rank adds them
 *
 * So the gradient of what this step writes has a row for each choice. */
#include "nn/choice.h"

static struct tensor numbers_of(const struct choice *choice)
{
    return tensor_2d(choice->chosen, DTYPE_I32, choice->tokens,
                     choice->choices);
}

static status dispatch_forward(const struct step *step, struct run *run)
{
    const struct choice part = choice_of(run, step, step->second);
    const struct choice whole = choice_of(run, step, step->aux);

    TRY(relayout_gather_tokens(run, run_slot(run, step->output),
                               run_slot(run, step->input)));
    TRY(relayout_gather_tokens(run, whole.gates, part.gates));
    return relayout_gather_tokens(run, numbers_of(&whole), numbers_of(&part));
}

/* Scratch of B: sums over ranks of this rank's rows; the same rounded; where
 * they lie. */
struct dispatch_room { size_t rounded, places, all; };

static struct dispatch_room room_of(const struct step *step,
                                    const struct program *p)
{
    const size_t entries = (size_t)(program_slot_rows(p, step->input) *
                                    step->set.experts.form.choices);
    const size_t elements = entries * (size_t)p->slots[step->input].width;
    struct dispatch_room room = {
        .rounded = arena_aligned(elements *
                                 (size_t)dtype_bytes(program_real(p)))};

    room.places = room.rounded +
                  arena_aligned(elements * (size_t)dtype_bytes(p->dtype));
    room.all = room.places + entries * sizeof(int32_t);
    return room;
}

static size_t dispatch_scratch(const struct step *step,
                               const struct program *p)
{
    return room_of(step, p).all;
}

static status dispatch_backward(const struct step *step, struct run *run)
{
    const struct dispatch_room room = room_of(step, run->program);
    struct choice choice = choice_of(run, step, step->second);
    const struct tensor dx = run_gradient(run, step->input);
    const int64_t entries = choice.tokens * choice.choices;
    int32_t *places = (int32_t *)(void *)((char *)run->lists + room.places);
    struct tensor rows = tensor_2d(run->scratch, program_real(run->program),
                                   entries, dx.shape[1]);
    const struct tensor sums = rows;
    struct experts_combine combine = {
        .y = dx, .places = places, .choices = choice.choices,
        .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};

    TRY(relayout_scatter_sums(
        run, choice_rows(sums, choice.choices * dx.shape[1]),
        run_gradient(run, step->output)));
    if (dtype_is_narrow(dx.dtype)) { /* as one rank rounds a row */
        const int64_t n = tensor_count(&sums);

        rows.data = (char *)run->scratch + room.rounded;
        rows.dtype = dx.dtype;
        TRY(run->kernels->scale(run->stream,
                                tensor_1d(rows.data, rows.dtype, n),
                                tensor_1d(sums.data, sums.dtype, n), 1.0));
    }
    TRY(choice_read(run, &choice));
    combine.numbers = choice.chosen;
    for (int64_t i = 0; i < entries; i++)
        places[i] = choice.chosen[i] < 0 ? -1 : (int32_t)i;
    combine.rows = rows;
    return run->kernels->experts_combine(run->stream, &combine);
}

static struct step_cost dispatch_cost(const struct step *step,
                                      const struct program *p)
{
    const int64_t elements = p->size.tokens * p->slots[step->output].width;
    const double bytes = (double)(elements * dtype_bytes(p->dtype));

    return (struct step_cost){
        .bytes_moved = bytes,
        .bytes_sent = bytes * (program_tensor_ranks(p) - 1) /
                      program_tensor_ranks(p)};
}

static size_t dispatch_messages(const struct step *step,
                                const struct program *p,
                                const struct group *tensor)
{
    return relayout_messages(p, tensor,
                             p->slots[step->output].gradient_width);
}

static void dispatch_exchanges(const struct step *step,
                               const struct program *p,
                               const struct exchange_case *at,
                               struct layer_exchanges *out)
{
    const int64_t tokens =
        program_part(p, p->layout.place.at[AXIS_TENSOR]).count *
        program_rows(p);
    const int64_t width = p->slots[step->output].width;
    const int64_t rows = p->slots[step->output].gradient_width;
    struct layer_exchange exchange = {.axis = AXIS_TENSOR,
                                      .what = SENT_ACTIVATIONS, .calls = 3};

    if (exchange_forward(at)) {
        exchange.kind = COMM_ALL_GATHER;
        exchange.bytes =
            tokens * (program_tensor_ranks(p) - 1) *
            (width * dtype_bytes(p->dtype) +
             p->slots[step->aux].width * (int64_t)sizeof(int32_t));
    } else if (exchange_backward(at)) {
        exchange.kind = COMM_REDUCE_SCATTER;
        exchange.calls = 1;
        exchange.bytes = (p->size.tokens - tokens) * rows *
                         dtype_bytes(program_real(p));
    } else {
        return;
    }
    layer_exchanges_add(out, p, exchange);
}

static const struct layer layer_dispatch = {
    .name = "dispatch", .kind = LAYER_RELAYOUT, .forward = dispatch_forward,
    .backward_input = dispatch_backward, .cost = dispatch_cost,
    .scratch = dispatch_scratch, .messages = dispatch_messages,
    .exchanges = dispatch_exchanges};

slot dispatch_tokens(struct program *p, slot x, slot *choice,
                     const struct experts_spec *spec)
{
    const unsigned tensor = 1u << AXIS_TENSOR;

    x = relayout_local(p, x);
    const int step = program_add_step(p, &layer_dispatch, x);
    const slot output = program_add_slot(p, layer_dispatch.name,
                                         x < 0 ? 0 : p->slots[x].width, false);
    const slot aux = program_add_slot(p, "choices", 0, true);

    if (p->error != OK) return -1;
    p->steps[step].second = *choice;
    p->steps[step].output = output;
    p->steps[step].aux = aux;
    p->steps[step].set.experts.form = spec->form;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->slots[aux] = p->slots[*choice];
    program_lay_as(p, output, x);
    p->slots[output].layout.tokens &= ~tensor;
    p->slots[aux].layout.tokens &= ~tensor;
    p->slots[output].again = p->slots[aux].again = true;
    p->slots[output].gradient_dtype = program_real(p);
    p->slots[output].gradient_width =
        p->slots[x].width * spec->form.choices;
    *choice = aux;
    return output;
}
