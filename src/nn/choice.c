/* SPDX-License-Identifier: Apache-2.0 */
/* choice.c - a token's choice of experts by the logits of the router. */
#include "nn/choice.h"

#include <string.h>

#include "nn/capacity.h"
#include "nn/routes.h"

struct tensor choice_rows(struct tensor view, int64_t width)
{
    return tensor_2d(view.data, view.dtype, tensor_count(&view) / width,
                     width);
}

/* Elements of 32 bits of a token's choice. */
static int64_t choice_width(const struct program *p, int choices)
{
    const int words = dtype_bytes(program_real(p)) / (int)sizeof(int32_t);

    return (int64_t)choices * (words + 1);
}

struct choice choice_of(struct run *run, const struct step *step, slot which)
{
    const struct program *p = run->program;
    const struct tensor view = run_slot(run, which);
    const int choices = step->set.experts.form.choices;
    const int64_t tokens = view.shape[0];
    struct choice choice = {
        .gates = tensor_2d(view.data, program_real(p), tokens, choices),
        .tokens = tokens, .choices = choices, .slot = which};

    choice.chosen = (int32_t *)(void *)((char *)view.data +
                                        tokens * choices *
                                            dtype_bytes(program_real(p)));
    return choice;
}

static size_t chosen_bytes(const struct choice *choice)
{
    return (size_t)(choice->tokens * choice->choices) *
           sizeof *choice->chosen;
}

/* ---- what the host has read, where the device is apart ---- */

/* Choices of a slot, or of all slots before one. */
static int slots_before(const struct program *p, slot end)
{
    int count = 0;

    for (slot i = 0; i < end; i++) count += p->slots[i].dtype == DTYPE_I32;
    return count;
}

/* A frame has a mark for each slot, then room for its choices. Marks: 0, the
 * host has none; 1, all; above that, those of a sub-batch. */
static size_t marks_bytes(const struct program *p)
{
    return arena_aligned((size_t)slots_before(p, p->slot_count));
}

static size_t one_bytes(const struct program *p, int choices)
{
    return arena_aligned((size_t)(p->size.tokens * choices) * sizeof(int32_t));
}

size_t choice_frame_bytes(const struct program *p, int choices)
{
    const int slots = slots_before(p, p->slot_count);

    return marks_bytes(p) + (size_t)slots * one_bytes(p, choices);
}

/* NULL: the slot has none. */
static char *mark_of(const struct run *run, slot which)
{
    const struct program *p = run->program;

    if (which < 0 || p->slots[which].dtype != DTYPE_I32) return NULL;
    return run->choices.frames +
           (size_t)run->choices.frame *
               choice_frame_bytes(p, run->choices.count) +
           slots_before(p, which);
}

/* A layer that runs again makes the same ones, unless it drops some of them. */
void choice_forget(const struct run *run, const struct step *step)
{
    const bool again = run->event->pass == PASS_RECOMPUTE &&
                       run->program->regular.capacity == 0;
    const slot written[] = {step->output, step->aux};

    if (run->choices.frames == NULL || again ||
        run->event->pass > PASS_RECOMPUTE)
        return;
    for (int i = 0; i < 2; i++) {
        char *mark = mark_of(run, written[i]);

        if (mark != NULL) *mark = 0;
    }
}

status choice_read(struct run *run, struct choice *choice)
{
    const struct program *p = run->program;
    int32_t *const there = choice->chosen;
    char *const mark = run->choices.frames == NULL
                           ? NULL : mark_of(run, choice->slot);

    if (run->stream->device == NULL) return OK;
    choice->chosen = run->choices.joined;
    if (mark != NULL) {
        const int before = slots_before(p, choice->slot);

        CHECK(choice->choices <= run->choices.count); /* nn_share: 1 */
        choice->chosen = (int32_t *)(void *)(
            mark - before + marks_bytes(p) +
            (size_t)before * one_bytes(p, run->choices.count));
        if (*mark == 1 + run->window) return OK; /* of the same tokens */
        *mark = (char)(1 + run->window);
    }
    return device_read(run->stream, choice->chosen, there,
                       chosen_bytes(choice));
}

