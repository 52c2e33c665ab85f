/* SPDX-License-Identifier: Apache-2.0 */
/* expert_parallel.c - the experts of a mixture where ranks divide them: three
 * steps from tokens to a row for each choice.
 *
 *         go                  work                      settle
 *   F     choices to all;     gate and up, their        rows lie as the choices
 *         x of each choice    product, down; rows       do
 *         goes                come back
 *   B     gradients of x      the same backwards;       gate dy of each choice
 *         are added           gradients of x come back  goes
 *   W                         sums over the rows
 *
 * Rows travel from one step to the next, so what stands between two of them is
 * computed meanwhile: shared experts (nn_experts_beside), W, the other
 * micro-batch of a bundle (pass_beside.c). They go in two halves, and one
 * travels while work multiplies the other.
 *
 * The rows of the first turn are kept: x, gate and up for B, gradients for W.
 * Further turns go at once, in work; they are sent again in B and W, and their
 * products made again: they are there where tokens choose one rank's experts
 * far more than others'. */
#include "nn/expert_parallel.h"

#include "mesh/group.h"
#include "nn/expert_adapter.h"
#include "nn/quantized_operands.h"
#include "nn/row_codes.h"

static const struct router_form *form_of(const struct step *step)
{
    return &step->set.experts.form;
}

/* ---- go ---- */

static status go_forward(const struct step *step, struct run *run)
{
    const struct choice own = choice_of(run, step, step->second);
    const size_t gates = (size_t)(own.tokens * own.choices) *
                         (size_t)dtype_bytes(own.gates.dtype);
    struct spread w;

    if (sending_relays(run->program))
        TRY(sending_join(run, form_of(step), own.gates,
                         spread_gates(run, step->aux)));
    else
        TRY(device_copy(run->stream, spread_gates(run, step->aux),
                        own.gates.data, gates));
    TRY(sending_join(run, form_of(step),
                     tensor_1d(own.chosen, DTYPE_I32,
                               own.tokens * own.choices),
                     spread_joined(step, run, step->aux)));
    TRY(spread_begin(&w, step, run,
                     &(struct spread_slots){step->aux, step->output}));
    CHECK(spread_next(&w));
    for (int k = 0; k < EXPERT_HALVES; k++) {
        spread_use_half(&w, k);
        TRY(spread_go_x(&w, step->input));
    }
    return OK;
}

/* Where tensor ranks have parts of the sums, rows stay apart until they are
 * added (dispatch.c). */
static status go_backward(const struct step *step, struct run *run)
{
    const struct tensor dx = run_gradient(run, step->input);
    const struct choice own = choice_of(run, step, step->second);
    struct experts_combine combine = {
        .y = dx, .numbers = own.chosen, .choices = own.choices,
        .leaf_experts = step->set.experts.leaf,
        .left = run->event->adds ? &dx : NULL};
    struct spread w;

    TRY(spread_begin(&w, step, run,
                     &(struct spread_slots){step->aux, step->output}));
    TRY(spread_settle(&w, spread_has_parts(run->program)
                              ? program_real(run->program)
                              : run->program->dtype, &combine.rows));
    combine.places = w.s.own.places;
    if (!spread_has_parts(run->program))
        return run->kernels->experts_combine(run->stream, &combine);
    CHECK(!run->event->adds);
    return sending_pick(run, choice_rows(dx, w.width), combine.rows,
                        combine.places);
}

/* ---- work ---- */

static status begin_work(struct spread *w, const struct step *step,
                         struct run *run)
{
    TRY(spread_begin(w, step, run,
                     &(struct spread_slots){step->second, step->input}));
    CHECK(spread_next(w));
    return OK;
}

/* The rows of the first turn have come back. */
static status await_halves(struct spread *w)
{
    for (int k = 0; k < EXPERT_HALVES; k++)
        TRY(sending_wait(&w->s.halves[k]));
    return OK;
}

/* Products of those that have arrived, which return. */
static status work_rows(struct spread *w)
{
    const struct tensor out =
        spread_room(w, ROOM_OUT, w->turn.rows, w->width,
                    spread_way_dtype(w->run->program));

    TRY(spread_arrive_x(w, spread_kept(w, ROOM_X)));
    TRY(spread_save_x(w));
    TRY(spread_make_h(w));
    TRY(spread_save_h(w));
    TRY(spread_make_inner(w));
    TRY(spread_make_out(w, out));
    return spread_return(w, out);
}

