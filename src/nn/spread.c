/* SPDX-License-Identifier: Apache-2.0 */
/* spread.c - the experts of a mixture where ranks divide them: one step from
 * tokens to a row for each choice.
 *
 *   F   choices to all; then, turn by turn: x of each choice goes, gate and up,
 *       their product, down; rows come back
 *       (the first turn in two pieces: one travels while the other's products
 *       are made, here and in B)
 *   B   gate dy goes, the same backwards, gradients of x come back
 *   W   sums over the rows of each turn
 *
 * The rows of the first turn are kept: x, gate and up for B, gradients for W.
 * Further turns are sent again in B and W, and their products made again: they
 * are there where tokens choose one rank's experts far more than others'.
 *
 * A row is copied, not added up, so messages round nothing. Where several ranks
 * cut an expert, each gets the row, and returns its part of every sum; the
 * token's rank adds the parts, as tensor ranks do. */
#include <string.h>

#include "mesh/group.h"
#include "nn/expert_bias.h"
#include "nn/sending.h"
#include "nn/expert_sums.h"
#include "nn/quantized_experts.h"
#include "nn/straight.h"

/* Rooms in scratch behind the lists. */
enum { ROOM_MINE, ROOM_ALL, ROOM_THEIRS, ROOM_INNER, ROOM_OUT, ROOM_GATES,
       ROOM_X, ROOM_H, ROOM_DZ, ROOM_DH, ROOM_FEW, ROOMS };
struct rooms { size_t at[ROOMS + 1]; };

struct spread {
    const struct step *step;
    struct run *run;
    struct step up, down, bias; /* the step with one of its parameters */
    int64_t width, inner, rows; /* of x; of an expert; that there is room for */
    int number;                /* of this turn */
    struct sending s;
    struct turn turn;          /* of the piece, where there is one */
    struct sent_piece *piece;  /* NULL: the turn is made at once */
    int64_t row, own;          /* where the piece begins */
    struct rooms rooms;
};

static const struct router_form *form_of(const struct step *step)
{
    return &step->set.experts.form;
}

static bool has_turns(const struct step *step, const struct program *p)
{
    return experts_rows_bound(p, form_of(step)) <
           experts_rows_most(p, form_of(step));
}

static int64_t width_of(const struct step *step, const struct program *p)
{
    return p->params.items[step->param[0]].cols;
}

static int64_t inner_of(const struct step *step, const struct program *p)
{
    return p->params.items[step->param[1]].cols;
}

/* Operands of the larger one of two products in few bits. */
static size_t few_bytes(const struct step *step, const struct program *p,
                        int64_t rows)
{
    const struct step up = with_param(step, 0), down = with_param(step, 1);
    const size_t a = quantized_experts_bytes(&up, p, rows);
    const size_t b = quantized_experts_bytes(&down, p, rows);

    return a > b ? a : b;
}

static struct rooms rooms_of(const struct step *step, const struct program *p)
{
    const size_t real = (size_t)dtype_bytes(program_real(p));
    const size_t width = (size_t)width_of(step, p) * real;
    const size_t inner = (size_t)inner_of(step, p) * real;
    const size_t mine = (size_t)(program_slot_rows(p, step->input) *
                                 form_of(step)->choices * experts_cut(p));
    const size_t rows =
        (size_t)(p->tokens * experts_rows_bound(p, form_of(step)));
    const size_t later = has_turns(step, p) ? rows : 0;
    const size_t bytes[ROOMS] = {
        [ROOM_MINE] = mine * width, [ROOM_ALL] = mine * width,
        [ROOM_THEIRS] = rows * width, [ROOM_INNER] = rows * inner,
        [ROOM_OUT] = rows * width, [ROOM_GATES] = mine * real,
        [ROOM_X] = later * width, [ROOM_H] = 2 * later * inner,
        [ROOM_DZ] = later * width, [ROOM_DH] = 2 * later * inner,
        [ROOM_FEW] = few_bytes(step, p, (int64_t)rows)};
    struct rooms rooms = {{sending_bytes(p, form_of(step))}};

    for (int i = 0; i < ROOMS; i++)
        rooms.at[i + 1] = rooms.at[i] + arena_aligned(bytes[i]);
    return rooms;
}

static size_t spread_scratch(const struct step *step, const struct program *p)
{
    return rooms_of(step, p).at[ROOMS];
}