/* Brings changes of what was read to its place. */
static status choice_write(const struct run *run, const struct choice *choice,
                           int32_t *there)
{
    return device_write(run->stream, there, choice->chosen,
                        chosen_bytes(choice));
}

size_t choice_lists_bytes(int64_t entries, int experts)
{
    return 2 * arena_aligned(((size_t)experts + 1) * sizeof(int32_t)) +
           2 * arena_aligned((size_t)entries * sizeof(int32_t));
}

void choice_lists_make(const struct choice *choice, int first, int experts,
                       void *scratch, struct choice_lists *out)
{
    const size_t entries = arena_aligned(
        (size_t)(choice->tokens * choice->choices) * sizeof(int32_t));
    const size_t offsets =
        arena_aligned(((size_t)experts + 1) * sizeof(int32_t));
    char *at = (char *)scratch + 2 * offsets;
    const struct router_tokens tokens = {.chosen = choice->chosen,
                                         .tokens = choice->tokens,
                                         .choices = choice->choices};
    struct expert_lists lists = {.offsets = scratch};

    lists.entries = (int32_t *)(void *)at;
    lists.places = (int32_t *)(void *)(at + entries);
    expert_groups_make(&tokens, first, experts, &lists);
    *out = (struct choice_lists){
        .groups = {.experts = experts, .choices = choice->choices,
                   .offsets = lists.offsets, .entries = lists.entries},
        .places = lists.places,
        .spare = (int32_t *)(void *)((char *)scratch + offsets)};
}

struct expert_groups choice_some(const struct choice_lists *lists, int first,
                                 int count, int64_t *row)
{
    const int32_t *offsets = lists->groups.offsets;
    struct expert_groups some = lists->groups;

    for (int i = 0; i <= count; i++)
        lists->spare[i] = offsets[first + i] - offsets[first];
    *row = offsets[first];
    some.experts = count;
    some.offsets = lists->spare;
    some.entries += *row;
    return some;
}

/* ---- scratch of the layer ---- */

/* Sequences of a micro-batch as the router's slot has them, and what lies in
 * scratch: gradients of logits before they are rounded, targets of this rank's
 * tokens, counts of each sequence, weights of its balance loss, counts of one
 * sequence, the bias where it has to be widened, and tables of places. */
struct choose_room {
    int64_t rows, sequences;
    size_t mask, counts, weights, one, bias, table, all;
};

static struct choose_room room_of(const struct step *step,
                                  const struct program *p)
{
    const int64_t experts = step->set.experts.form.experts;
    struct choose_room room = {.rows = program_slot_rows(p, step->input),
                               .sequences = p->size.sequences};
    const size_t table = (size_t)(room.sequences * experts);

    room.mask = arena_aligned((size_t)(room.rows * experts) *
                        (size_t)dtype_bytes(program_real(p)));
    room.counts =
        room.mask + arena_aligned((size_t)room.rows * sizeof(int32_t));
    room.weights = room.counts + arena_aligned(table * sizeof(double));
    room.one = room.weights + arena_aligned(table * sizeof(double));
    room.bias = room.one + arena_aligned((size_t)experts * sizeof(int64_t));
    room.all = room.bias;
    if (step->param[0] >= 0)
        room.all += arena_aligned((size_t)experts *
                                  (size_t)dtype_bytes(program_real(p)));
    room.table = room.all;
    room.all += capacity_scratch(step, p);
    return room;
}

static size_t choose_scratch(const struct step *step, const struct program *p)
{
    return room_of(step, p).all;
}

/* A loss that looks at the tokens of each expert in a sequence. */
static bool balances(const struct program *p)
{
    return p->regular.balance > 0 || p->regular.device_loss > 0;
}

/* ... among those of the micro-batch under way. */
static bool counts_tokens(const struct program *p)
{
    return balances(p) && p->regular.scope != BALANCE_BATCH;
}

static int devices_of(const struct program *p, const struct router_form *form)
{
    return p->regular.devices > 0 ? p->regular.devices : form->groups;
}

