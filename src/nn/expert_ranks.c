/* SPDX-License-Identifier: Apache-2.0 */
/* expert_ranks.c - rows to the ranks that have the experts of a mixture, and
 * back. Source: Lepikhin et al. 2020 (GShard), arXiv:2006.16668, section 3.2
 * (experts on ranks that share the batch, all-to-all there and back).
 *
 *   send     F: choices to all; x of each choice goes   B: gradients come back
 *   return   F: y of each choice comes back             B: gate dy goes
 *
 * A row is copied, not added up, so nothing here rounds but gate dy, once, as
 * the product rounds it that has all experts. */
#include "nn/expert_ranks.h"

#include <string.h>

#include "mesh/group.h"

bool experts_are_spread(const struct program *p)
{
    return p->mesh.size[AXIS_EXPERT] > 1;
}

struct expert_span experts_held(const struct program *p, int experts)
{
    const int count = experts / p->mesh.size[AXIS_EXPERT];

    return (struct expert_span){p->place.at[AXIS_EXPERT] * count, count};
}

int64_t experts_rows_most(const struct program *p,
                          const struct router_form *form)
{
    const int held = experts_held(p, form->experts).count;
    const int each = form->choices < held ? form->choices : held;

    if (!experts_are_spread(p)) return form->choices;
    return (int64_t)p->mesh.size[AXIS_EXPERT] * each;
}

status experts_check_ranks(const struct program *p,
                           const struct router_form *form)
{
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const int batch = mesh_batch_ranks(&p->mesh);
    int near = ranks;

    if (ranks == 1) return OK;
    while (form->experts % near != 0) near--;
    if (near != ranks)
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks do not divide the %d experts "
                         "of a block evenly; %d do", ranks, form->experts,
             near);
    if (batch > ranks && !grid_is_power(ranks))
        FAIL(ERR_CONFIG, "mesh.expert: %d ranks beside %d of mesh.data and "
                         "mesh.shard; their sums are subtrees of the batch's "
                         "only for a power of two, such as %d", ranks,
             batch / ranks, ranks > 4 ? 4 : 2);
    if (!grid_is_cut((int64_t)batch * p->grid.data, batch))
        FAIL(ERR_CONFIG, "mesh.expert: each of %d ranks that share the batch "
                         "has %d of its leaves, which are several subtrees; "
                         "set numerics.grid_data to a power of two times the "
                         "ranks, such as %d", batch, p->grid.data, batch);
    return OK;
}

/* ---- who sends what ---- */

static int64_t entries_of(const struct program *p,
                          const struct router_form *form)
{
    return p->tokens * form->choices;
}

static int64_t rows_most(const struct program *p,
                         const struct router_form *form)
{
    return p->tokens * experts_rows_most(p, form);
}

struct choice joined_of(struct run *run, const struct step *step)
{
    const struct program *p = run->program;
    const struct tensor view = run_slot(run, step->second);
    const int choices = step->set.experts.form.choices;
    char *numbers = (char *)view.data +
                    p->tokens * choices * dtype_bytes(program_real(p));

    return (struct choice){
        .chosen = (int32_t *)(void *)numbers, .choices = choices,
        .tokens = p->tokens * p->mesh.size[AXIS_EXPERT]};
}

/* Rows of this rank's entries in the order of experts, and rows that this rank
 * has for its experts. */
struct sending {
    struct choice_lists held;   /* of this rank's experts, of all sources */
    int64_t rows, sent;         /* here; of this rank's tokens */
    struct choice_lists own;    /* of this rank's tokens, of all experts */
    int32_t *tokens;            /* [sent] the token of each row that goes */
    int32_t *arrival;           /* [rows] where a row lies as it arrives:
                                 * source after source */
    int32_t *order;             /* [rows] which row is the n-th to arrive */
    int64_t *to, *from;         /* [ranks] rows for each, of each */
    char *rest;                 /* scratch behind them */
};