/* ---- where things lie ---- */

static struct tensor room(const struct spread *w, int which, int64_t rows,
                          int64_t width, enum dtype dtype)
{
    return tensor_2d((char *)w->run->scratch + w->rooms.at[which], dtype, rows,
                     width);
}

/* Rows of this turn: x and gradients of rows first, or of gate and up. The
 * first turn's are in aux, or in its gradient. */
static struct tensor kept(const struct spread *w, int which)
{
    const bool inner = which == ROOM_H || which == ROOM_DH;
    const enum dtype dtype = w->run->program->dtype;
    const int64_t width = inner ? 2 * w->inner : w->width;
    const struct tensor aux =
        which == ROOM_X || which == ROOM_H
            ? run_slot(w->run, w->step->aux)
            : run_gradient(w->run, w->step->aux);
    const int64_t before =
        (inner ? w->rows * w->width : 0) + w->row * width;

    if (w->number > 0) return room(w, which, w->turn.rows, width, dtype);
    return tensor_2d((char *)aux.data + before * dtype_bytes(dtype), dtype,
                     w->turn.rows, width);
}

/* Behind what is kept of the first turn in aux. */
static int32_t *joined_choices(const struct step *step, struct run *run)
{
    const struct program *p = run->program;
    const struct tensor aux = run_slot(run, step->aux);
    const int64_t all =
        p->tokens * form_of(step)->choices * experts_sources(p);

    return (int32_t *)aux.data + tensor_count(&aux) - all;
}

/* Rows [first, first + rows) of a room; pieces are apart in all types. */
static struct tensor rows_at(const struct spread *w, int which, int64_t first,
                             int64_t rows, enum dtype dtype)
{
    struct tensor view = room(w, which, rows, w->width, dtype);

    view.data = (char *)view.data +
                first * w->width * dtype_bytes(program_real(w->run->program));
    return view;
}

/* This rank's rows of the turn or piece that go, or come back; and those of
 * others, as they arrive. */
static struct tensor mine(const struct spread *w, enum dtype dtype)
{
    return rows_at(w, ROOM_MINE, w->own, w->turn.sent, dtype);
}

static struct tensor theirs(const struct spread *w, enum dtype dtype)
{
    return rows_at(w, ROOM_THEIRS, w->row, w->turn.rows, dtype);
}

static struct tensor all_mine(const struct spread *w, enum dtype dtype)
{
    return room(w, ROOM_ALL,
                (int64_t)w->s.own.groups.offsets[w->s.own.groups.experts] *
                    experts_cut(w->run->program), w->width, dtype);
}

/* The type in which rows return: ranks that cut an expert have parts of their
 * sums. */
static enum dtype returned(const struct program *p, enum dtype dtype)
{
    return experts_cut(p) > 1 ? program_real(p) : dtype;
}

/* Sets the rows of `own` that returned, each the sum of its parts. */
static status sum_parts(struct spread *w, enum dtype dtype, struct tensor *out)
{
    const struct program *p = w->run->program;
    const struct tensor all = all_mine(w, returned(p, dtype));
    const int64_t rows = all.shape[0] / experts_cut(p);

    *out = all.dtype == dtype ? tensor_rows(all, 0, rows)
                              : room(w, ROOM_MINE, rows, w->width, dtype);
    return expert_parts_add(w->run, all, experts_cut(p), *out);
}

static void spread_begin(struct spread *w, const struct step *step,
                         struct run *run)
{
    const struct program *p = run->program;

    *w = (struct spread){
        .step = step, .run = run, .up = with_param(step, 0),
        .down = with_param(step, 1), .bias = with_param(step, 2),
        .width = width_of(step, p), .inner = inner_of(step, p),
        .rows = p->tokens * experts_rows_bound(p, form_of(step)),
        .number = -1, .rooms = rooms_of(step, p)};
    sending_begin(&w->s, run, form_of(step), joined_choices(step, run));
}

static bool spread_next(struct spread *w)
{
    w->number++;
    return sending_next(&w->s, &w->turn);
}

/* ---- messages ---- */

/* mine to the holders, or theirs back: begins, where it is a piece. */
static status swap(struct spread *w, enum dtype dtype, bool goes)
{
    if (w->piece == NULL)
        return sending_swap(&w->s, mine(w, dtype), theirs(w, dtype), goes);
    return sending_start(&w->s, w->piece, mine(w, dtype), theirs(w, dtype),
                         goes);
}