static status work_forward(const struct step *step, struct run *run)
{
    struct spread w;

    TRY(begin_work(&w, step, run));
    for (int k = 0; k < EXPERT_HALVES; k++) {
        spread_use_half(&w, k);
        TRY(work_rows(&w));
    }
    spread_use_whole(&w);
    while (spread_next(&w)) {
        if (w.number == 1) TRY(await_halves(&w));
        TRY(spread_go_x(&w, step->source));
        TRY(work_rows(&w));
    }
    return OK;
}

/* Rows of a further turn are sent again. */
static status again_h(struct spread *w)
{
    TRY(spread_go_x(w, w->step->source));
    TRY(spread_arrive_x(w, spread_kept(w, ROOM_X)));
    return spread_make_h(w);
}

static status work_rows_back(struct spread *w)
{
    const struct tensor dx =
        spread_room(w, ROOM_OUT, w->turn.rows, w->width,
                    spread_way_dtype(w->run->program));

    TRY(spread_arrive_dz(w, spread_kept(w, ROOM_DZ)));
    if (w->number > 0) TRY(again_h(w));
    TRY(spread_round_h(w));
    TRY(spread_make_dh(w));
    TRY(spread_make_dx(w, dx));
    return spread_return(w, dx);
}

static status work_backward(const struct step *step, struct run *run)
{
    struct spread w;

    TRY(begin_work(&w, step, run));
    for (int k = 0; k < EXPERT_HALVES; k++) {
        spread_use_half(&w, k);
        TRY(work_rows_back(&w));
    }
    spread_use_whole(&w);
    while (spread_next(&w)) {
        if (w.number == 1) TRY(await_halves(&w));
        TRY(spread_go_dy(&w, step->result));
        TRY(work_rows_back(&w));
    }
    return OK;
}

static status work_weight(const struct step *step, struct run *run)
{
    struct spread w;

    TRY(spread_begin(&w, step, run,
                     &(struct spread_slots){step->second, -1}));
    while (spread_next(&w)) {
        if (w.number > 0) {
            TRY(spread_go_dy(&w, step->result));
            TRY(spread_arrive_dz(&w, spread_kept(&w, ROOM_DZ)));
            TRY(again_h(&w));
        }
        TRY(spread_round_h(&w));
        if (w.number > 0) TRY(spread_make_dh(&w));
        TRY(spread_sum_turn(&w));
    }
    return OK;
}

/* ---- settle ---- */

static status settle_forward(const struct step *step, struct run *run)
{
    const struct tensor y = run_slot(run, step->output);
    struct tensor rows;
    struct spread w;

    TRY(spread_begin(&w, step, run,
                     &(struct spread_slots){step->second, step->input}));
    TRY(spread_settle(&w, y.dtype, &rows));
    return sending_pick(run, choice_rows(y, w.width), rows, w.s.own.places);
}

static status settle_backward(const struct step *step, struct run *run)
{
    struct spread w;

    TRY(spread_begin(&w, step, run,
                     &(struct spread_slots){step->second, step->input}));
    CHECK(spread_next(&w));
    for (int k = 0; k < EXPERT_HALVES; k++) {
        spread_use_half(&w, k);
        TRY(spread_go_dy(&w, step->output));
    }
    return OK;
}

/* ---- facts ---- */

/* Rows that this rank sends, each way. */
static int64_t rows_sent(const struct step *step, const struct program *p)
{
    return sending_entries(p, form_of(step)) * experts_cut(p);
}

/* Half of what travels counts where it starts. */
static struct step_cost way_cost(const struct step *step,
                                 const struct program *p)
{
    const int ranks = mesh_expert_ranks(&p->layout.mesh);
    const double rows = (double)rows_sent(step, p);
    const double bytes =
        rows * (double)(step->set.experts.width * dtype_bytes(p->dtype));
    const double sent = rows * (double)spread_row_bytes(step, p, false);

    return (struct step_cost){
        .bytes_moved = 2 * bytes,
        .bytes_sent = step->aux >= 0 ? sent * (ranks - 1) / ranks : 0};
}