static bool has_losses(const struct program *p, const struct step *step)
{
    return (balances(p) || p->regular.router_z > 0) &&
           p->mode == PROGRAM_TRAIN &&
           step->set.experts.form.experts > 1;
}

static bool is_cut(const struct program *p, const struct step *step)
{
    return p->slots[step->input].layout.tokens >> AXIS_TENSOR & 1 &&
           program_tensor_ranks(p) > 1;
}

/* Targets of the tokens that this rank has, in their order. */
static const int32_t *mask_of(const struct step *step, struct run *run)
{
    const struct program *p = run->program;
    int32_t *mask = (int32_t *)(void *)((char *)run->lists +
                                        room_of(step, p).mask);
    const struct layout_span part =
        program_part(p, p->layout.place.at[AXIS_TENSOR]);
    const int64_t context_chunk = p->size.length / p->size.context_chunks;

    if (!is_cut(p, step)) return run->batch.targets;
    for (int64_t i = 0; i < program_rows(p); i++)
        for (int64_t j = 0; j < part.count; j++)
            mask[i * part.count + j] =
                run->batch.targets[i * context_chunk + part.first + j];
    return mask;
}

/* ---- the layer ---- */

/* Sets the bias of the choice, if there is one, as a row of real numbers. */
static status find_bias(const struct step *step, struct run *run,
                        const void **bias)
{
    const enum dtype real = program_real(run->program);
    const int64_t experts = step->set.experts.form.experts;

    *bias = NULL;
    if (step->param[0] < 0) return OK;
    const struct tensor weight = run_weight(run, step, 0);
    const struct tensor wide = tensor_1d(
        (char *)run->scratch + room_of(step, run->program).bias, real,
        experts);

    *bias = weight.data;
    if (weight.dtype == real) return OK;
    *bias = wide.data;
    return run->kernels->scale(
        run->stream, wide, tensor_1d(weight.data, weight.dtype, experts), 1.0);
}

static status choose_forward(const struct step *step, struct run *run)
{
    const struct router_form *form = &step->set.experts.form;
    struct choice choice = choice_of(run, step, step->output);
    int32_t *const chosen = choice.chosen;
    struct router router = {
        .form = step->set.experts.form,
        .logits = run_slot(run, step->input), .gates = choice.gates,
        .chosen = choice.chosen};
    int64_t *counts = routes_of(run, step), dropped;

    TRY(find_bias(step, run, &router.bias));
    TRY(run->kernels->router_choose(run->stream, &router));
    TRY(choice_read(run, &choice));
    TRY(capacity_drop(step, run, &choice,
                      (char *)run->lists + room_of(step, run->program).table,
                      &dropped));
    if (dropped > 0) TRY(choice_write(run, &choice, chosen));
    if (counts == NULL || run->event->pass != PASS_FORWARD) return OK;
    counts[form->experts] += dropped;
    const struct router_tokens tokens = {
        .chosen = choice.chosen, .mask = mask_of(step, run),
        .tokens = choice.tokens, .choices = choice.choices};

    router_count(&tokens, counts);
    return OK;
}

/* Tokens of each expert in each sequence, of all ranks that have some of it. */
static status count_sequences(const struct step *step, struct run *run,
                              const struct choice *choice,
                              const int32_t *mask)
{
    static const enum axis axes[] = {AXIS_TENSOR, AXIS_CONTEXT};
    const struct choose_room room = room_of(step, run->program);
    const int experts = step->set.experts.form.experts;
    double *counts = (double *)(void *)((char *)run->lists + room.counts);
    int64_t *one = (int64_t *)(void *)((char *)run->lists + room.one);
    const struct tensor all =
        tensor_1d(counts, DTYPE_F64, room.sequences * experts);
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = all, .in = all};
    struct router_tokens tokens = {
        .chosen = choice->chosen, .mask = mask, .choices = choice->choices,
        .tokens = choice->tokens / room.sequences};

    for (int64_t i = 0; i < room.sequences; i++) {
        memset(one, 0, (size_t)experts * sizeof *one);
        tokens.first = i * tokens.tokens;
        router_count(&tokens, one);
        for (int e = 0; e < experts; e++)
            counts[i * experts + e] = (double)one[e];
    }
    for (int i = 0; i < 2; i++)
        if (run->program->layout.mesh.size[axes[i]] > 1)
            TRY(comm_run(run->groups[axes[i]], &call));
    return OK;
}