static status wait(struct spread *w)
{
    return w->piece == NULL ? OK : sending_wait(w->piece);
}

/* Rows that have arrived, as rows of groups. */
static status rows_arrive(struct spread *w, struct tensor to)
{
    TRY(wait(w));
    return sending_pick(w->run, to, theirs(w, to.dtype),
                        w->s.arrival + w->row);
}

/* Rows of groups to the ranks of their tokens. */
static status rows_return(struct spread *w, struct tensor from)
{
    TRY(sending_pick(w->run, theirs(w, from.dtype), from,
                     w->s.order + w->row));
    return swap(w, from.dtype, false);
}

static status rows_settle(struct spread *w, enum dtype dtype)
{
    TRY(wait(w));
    if (w->piece == NULL)
        sending_place(&w->s, all_mine(w, dtype), mine(w, dtype));
    else
        sending_place_piece(&w->s, w->piece, all_mine(w, dtype),
                            mine(w, dtype));
    return OK;
}

static status go_x(struct spread *w)
{
    const struct tensor x = run_slot(w->run, w->step->input);

    TRY(sending_pick(w->run, mine(w, x.dtype), x, w->s.tokens + w->own));
    return swap(w, x.dtype, true);
}

/* gate dy of each choice, rounded once, as the product rounds it that has all
 * experts. */
static status go_dy(struct spread *w)
{
    const struct tensor dy = run_gradient(w->run, w->step->output);
    const struct choice own = choice_of(w->run, w->step, w->step->second);
    const size_t bytes = (size_t)dtype_bytes(own.gates.dtype);
    char *gates = (char *)w->run->scratch + w->rooms.at[ROOM_GATES];
    const int32_t *tokens = w->s.tokens + w->own;
    const struct experts_combine call = {
        .y = mine(w, dy.dtype), .rows = dy, .places = tokens,
        .numbers = tokens, .gates = gates, .choices = 1,
        .leaf_experts = 1};

    for (int64_t i = 0; i < w->turn.sent; i++)
        memcpy(gates + (size_t)i * bytes,
               (const char *)own.gates.data +
                   (size_t)w->s.entries[w->own + i] * bytes, bytes);
    if (w->turn.sent > 0)
        TRY(w->run->kernels->experts_combine(w->run->stream, &call));
    return swap(w, dy.dtype, true);
}

/* ---- products ---- */

static struct quantized_experts few_of(const struct spread *w,
                                       const struct step *one)
{
    return (struct quantized_experts){
        one, &w->turn.lists,
        (char *)w->run->scratch + w->rooms.at[ROOM_FEW], w->rows,
        w->run->program->tokens};
}

/* c = a times the matrices of a step's first parameter, whose own order of
 * sums is given. */
struct spread_product {
    const struct step *step;
    enum product_use use;
    struct tensor c, a, bias;
};
static status multiply(struct spread *w, const struct spread_product *of,
                       const struct sum_order *order)
{
    const struct tensor b = weights_of(of->step, w->run);
    const struct quantized_experts few = few_of(w, of->step);
    const struct experts_product call = {
        .groups = &w->turn.lists.groups, .c = of->c, .a = {.matrix = of->a},
        .bias = of->bias,
        .b = of->use == USE_FORWARD ? transposed(b) : b, .order = order};

    return quantized_experts_product(w->run, &few, of->use, &call);
}

static const struct param *param_of(const struct spread *w,
                                    const struct step *step)
{
    return &w->run->program->params.items[step->param[0]];
}

static status make_h(struct spread *w)
{
    const struct sum_order order = run_order_whole(w->run, w->width);
    const struct spread_product of = {&w->up, USE_FORWARD, kept(w, ROOM_H),
                                      kept(w, ROOM_X),
                                      expert_bias_of(&w->bias, 0, w->run)};

    return multiply(w, &of, &order);
}

static struct tensor inner_room(const struct spread *w)
{
    return room(w, ROOM_INNER, w->turn.rows, w->inner, w->run->program->dtype);
}

static struct straight_glu inner_glu(const struct spread *w)
{
    return (struct straight_glu){w->step, param_of(w, &w->down),
                                 kept(w, ROOM_H),
                                 room(w, ROOM_FEW, 1, 1, DTYPE_F32).data};
}