static struct step_cost work_cost(const struct step *step,
                                  const struct program *p)
{
    const int ranks = mesh_expert_ranks(&p->layout.mesh);
    const int64_t rows = rows_sent(step, p);
    const int64_t elements = p->params.items[step->param[0]].elements +
                             p->params.items[step->param[1]].elements +
                             expert_adapter_elements(step, p, EXPERT_UP) +
                             expert_adapter_elements(step, p, EXPERT_DOWN);
    const int64_t width = step->set.experts.width;
    const double bytes = (double)dtype_bytes(p->dtype);

    return (struct step_cost){
        .flops = 2 * (double)rows * (double)elements,
        .bytes_moved = (double)(rows * (2 * width +
                                        5 * step->set.experts.inner) +
                                elements * step->each) * bytes,
        .bytes_sent = (double)(rows * width) * bytes * (ranks - 1) / ranks};
}

/* Ranks that this one sends to, and those of them on other nodes. */
struct others { int64_t all, away; };

static struct others others_of(const struct program *p)
{
    const struct mesh *mesh = &p->layout.mesh;
    const int ranks = mesh_expert_ranks(mesh);
    const int own =
        mesh_expert_seat(mesh, mesh_expert_rank(mesh, &p->layout.place)).node;
    struct others others = {ranks - 1, 0};

    for (int m = 0; m < ranks; m++)
        others.away += mesh_expert_seat(mesh, m).node != own;
    return others;
}

/* Bytes of a row as it goes and, if it goes as codes, as it is. */
struct row_bytes { int64_t sent, plain; };

static struct row_bytes going_bytes(const struct step *step,
                                    const struct program *p, bool gradient)
{
    return (struct row_bytes){spread_row_bytes(step, p, gradient),
                              step->set.experts.width * dtype_bytes(p->dtype)};
}

/* Rows that come back. How much goes follows from the choices; here, with equal
 * shares. Further turns are not planned. */
static void add_rows(const struct step *step, const struct program *p,
                     struct row_bytes row, struct layer_exchanges *out)
{
    const int64_t ranks = mesh_expert_ranks(&p->layout.mesh);
    const struct others others = others_of(p);
    const int64_t rows = rows_sent(step, p);

    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .what = SENT_ROWS_OF_EXPERTS,
        .kind = COMM_ALL_TO_ALL, .calls = EXPERT_HALVES, .routed = true,
        .bytes = rows * others.all / ranks * row.sent,
        .between = rows * others.away / ranks * row.sent,
        .saved = rows * others.all / ranks * (row.plain - row.sent)});
}

/* Rows that go to their experts. Of n nodes (ranks) a token with equal shares
 * reaches another one with probability 1 - (1 - 1 / n)^choices. */
static void add_going(const struct step *step, const struct program *p,
                      bool gradient, struct layer_exchanges *out)
{
    const int nodes = mesh_expert_nodes(&p->layout.mesh);
    const int ranks = mesh_expert_ranks(&p->layout.mesh);
    const int choices = form_of(step)->choices;
    const struct row_bytes row = going_bytes(step, p, gradient);
    const double tokens = (double)sending_entries(p, form_of(step)) / choices;
    double node = 1, rank = 1;

    if (!sending_relays(p)) {
        add_rows(step, p, row, out);
        return;
    }
    for (int i = 0; i < choices * experts_cut(p); i++)
        rank *= 1 - 1.0 / ranks;
    for (int i = 0; i < choices; i++) node *= 1 - 1.0 / nodes;
    const int64_t across = (int64_t)(tokens * (nodes - 1) * (1 - node));
    const int64_t inside = (int64_t)(
        tokens * nodes * (ranks / nodes - 1) * (1 - rank));

    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .what = SENT_ROWS_OF_EXPERTS,
        .kind = COMM_ALL_TO_ALL, .calls = EXPERT_HALVES, .routed = true,
        .bytes = (across + inside) * row.sent,
        .between = across * row.sent,
        .saved = (across + inside) * (row.plain - row.sent)});
}

static void go_exchanges(const struct step *step, const struct program *p,
                         const struct exchange_case *at,
                         struct layer_exchanges *out)
{
    const struct joined sent = sending_joined(p, form_of(step));
    const bool gates = sending_relays(p);
    const int64_t each = (int64_t)sizeof(int32_t) +
                         (gates ? dtype_bytes(program_real(p)) : 0);

    if (!exchange_forward(at)) return;
    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .kind = COMM_ALL_GATHER,
        .what = SENT_CHOICES_OF_TOKENS, .calls = gates ? 2 : 1,
        .bytes = each * sent.all, .between = each * sent.between});
    add_going(step, p, false, out);
}