static size_t sending_room(const struct program *p,
                          const struct router_form *form)
{
    const size_t rows = (size_t)rows_most(p, form);
    const size_t ranks = (size_t)p->mesh.size[AXIS_EXPERT];

    return choice_lists_bytes((int64_t)ranks * entries_of(p, form),
                              form->experts) +
           choice_lists_bytes(entries_of(p, form), form->experts) +
           arena_aligned((size_t)entries_of(p, form) * sizeof(int32_t)) +
           2 * arena_aligned(rows * sizeof(int32_t)) +
           3 * arena_aligned(ranks * sizeof(int64_t));
}

static void *take(char **at, size_t bytes)
{
    void *memory = *at;

    *at += arena_aligned(bytes);
    return memory;
}

/* The ranks whose experts follow each other in `own`. */
static void count_sent(const struct program *p, struct sending *r)
{
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const int each = r->own.groups.experts / ranks;
    const int32_t *offsets = r->own.groups.offsets;

    for (int i = 0; i < ranks; i++)
        r->to[i] = offsets[(i + 1) * each] - offsets[i * each];
    r->sent = offsets[r->own.groups.experts];
    for (int64_t i = 0; i < r->sent; i++)
        r->tokens[i] = r->own.groups.entries[i] / r->own.groups.choices;
}

/* Each source sends the rows of an expert by position, one expert after the
 * other, so the n-th row of a source among those held is the n-th that comes of
 * it. */
static void find_arrivals(const struct program *p, struct sending *r,
                          int64_t entries, int64_t *next)
{
    const int ranks = p->mesh.size[AXIS_EXPERT];
    int64_t before = 0;

    memset(r->from, 0, (size_t)ranks * sizeof *r->from);
    for (int64_t i = 0; i < r->rows; i++)
        r->from[r->held.groups.entries[i] / entries]++;
    for (int i = 0; i < ranks; i++) {
        next[i] = before;
        before += r->from[i];
    }
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t at = next[r->held.groups.entries[i] / entries]++;

        r->arrival[i] = (int32_t)at;
        r->order[at] = (int32_t)i;
    }
}

static void sending_find(const struct step *step, struct run *run,
                        const struct choice *joined, struct sending *r)
{
    const struct program *p = run->program;
    const struct router_form *form = &step->set.experts.form;
    const int64_t entries = entries_of(p, form);
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const struct expert_span held = experts_held(p, form->experts);
    const struct expert_span all = {0, form->experts};
    const size_t bytes = (size_t)ranks * sizeof(int64_t);
    struct choice own = *joined;
    char *at = run->scratch;

    own.tokens = p->tokens;
    own.chosen += p->place.at[AXIS_EXPERT] * entries;
    choice_lists_make(joined, held.first, held.count, at, &r->held);
    at += choice_lists_bytes(ranks * entries, form->experts);
    choice_lists_make(&own, all.first, all.count, at, &r->own);
    at += choice_lists_bytes(entries, form->experts);
    r->rows = r->held.groups.offsets[held.count];
    CHECK(r->rows <= rows_most(p, form));
    r->tokens = take(&at, (size_t)entries * sizeof *r->tokens);
    r->arrival = take(&at, (size_t)rows_most(p, form) * sizeof *r->arrival);
    r->order = take(&at, (size_t)rows_most(p, form) * sizeof *r->order);
    r->to = take(&at, bytes);
    r->from = take(&at, bytes);
    count_sent(p, r);
    find_arrivals(p, r, entries, take(&at, bytes));
    r->rest = at;
}

/* ---- messages ---- */

static struct tensor flat(struct tensor view)
{
    return tensor_1d(view.data, view.dtype, tensor_count(&view));
}

/* Rows of this rank's tokens to the experts (`goes`), or back. The bytes that
 * the choices say are counted beside those of the group (proof/audit.h). */
static status swap_rows(struct run *run, struct sending *r, struct tensor mine,
                        struct tensor theirs, bool goes)
{
    const struct program *p = run->program;
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const int rank = p->place.at[AXIS_EXPERT];
    const int64_t width = mine.shape[1];
    struct comm_call call = {.kind = COMM_ALL_TO_ALL,
                             .algorithm = ALGORITHM_ORDERED};
    status result;