/* Adds the tokens of each expert that weigh it in the balance loss of a
 * sequence to `one`. */
static void add_counts(const struct step *step, const struct run *run,
                       int64_t sequence, int64_t *one)
{
    const struct program *p = run->program;
    const struct choose_room room = room_of(step, p);
    const int experts = step->set.experts.form.experts;
    const double *counts =
        (const double *)(const void *)((char *)run->lists + room.counts) +
        sequence * experts;
    int64_t rows = 1;

    if (p->regular.scope == BALANCE_BATCH) {
        if (run->counted.before == NULL) return;
        counts = run->counted.before + (int64_t)step->block * experts;
    }
    if (p->regular.scope == BALANCE_MICRO_BATCH) rows = room.sequences;
    for (int64_t i = 0; i < rows * experts; i++)
        one[i % experts] += (int64_t)counts[i];
}

/* Weights of the balance loss of each sequence. */
static const double *weigh_sequences(const struct step *step, struct run *run)
{
    const struct program *p = run->program;
    const struct choose_room room = room_of(step, p);
    const int experts = step->set.experts.form.experts;
    const size_t bytes = (size_t)experts * sizeof(double);
    int64_t *one = (int64_t *)(void *)((char *)run->lists + room.one);
    double *weights = (double *)(void *)((char *)run->lists + room.weights);
    const struct router_balance balance = {
        .counts = one, .experts = experts,
        .devices = p->regular.device_loss > 0
                       ? devices_of(p, &step->set.experts.form) : 0,
        .alpha = p->regular.balance, .alpha_device = p->regular.device_loss};

    for (int64_t i = 0; i < room.sequences; i++) {
        if (i > 0 && p->regular.scope != BALANCE_SEQUENCE) { /* the same */
            memcpy(weights + i * experts, weights, bytes);
            continue;
        }
        memset(one, 0, (size_t)experts * sizeof *one);
        add_counts(step, run, i, one);
        router_balance(&balance, weights + i * experts);
    }
    return weights;
}

static status add_losses(const struct step *step, struct run *run,
                         const struct choice *choice,
                         struct router_losses *losses)
{
    const struct program *p = run->program;
    const struct choose_room room = room_of(step, p);

    losses->mask = mask_of(step, run);
    losses->length = choice->tokens / room.sequences;
    losses->z_loss = p->regular.router_z;
    losses->scale = run->now.loss_scale;
    if (!balances(p)) return OK;
    if (counts_tokens(p))
        TRY(count_sequences(step, run, choice, losses->mask));
    losses->weights = weigh_sequences(step, run);
    return OK;
}

static status choose_backward(const struct step *step, struct run *run)
{
    struct choice choice = choice_of(run, step, step->output);
    const struct tensor dlogits = run_gradient(run, step->input);
    struct router_losses losses = {
        .form = step->set.experts.form,
        .logits = run_slot(run, step->input),
        .length = run->program->size.length, .dlogits = dlogits,
        .dgates = run_gradient(run, step->output), .gates = choice.gates,
        .chosen = choice.chosen};

    CHECK(!run->event->adds); /* logits have one reader */
    if (has_losses(run->program, step)) {
        TRY(choice_read(run, &choice));
        TRY(add_losses(step, run, &choice, &losses));
    }
    if (!dtype_is_narrow(dlogits.dtype))
        return run->kernels->router_backward(run->stream, &losses);
    losses.dlogits.data = run->scratch;
    losses.dlogits.dtype = dtype_real(dlogits.dtype);
    TRY(run->kernels->router_backward(run->stream, &losses));
    return run->kernels->scale(
        run->stream,
        tensor_1d(dlogits.data, dlogits.dtype, tensor_count(&dlogits)),
        tensor_1d(run->scratch, losses.dlogits.dtype, tensor_count(&dlogits)),
        1.0);
}