static status make_inner(struct spread *w)
{
    const struct straight_glu glu = inner_glu(w);

    return straight_glu(w->run, &glu, inner_room(w));
}

static status make_out(struct spread *w, struct tensor out)
{
    const struct sum_order order =
        run_order_cut(w->run, param_of(w, &w->down));
    const struct spread_product of = {&w->down, USE_FORWARD, out,
                                      inner_room(w), {0}};

    return multiply(w, &of, &order);
}

/* Gradients of gate and up; that of their product takes its room. */
static status make_dh(struct spread *w)
{
    const struct straight_glu glu = inner_glu(w);
    const struct sum_order order = run_order_whole(w->run, w->width);
    const struct spread_product of = {&w->down, USE_DGRAD, inner_room(w),
                                      kept(w, ROOM_DZ), {0}};

    TRY(multiply(w, &of, &order));
    TRY(straight_glu_back(w->run, &glu, inner_room(w)));
    return experts_gate_backward(w->step, w->run, kept(w, ROOM_DH),
                                 inner_room(w), kept(w, ROOM_H));
}

static status make_dx(struct spread *w, struct tensor out)
{
    const struct sum_order order = run_order_cut(w->run, param_of(w, &w->up));
    const struct spread_product of = {&w->up, USE_DGRAD, out,
                                      kept(w, ROOM_DH), {0}};

    return multiply(w, &of, &order);
}

/* ---- passes ---- */

/* The parts of a pass: rows go; products of those that have arrived, which
 * return; the type in which they do. */
struct parts {
    status (*go)(struct spread *w);
    status (*work)(struct spread *w, enum dtype dtype);
    enum dtype dtype;
};

static void use_piece(struct spread *w, int number)
{
    w->piece = &w->s.pieces[number];
    w->turn = w->piece->turn;
    w->row = w->piece->row;
    w->own = w->piece->own;
}

static status run_pieces(struct spread *w, const struct parts *parts)
{
    for (int k = 0; k < PIECES; k++) {
        use_piece(w, k);
        TRY(parts->go(w));
    }
    for (int k = 0; k < PIECES; k++) {
        use_piece(w, k);
        TRY(parts->work(w, parts->dtype));
    }
    for (int k = 0; k < PIECES; k++) {
        use_piece(w, k);
        TRY(rows_settle(w, parts->dtype));
    }
    return OK;
}

static status run_turn(struct spread *w, const struct parts *parts)
{
    const struct turn whole = w->turn;

    if (w->number > 0) {
        TRY(parts->go(w));
        TRY(parts->work(w, parts->dtype));
        return rows_settle(w, parts->dtype);
    }
    sending_cut(&w->s, &whole);
    const status result = sending_end(&w->s, run_pieces(w, parts));

    w->turn = whole;
    w->piece = NULL;
    w->row = w->own = 0;
    return result;
}

static status work_forward(struct spread *w, enum dtype dtype)
{
    const struct tensor out =
        room(w, ROOM_OUT, w->turn.rows, w->width, dtype);

    TRY(rows_arrive(w, kept(w, ROOM_X)));
    TRY(make_h(w));
    TRY(make_inner(w));
    TRY(make_out(w, out));
    return rows_return(w, out);
}

static status spread_forward(const struct step *step, struct run *run)
{
    const struct tensor y = run_slot(run, step->output);
    const struct parts parts = {go_x, work_forward,
                                returned(run->program, y.dtype)};
    const struct choice own = choice_of(run, step, step->second);
    struct tensor rows;
    struct spread w;

    TRY(sending_join(run, form_of(step), &own, joined_choices(step, run)));
    spread_begin(&w, step, run);
    while (spread_next(&w)) TRY(run_turn(&w, &parts));
    TRY(sum_parts(&w, y.dtype, &rows));
    return sending_pick(run, choice_rows(y, w.width), rows, w.s.own.places);
}

/* Whether tensor ranks have parts of each row's sum. */
static bool has_parts(const struct program *p)
{
    return program_tensor_ranks(p) > 1 && !experts_are_folded(p);
}

/* Where tensor ranks have parts of the sums, rows stay apart until they are
 * added (dispatch.c). */