static struct expert_adapter_sum sum_of(const struct step *step,
                                        const struct program *p, int side)
{
    return (struct expert_adapter_sum){step, (enum expert_side)side,
                                       p->size.tokens *
                                           experts_rows_bound(p, form_of(step)),
                                       rows_sent(step, p), EXPERT_HALVES};
}

/* W sends rows of further turns again. */
static void add_again(struct layer_exchanges *out, const struct program *p)
{
    layer_exchanges_add(out, p, (struct layer_exchange){
        .axis = AXIS_EXPERT, .what = SENT_ROWS_OF_EXPERTS,
        .kind = COMM_ALL_TO_ALL, .routed = true});
}

static void work_exchanges(const struct step *step, const struct program *p,
                           const struct exchange_case *at,
                           struct layer_exchanges *out)
{
    const int64_t row =
        step->set.experts.width * dtype_bytes(spread_way_dtype(p));

    if (exchange_forward(at) || exchange_backward(at))
        add_rows(step, p, (struct row_bytes){row, row}, out);
    for (int side = EXPERT_UP; side <= EXPERT_DOWN; side++) {
        const struct expert_adapter_sum sum = sum_of(step, p, side);

        expert_adapter_exchanges(&sum, p, at, out);
    }
    if (at->event->pass == PASS_BACKWARD_WEIGHT) add_again(out, p);
    for (int i = 0; i < out->count; i++)
        out->items[i].further = out->items[i].axis == AXIS_EXPERT;
}

static size_t work_messages(const struct step *step, const struct program *p,
                            const struct group *tensor)
{
    size_t most = 0;

    for (int side = EXPERT_UP; side <= EXPERT_DOWN; side++) {
        const struct expert_adapter_sum sum = sum_of(step, p, side);
        const size_t bytes = expert_adapter_messages(&sum, p, tensor);

        if (bytes > most) most = bytes;
    }
    return most;
}

static void settle_exchanges(const struct step *step, const struct program *p,
                             const struct exchange_case *at,
                             struct layer_exchanges *out)
{
    if (exchange_backward(at)) add_going(step, p, true, out);
}

static const struct layer layer_go = {
    .name = "experts_go", .kind = LAYER_EXPERTS, .forward = go_forward,
    .backward_input = go_backward, .cost = way_cost,
    .scratch = spread_scratch, .exchanges = go_exchanges,
    .keeps_aux_for_b = true, .starts_forward = true};

#define WORK_PASSES \
    .name = "experts_work", .kind = LAYER_EXPERTS, \
    .forward = work_forward, .backward_input = work_backward, \
    .backward_weight = work_weight, .cost = work_cost, \
    .scratch = spread_scratch, .exchanges = work_exchanges, \
    .messages = work_messages, \
    .in_place = true, .two_matrices = true, .aux_gradient = true, \
    .starts_forward = true, .starts_backward = true

static const struct layer layer_work = {WORK_PASSES};
/* Further turns send x again, and multiply again; gradients of adapters read
 * their matrices. */
static const struct layer layer_work_again = {WORK_PASSES,
                                              .reads_in_w = true};

static const struct layer layer_settle = {
    .name = "experts_settle", .kind = LAYER_EXPERTS,
    .forward = settle_forward, .backward_input = settle_backward,
    .cost = way_cost, .scratch = spread_scratch,
    .exchanges = settle_exchanges, .starts_backward = true};

/* ---- building ---- */

/* Adapters read rows as they are, and so do gates that a rank with experts
 * applies to what came once to its node. */
static bool is_coded(const struct program *p, const struct experts_spec *spec,
                     bool gradient)
{
    return quantized_applies(p, &spec->up) &&
           spec->up_adapter.pieces + spec->down_adapter.pieces == 0 &&
           !(gradient && sending_relays(p)) &&
           row_codes_of(&p->precision, gradient, spec->down.rows) != NULL;
}

static int add_step(struct program *p, const struct layer *layer, slot x,
                    const struct experts_spec *spec)
{
    const int step = program_add_step(p, layer, x);

    if (p->error != OK) return -1;
    p->steps[step].set.experts.form = spec->form;
    p->steps[step].set.experts.leaf = spec->leaf;
    p->steps[step].set.experts.alpha = spec->alpha;
    p->steps[step].set.experts.limit = spec->limit;
    p->steps[step].set.experts.gelu = spec->gelu;
    p->steps[step].set.experts.width = spec->down.rows;
    for (int i = 0; i < 2; i++)
        p->steps[step].set.experts.codes[i] = is_coded(p, spec, i > 0);
    return step;
}