/* The counts of sequences, which ranks have parts of, and places. */
static void choose_exchanges(const struct step *step, const struct program *p,
                             const struct exchange_case *at,
                             struct layer_exchanges *out)
{
    static const enum axis axes[] = {AXIS_TENSOR, AXIS_CONTEXT};
    const int64_t count = p->size.sequences * step->set.experts.form.experts;

    capacity_exchanges(step, p, at, out);
    if (!exchange_backward(at) || !has_losses(p, step) || !counts_tokens(p))
        return;
    for (int i = 0; i < 2; i++) {
        const int size = p->layout.mesh.size[axes[i]];

        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = axes[i], .kind = COMM_ALL_REDUCE,
            .what = SENT_TOKENS_OF_EXPERTS, .calls = 1,
            .bytes = exchange_all_reduce(count, size,
                                         p->layout.place.at[axes[i]]) *
                     (int64_t)sizeof(double)});
    }
}

static size_t choose_messages(const struct step *step, const struct program *p,
                              const struct group *tensor)
{
    const struct tensor all =
        tensor_1d(NULL, DTYPE_F64,
                  p->size.sequences * step->set.experts.form.experts);
    const struct comm_call call = {
        .kind = COMM_ALL_REDUCE, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .out = all, .in = all};

    return has_losses(p, step) && counts_tokens(p)
               ? comm_scratch_bytes(tensor, &call) : 0;
}

static struct step_cost choose_cost(const struct step *step,
                                    const struct program *p)
{
    const int64_t n =
        program_slot_rows(p, step->input) * p->slots[step->input].width;

    return (struct step_cost){
        .flops = (double)(10 * n),
        .bytes_moved = (double)(2 * n * dtype_bytes(program_real(p)))};
}

const struct layer layer_choose = {
    .name = "choose", .kind = LAYER_ROUTER, .forward = choose_forward,
    .backward_input = choose_backward, .cost = choose_cost,
    .scratch = choose_scratch, .messages = choose_messages,
    .exchanges = choose_exchanges, .keeps_input_for_b = true,
    .keeps_output_for_b = true};

static status check_devices(const struct program *p,
                            const struct router_form *form)
{
    const int devices = devices_of(p, form);
    int near = devices < form->experts ? devices : form->experts;

    if (p->regular.device_loss == 0 || form->experts == 1) return OK;
    if (devices < 2)
        FAIL(ERR_CONFIG, "moe.device_loss: there are no groups of experts to "
                         "balance; set moe.devices to a number that divides "
                         "the %d experts of a block", form->experts);
    while (form->experts % near != 0) near--;
    if (near != devices)
        FAIL(ERR_CONFIG, "moe.devices: %d groups do not divide the %d experts "
                         "of a block evenly; %d do", devices, form->experts,
             near);
    return OK;
}

slot nn_choose(struct program *p, slot logits, const struct router_form *form)
{
    return nn_choose_biased(p, logits, form, NULL);
}

slot nn_choose_biased(struct program *p, slot logits,
                      const struct router_form *form,
                      const struct param_spec *bias)
{
    if (p->error == OK) p->error = router_form_check(form);
    if (p->error == OK) p->error = check_devices(p, form);
    if (p->error == OK && capacity_drops(p, form))
        p->error = capacity_check(p);
    if (p->error != OK) return -1;
    const int step = program_add_step(p, &layer_choose, logits);
    const slot output = program_add_slot(
        p, "choose", choice_width(p, form->choices), true);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->steps[step].set.experts.form = *form;
    program_lay_as(p, output, logits);
    p->slots[output].dtype = DTYPE_I32;
    p->slots[output].gradient_dtype = program_real(p);
    p->slots[output].gradient_width = form->choices;
    if (bias != NULL) program_add_param(p, step, 0, bias);
    return p->error == OK ? output : -1;
}