static status set_dx(struct spread *w, enum dtype dtype)
{
    struct run *run = w->run;
    const struct step *step = w->step;
    const struct tensor dx = run_gradient(run, step->input);
    const struct choice own = choice_of(run, step, step->second);
    struct experts_combine combine = {
        .y = dx, .places = w->s.own.places, .numbers = own.chosen,
        .choices = own.choices,
        .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};

    TRY(sum_parts(w, dtype, &combine.rows));
    if (!has_parts(run->program))
        return run->kernels->experts_combine(run->stream, &combine);
    CHECK(!run->event->adds);
    return sending_pick(run, choice_rows(dx, w->width), combine.rows,
                        combine.places);
}

static enum dtype dx_dtype(const struct program *p)
{
    return has_parts(p) ? program_real(p) : p->dtype;
}

/* Rows of a further turn are sent again. */
static status again_h(struct spread *w)
{
    TRY(go_x(w));
    TRY(rows_arrive(w, kept(w, ROOM_X)));
    return make_h(w);
}

static status work_backward(struct spread *w, enum dtype dtype)
{
    const struct tensor dx = room(w, ROOM_OUT, w->turn.rows, w->width, dtype);

    TRY(rows_arrive(w, kept(w, ROOM_DZ)));
    if (w->number > 0) TRY(again_h(w));
    TRY(make_dh(w));
    TRY(make_dx(w, dx));
    return rows_return(w, dx);
}

static status spread_backward(const struct step *step, struct run *run)
{
    const enum dtype dtype = dx_dtype(run->program);
    const struct parts parts = {go_dy, work_backward,
                                returned(run->program, dtype)};
    struct spread w;

    spread_begin(&w, step, run);
    while (spread_next(&w)) TRY(run_turn(&w, &parts));
    return set_dx(&w, dtype);
}

/* The sums of one parameter: of a (gradients) and b. */
static status sum_rows(struct spread *w, const struct step *one,
                       struct tensor a, struct tensor b)
{
    const struct quantized_experts few = few_of(w, one);
    struct expert_operands of = {.lists = &w->turn.lists,
                                 .first = w->turn.first,
                                 .last = w->turn.last,
                                 .a.matrix = a, .b.matrix = b};

    if (b.data != NULL) /* biases sum what nobody rounded */
        TRY(quantized_experts_operands(w->run, &few, &of));
    return experts_weight(one, w->run, &of);
}

static status sum_turn(struct spread *w)
{
    if (w->turn.first == w->turn.last) return OK; /* the others' turn */
    if (w->bias.param[0] >= 0)
        TRY(sum_rows(w, &w->bias, kept(w, ROOM_DH), (struct tensor){0}));
    TRY(sum_rows(w, &w->up, kept(w, ROOM_DH), kept(w, ROOM_X)));
    TRY(make_inner(w));
    return sum_rows(w, &w->down, kept(w, ROOM_DZ), inner_room(w));
}

static status spread_weight(const struct step *step, struct run *run)
{
    struct spread w;

    spread_begin(&w, step, run);
    while (spread_next(&w)) {
        if (w.number > 0) {
            TRY(go_dy(&w));
            TRY(rows_arrive(&w, kept(&w, ROOM_DZ)));
            TRY(again_h(&w));
            TRY(make_dh(&w));
        }
        TRY(sum_turn(&w));
    }
    return OK;
}

/* ---- facts ---- */

static struct step_cost spread_cost(const struct step *step,
                                    const struct program *p)
{
    const int ranks = mesh_expert_ranks(&p->mesh);
    const int64_t rows =
        program_slot_rows(p, step->input) * form_of(step)->choices *
        experts_cut(p);
    const int64_t elements = p->params.items[step->param[0]].elements +
                             p->params.items[step->param[1]].elements;
    const int64_t width = width_of(step, p);
    const double bytes = (double)dtype_bytes(p->dtype);

    return (struct step_cost){
        .flops = 2 * (double)rows * (double)elements,
        .bytes_moved = (double)(rows * (6 * width + 5 * inner_of(step, p)) +
                                elements * step->each) * bytes,
        .bytes_sent = 2 * (double)(rows * width) * bytes * (ranks - 1) /
                      ranks};
}