/* A slot of all tokens of the source, in words of 32 bits. */
static slot add_words(struct program *p, slot x, const char *name)
{
    const slot which = program_add_slot(p, name, 1, true);

    if (p->error != OK) return -1;
    program_lay_as(p, which, x);
    p->slots[which].layout.tokens &= ~(1u << AXIS_TENSOR);
    p->slots[which].dtype = DTYPE_I32;
    return which;
}

static slot add_go(struct program *p, slot x, slot choice,
                   const struct experts_spec *spec)
{
    const int step = add_step(p, &layer_go, x, spec);
    const slot way = add_words(p, x, "rows under way");
    const slot joined = add_words(p, x, "choices of all sources");

    if (p->error != OK) return -1;
    p->steps[step].second = choice;
    p->steps[step].output = way;
    p->steps[step].aux = joined;
    p->slots[joined].width = spread_joined_width(&p->steps[step], p);
    p->slots[way].width = spread_way_width(&p->steps[step], p);
    p->slots[way].gradient_width =
        (p->slots[way].width * (int64_t)sizeof(int32_t) +
         dtype_bytes(p->dtype) - 1) / dtype_bytes(p->dtype);
    return way;
}

static void add_work(struct program *p, int go,
                     const struct experts_spec *spec)
{
    const struct router_form *form = &spec->form;
    const slot way = p->steps[go].output;
    const bool adapted =
        spec->up_adapter.pieces + spec->down_adapter.pieces > 0;
    const int step =
        add_step(p, adapted ? &layer_work_again : &layer_work, way, spec);
    const slot kept = add_words(p, way, "rows of experts");

    if (p->error != OK) return;
    p->steps[step].second = p->steps[go].aux;
    p->steps[step].output = way;
    p->steps[step].aux = kept;
    p->steps[step].few = quantized_applies(p, &spec->up);
    experts_params(p, step, 0, &spec->up, form->experts);
    /* In the order in which one rank declares them (experts.c). */
    if (p->error == OK && spec->up_bias.rows > 0)
        experts_params(p, step, 2, &spec->up_bias, form->experts);
    expert_adapter_params(p, step, EXPERT_UP, spec);
    if (p->error == OK)
        experts_params(p, step, 1, &spec->down, form->experts);
    expert_adapter_params(p, step, EXPERT_DOWN, spec);
    if (p->error != OK) return;
    struct step *work = &p->steps[step];

    work->set.experts.inner = p->params.items[work->param[1]].cols;
    const int64_t elements =
        work->set.experts.width + 2 * work->set.experts.inner;
    const int64_t words = (int64_t)sizeof(int32_t);

    p->slots[kept].bound = experts_rows_bound(p, form);
    const int64_t row_words = p->size.tokens * p->slots[kept].bound * words;

    p->slots[kept].width =
        (spread_kept_bytes(work, p) + row_words - 1) / row_words;
    p->slots[kept].gradient_width = elements;
    if (!spread_has_turns(work, p)) return;
    work->layer = &layer_work_again;
    work->source = p->steps[go].input;
}

slot spread_experts(struct program *p, slot x, slot choice,
                    const struct experts_spec *spec)
{
    const int go = p->step_count;
    const slot way = add_go(p, x, choice, spec);

    if (p->error == OK) add_work(p, go, spec);
    const int step = p->error == OK ? add_step(p, &layer_settle, way, spec)
                                    : -1;
    const slot output = program_add_slot(
        p, layer_settle.name, spec->down.rows * spec->form.choices, false);

    if (p->error != OK) return -1;
    p->steps[step].second = p->steps[go].aux;
    p->steps[step].output = output;
    if (p->steps[go + 1].source >= 0) p->steps[go + 1].result = output;
    program_lay_as(p, output, x);
    if (!experts_are_folded(p))
        program_set_partial(p, output, AXIS_TENSOR);
    return output;
}

/* The last step adds, and stays. */
slot nn_add_shared(struct program *p, slot y, slot shared, int first, int down)
{
    int at = first - 1;

    if (p->error != OK || !experts_are_spread(p))
        return nn_add(p, y, shared);
    const slot sum = nn_add_later(p, y, shared);

    if (p->error != OK) return -1;
    while (p->steps[at].layer != &layer_go) at--;
    at++; /* work, and behind it what comes before `down` */
    program_swap(p, at, first, down);
    at += down - first + 1; /* settle */
    program_swap(p, at, down, p->step_count - 1);
    return sum;
}