    CHECK(run->groups[AXIS_EXPERT] != NULL);
    for (int i = 0; i < ranks; i++) {
        r->to[i] *= width;
        r->from[i] *= width;
    }
    call.in = flat(goes ? mine : theirs);
    call.out = flat(goes ? theirs : mine);
    call.in_counts = goes ? r->to : r->from;
    call.out_counts = goes ? r->from : r->to;
    for (int i = 0; i < ranks; i++)
        if (i != rank)
            run->routed += call.in_counts[i] * dtype_bytes(mine.dtype);
    result = comm_run(run->groups[AXIS_EXPERT], &call);
    for (int i = 0; i < ranks; i++) {
        r->to[i] /= width;
        r->from[i] /= width;
    }
    return result;
}

static const struct kernels *kernels_of(const struct run *run,
                                        enum dtype dtype)
{
    return dtype == program_real(run->program) ? run->real : run->kernels;
}

/* out[i] = rows[index[i]]; index -1: +0. */
static status pick(struct run *run, struct tensor out, struct tensor rows,
                   const int32_t *index)
{
    if (out.shape[0] == 0) return OK;
    if (rows.shape[0] == 0) { /* no token of this rank has an expert */
        memset(out.data, 0, (size_t)tensor_count(&out) *
                                (size_t)dtype_bytes(out.dtype));
        return OK;
    }
    return kernels_of(run, out.dtype)->gather_rows(run->stream, out, false,
                                                   rows, index);
}

/* Room for rows behind the lists: this rank's, and those that arrive. */
struct travel { struct tensor mine, theirs; char *rest; };

static struct travel travel_of(const struct sending *r, enum dtype dtype,
                               int64_t width)
{
    char *at = r->rest;
    const size_t row = (size_t)(width * dtype_bytes(dtype));
    struct travel t;

    t.mine = tensor_2d(take(&at, (size_t)r->sent * row), dtype, r->sent,
                       width);
    t.theirs = tensor_2d(take(&at, (size_t)r->rows * row), dtype, r->rows,
                         width);
    t.rest = at;
    return t;
}

static size_t travel_room(const struct program *p,
                          const struct router_form *form, int64_t width)
{
    const size_t row = (size_t)(width * dtype_bytes(program_real(p)));

    return arena_aligned((size_t)entries_of(p, form) * row) +
           arena_aligned((size_t)rows_most(p, form) * row);
}

/* Those of the rows of a slot that exist under the routing of now. */
static struct tensor held_rows(const struct sending *r, struct tensor view,
                               int64_t width)
{
    return tensor_rows(choice_rows(view, width), 0, r->rows);
}

static status rows_go(struct run *run, struct sending *r, struct travel *t,
                      struct tensor to)
{
    TRY(swap_rows(run, r, t->mine, t->theirs, true));
    return pick(run, to, t->theirs, r->arrival);
}

static status rows_return(struct run *run, struct sending *r, struct travel *t,
                          struct tensor from)
{
    TRY(pick(run, t->theirs, from, r->order));
    return swap_rows(run, r, t->mine, t->theirs, false);
}

/* ---- send ---- */

/* Gates and numbers of this rank's tokens, and the numbers of all. */
static status join_choices(const struct step *step, struct run *run)
{
    const struct program *p = run->program;
    const struct choice own = choice_of(run, step, step->second);
    const struct tensor view = run_slot(run, step->aux);
    const int64_t entries = own.tokens * own.choices;
    const size_t gates = (size_t)(entries * dtype_bytes(program_real(p)));
    const struct comm_call call = {
        .kind = COMM_ALL_GATHER, .algorithm = ALGORITHM_ORDERED,
        .in = tensor_1d(own.chosen, DTYPE_I32, entries),
        .out = tensor_1d((char *)view.data + gates, DTYPE_I32,
                         entries * p->mesh.size[AXIS_EXPERT])};

    memcpy(view.data, own.gates.data, gates);
    return comm_run(run->groups[AXIS_EXPERT], &call);
}

/* The step as those behind it see it: the choices of all are the second. */
static struct step joined_step(const struct step *step)
{
    struct step joined = *step;

    joined.second = step->aux;
    return joined;
}