/* How much goes follows from the choices; here, with equal shares. */
static void add_rows(const struct step *step, const struct program *p,
                     enum dtype dtype, struct layer_exchanges *out)
{
    const int64_t ranks = mesh_expert_ranks(&p->mesh);

    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .what = SENT_ROWS_OF_EXPERTS,
        .kind = COMM_ALL_TO_ALL, .calls = PIECES, .routed = true,
        .bytes = program_slot_rows(p, step->input) * form_of(step)->choices *
                 experts_cut(p) * (ranks - 1) / ranks * width_of(step, p) *
                 dtype_bytes(dtype)});
}

static void spread_exchanges(const struct step *step, const struct program *p,
                             const struct exchange_case *at,
                             struct layer_exchanges *out)
{
    const int64_t others = mesh_expert_ranks(&p->mesh) - 1;

    if (exchange_forward(at)) {
        layer_exchanges_add(out, p, (struct layer_exchange){
            .axis = AXIS_EXPERT, .kind = COMM_ALL_GATHER,
            .what = SENT_CHOICES_OF_TOKENS, .calls = 1,
            .bytes = program_slot_rows(p, step->input) *
                     form_of(step)->choices * others *
                     (int64_t)sizeof(int32_t)});
        add_rows(step, p, p->dtype, out);
        add_rows(step, p, returned(p, program_slot_dtype(p, step->output)),
                 out);
    } else if (exchange_backward(at)) {
        add_rows(step, p, p->dtype, out);
        add_rows(step, p, returned(p, dx_dtype(p)), out);
    }
}

#define SPREAD_PASSES \
    .name = "spread_experts", .kind = LAYER_EXPERTS, \
    .forward = spread_forward, .backward_input = spread_backward, \
    .backward_weight = spread_weight, .cost = spread_cost, \
    .scratch = spread_scratch, .exchanges = spread_exchanges, \
    .two_matrices = true, .aux_gradient = true

static const struct layer layer_spread = {SPREAD_PASSES};
/* Further turns send x again, and multiply again. */
static const struct layer layer_spread_turns = {
    SPREAD_PASSES, .keeps_input_for_b = true, .keeps_input_for_w = true,
    .keeps_output_gradient_for_w = true, .reads_in_w = true};

/* ---- building ---- */

/* Elements of 32 bits of a token in aux: what is kept of the first turn, and
 * the choices of all sources. */
static int64_t aux_width(const struct program *p,
                         const struct router_form *form, int64_t elements)
{
    const int64_t bytes = elements * dtype_bytes(p->dtype);
    const int64_t number = (int64_t)sizeof(int32_t);

    return (bytes + number - 1) / number +
           (int64_t)form->choices * experts_sources(p);
}

slot spread_experts(struct program *p, slot x, slot choice,
                    const struct experts_spec *spec)
{
    const struct router_form *form = &spec->form;
    const bool turns =
        experts_rows_bound(p, form) < experts_rows_most(p, form);
    const int step = program_add_step(
        p, turns ? &layer_spread_turns : &layer_spread, x);
    const slot output = program_add_slot(
        p, layer_spread.name, spec->down.rows * form->choices, false);
    const slot aux = program_add_slot(p, "rows of experts", 1, true);

    if (p->error != OK) return -1;
    p->steps[step].second = choice;
    p->steps[step].output = output;
    p->steps[step].aux = aux;
    p->steps[step].set.experts.form = *form;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->steps[step].set.experts.alpha = spec->alpha;
    p->steps[step].set.experts.limit = spec->limit;
    p->slots[output].layout = p->slots[aux].layout = p->slots[x].layout;
    p->slots[aux].layout.tokens &= ~(1u << AXIS_TENSOR);
    if (!experts_are_folded(p))
        p->slots[output].layout.partial |= 1u << AXIS_TENSOR;
    p->steps[step].few = quantized_applies(p, &spec->up);
    experts_params(p, step, 0, &spec->up, form->experts);
    /* In the order in which one rank declares them (experts.c). */
    if (p->error == OK && spec->up_bias.rows > 0)
        experts_params(p, step, 2, &spec->up_bias, form->experts);
    if (p->error == OK)
        experts_params(p, step, 1, &spec->down, form->experts);
    if (p->error != OK) return -1;
    const int64_t elements =
        experts_rows_bound(p, form) *
        (width_of(&p->steps[step], p) + 2 * inner_of(&p->steps[step], p));

    p->slots[aux].width = aux_width(p, form, elements);
    p->slots[aux].gradient_width = elements;
    p->slots[aux].integer = true;
    return output;
}