static status send_forward(const struct step *step, struct run *run)
{
    const struct step with = joined_step(step);
    const struct tensor x = run_slot(run, step->input);
    struct sending r;

    TRY(join_choices(step, run));
    const struct choice joined = joined_of(run, &with);

    sending_find(step, run, &joined, &r);
    struct travel t = travel_of(&r, x.dtype, x.shape[1]);

    TRY(pick(run, t.mine, x, r.tokens));
    return rows_go(run, &r, &t,
                   held_rows(&r, run_slot(run, step->output), x.shape[1]));
}

/* Tensor ranks have parts of each row's sum: rows stay apart until they are
 * added (dispatch.c). */
static status send_backward(const struct step *step, struct run *run)
{
    const struct program *p = run->program;
    const struct step with = joined_step(step);
    const struct tensor dx = run_gradient(run, step->input);
    const int64_t width = p->slots[step->input].width;
    const struct choice joined = joined_of(run, &with);
    const struct tensor from = run_gradient(run, step->output);
    struct sending r;

    sending_find(step, run, &joined, &r);
    struct travel t = travel_of(&r, from.dtype, width);

    TRY(rows_return(run, &r, &t, held_rows(&r, from, width)));
    if (program_tensor_ranks(p) > 1) {
        CHECK(!run->event->adds);
        return pick(run, choice_rows(dx, width), t.mine, r.own.places);
    }
    const struct experts_combine combine = {
        .y = dx, .rows = t.mine, .places = r.own.places,
        .numbers = joined.chosen + p->place.at[AXIS_EXPERT] *
                                       entries_of(p, &step->set.experts.form),
        .choices = joined.choices, .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};

    return run->kernels->experts_combine(run->stream, &combine);
}

static int64_t row_width(const struct step *step, const struct program *p)
{
    const bool sends = step->aux >= 0;

    return sends ? p->slots[step->input].width
                 : p->slots[step->output].width /
                       step->set.experts.form.choices;
}

static struct step_cost rows_cost(const struct step *step,
                                  const struct program *p)
{
    const int ranks = p->mesh.size[AXIS_EXPERT];
    const double bytes =
        (double)(entries_of(p, &step->set.experts.form) *
                 row_width(step, p) * dtype_bytes(p->dtype));

    return (struct step_cost){.bytes_moved = 4 * bytes,
                              .bytes_sent = bytes * (ranks - 1) / ranks};
}

static size_t rows_scratch(const struct step *step, const struct program *p)
{
    const struct router_form *form = &step->set.experts.form;
    const size_t entries = (size_t)entries_of(p, form);

    return sending_room(p, form) + travel_room(p, form, row_width(step, p)) +
           arena_aligned(entries * (size_t)dtype_bytes(program_real(p)));
}

/* How many bytes go follows from the choices; here, with equal shares. */
static void rows_exchange(const struct step *step, const struct program *p,
                          enum dtype dtype, struct layer_exchanges *out)
{
    const int64_t ranks = p->mesh.size[AXIS_EXPERT];

    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .what = "rows of experts",
        .kind = COMM_ALL_TO_ALL, .calls = 1, .routed = true,
        .bytes = entries_of(p, &step->set.experts.form) * (ranks - 1) / ranks *
                 row_width(step, p) * dtype_bytes(dtype)});
}

static void send_exchanges(const struct step *step, const struct program *p,
                           const struct exchange_case *at,
                           struct layer_exchanges *out)
{
    const int64_t ranks = p->mesh.size[AXIS_EXPERT];
    const int64_t entries = entries_of(p, &step->set.experts.form);

    if (exchange_forward(at)) {
        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_EXPERT, .kind = COMM_ALL_GATHER,
            .what = "choices of tokens", .calls = 1,
            .bytes = entries * (ranks - 1) * (int64_t)sizeof(int32_t)});
        rows_exchange(step, p, program_slot_dtype(p, step->input), out);
    } else if (exchange_backward(at)) {
        rows_exchange(step, p, program_gradient_dtype(p, step->output), out);
    }
}

static const struct layer layer_send = {
    .name = "send_rows", .kind = LAYER_RELAYOUT, .forward = send_forward,
    .backward_input = send_backward, .cost = rows_cost,
    .scratch = rows_scratch, .exchanges = send_exchanges,
    .keeps_aux_for_b = true};

slot expert_ranks_send(struct program *p, slot x, slot choice,
                       const struct experts_spec *spec, slot *joined)
{
    const int words =
        dtype_bytes(program_real(p)) / (int)sizeof(int32_t);
    const int step = program_add_step(p, &layer_send, x);
    const slot output = program_add_slot(
        p, layer_send.name,
        x < 0 ? 0 : p->slots[x].width * experts_rows_most(p, &spec->form),
        false);
    const slot aux = program_add_slot(
        p, "joined choices",
        (int64_t)spec->form.choices * (words + p->mesh.size[AXIS_EXPERT]),
        true);

    if (p->error != OK) return -1;
    p->steps[step].second = choice;
    p->steps[step].output = output;
    p->steps[step].aux = aux;
    p->steps[step].set.experts.form = spec->form;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->slots[output].layout = p->slots[aux].layout = p->slots[x].layout;
    p->slots[output].gathered = program_tensor_ranks(p) > 1;
    p->slots[aux].integer = true;
    *joined = aux;
    return output;
}

/* ---- return ---- */

static status return_forward(const struct step *step, struct run *run)
{
    const struct tensor y = run_slot(run, step->output);
    const int64_t width = row_width(step, run->program);
    const struct choice joined = joined_of(run, step);
    struct sending r;

    sending_find(step, run, &joined, &r);
    struct travel t = travel_of(&r, y.dtype, width);

    TRY(rows_return(run, &r, &t,
                    held_rows(&r, run_slot(run, step->input), width)));
    return pick(run, choice_rows(y, width), t.mine, r.own.places);
}

/* gate dy of each row that goes. */
static status scale_rows(struct run *run, const struct sending *r,
                         const struct travel *t, struct tensor dy,
                         const struct step *step)
{
    const int bytes = dtype_bytes(program_real(run->program));
    const char *gates = run_slot(run, step->second).data;
    const struct experts_combine call = {
        .y = t->mine, .rows = dy, .places = r->tokens, .numbers = r->tokens,
        .gates = t->rest, .choices = 1, .leaf_experts = 1};

    for (int64_t i = 0; i < r->sent; i++)
        memcpy(t->rest + i * bytes, gates + r->own.groups.entries[i] * bytes,
               (size_t)bytes);
    if (r->sent == 0) return OK;
    return run->kernels->experts_combine(run->stream, &call);
}

static status return_backward(const struct step *step, struct run *run)
{
    const struct tensor dy = run_gradient(run, step->output);
    const struct tensor to = run_gradient(run, step->input);
    const int64_t width = row_width(step, run->program);
    const struct choice joined = joined_of(run, step);
    struct sending r;

    CHECK(!run->event->adds);
    sending_find(step, run, &joined, &r);
    struct travel t = travel_of(&r, dy.dtype, width);

    TRY(scale_rows(run, &r, &t, dy, step));
    return rows_go(run, &r, &t, held_rows(&r, to, width));
}

static void return_exchanges(const struct step *step, const struct program *p,
                             const struct exchange_case *at,
                             struct layer_exchanges *out)
{
    if (exchange_forward(at))
        rows_exchange(step, p, program_slot_dtype(p, step->output), out);
    else if (exchange_backward(at))
        rows_exchange(step, p, program_gradient_dtype(p, step->output), out);
}

static const struct layer layer_return = {
    .name = "return_rows", .kind = LAYER_RELAYOUT, .forward = return_forward,
    .backward_input = return_backward, .cost = rows_cost,
    .scratch = rows_scratch, .exchanges = return_exchanges};

slot expert_ranks_return(struct program *p, slot rows, slot joined,
                         const struct experts_spec *spec)
{
    const int step = program_add_step(p, &layer_return, rows);
    const slot output = program_add_slot(
        p, layer_return.name, spec->down.rows * spec->form.choices, false);

    if (p->error != OK) return -1;
    p->steps[step].second = joined;
    p->steps[step].output = output;
    p->steps[step].set.experts.form = spec->form;
    p->slots[output].layout = p->slots[rows].layout;
    p->slots[output].gradient_width = spec->down.rows;
    return output;
}
