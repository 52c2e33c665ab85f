/* SPDX-License-Identifier: Apache-2.0 */
/* expert_parallel_rows.c - where the rows of experts lie that ranks divide, and
 * how they travel.
 *
 *   slot of rows under way   counts of the calls, this rank's rows, others'
 *   slot of joined choices   gates of this rank, experts of all sources
 *   kept rows                x, gate and up; gradients of rows, of gate and up
 *
 * A row is copied, not added up, so messages round nothing. Where several ranks
 * cut an expert, each gets the row, and returns its part of every sum; the
 * token's rank adds the parts, as tensor ranks do. */
#include "nn/expert_parallel.h"

#include "nn/expert_adapter.h"
#include "nn/glu_codes.h"
#include "nn/quantized_experts.h"
#include "nn/row_codes.h"

static const struct router_form *form_of(const struct step *step)
{
    return &step->set.experts.form;
}

bool spread_has_turns(const struct step *step, const struct program *p)
{
    return experts_rows_bound(p, form_of(step)) <
           experts_rows_most(p, form_of(step));
}

bool spread_has_parts(const struct program *p)
{
    return program_tensor_ranks(p) > 1 && !experts_are_folded(p);
}

enum dtype spread_way_dtype(const struct program *p)
{
    return experts_cut(p) > 1 || spread_has_parts(p) ? program_real(p)
                                                     : p->dtype;
}

/* How rows are coded that go; NULL: they are not. */
static const struct precision_role *coded(const struct step *step,
                                          const struct program *p,
                                          bool gradient)
{
    return step->set.experts.codes[gradient]
               ? row_codes_of(&p->precision, gradient, step->set.experts.width)
               : NULL;
}

int64_t spread_row_bytes(const struct step *step, const struct program *p,
                         bool gradient)
{
    const struct precision_role *role = coded(step, p, gradient);
    const int64_t width = step->set.experts.width;

    return role != NULL ? row_codes_bytes(role, width)
                        : width * dtype_bytes(p->dtype);
}

/* ---- rooms ---- */

/* Operands of the larger one of two products in few bits. */
static size_t few_bytes(const struct step *step, const struct program *p,
                        int64_t rows)
{
    const struct step up = with_param(step, 0), down = with_param(step, 1);
    const size_t a = quantized_experts_bytes(&up, p, rows);
    const size_t b = quantized_experts_bytes(&down, p, rows);

    return a > b ? a : b;
}

/* The bytes beside two adapters. */
static size_t beside_bytes(const struct step *step, const struct program *p,
                           int64_t rows)
{
    const size_t a = expert_adapter_bytes(step, p, EXPERT_UP, rows);
    const size_t b = expert_adapter_bytes(step, p, EXPERT_DOWN, rows);

    return a > b ? a : b;
}

/* Rows that this rank sends, and for which it has room. */
static int64_t rows_mine(const struct step *step, const struct program *p)
{
    return sending_entries(p, form_of(step)) * experts_cut(p);
}

static int64_t rows_held(const struct step *step, const struct program *p)
{
    return p->size.tokens * experts_rows_bound(p, form_of(step));
}

/* Lists and rows of a relay of a turn that goes at once. */
static size_t relay_bytes(const struct step *step, const struct program *p)
{
    return sending_relay_bytes(p, form_of(step)) +
           sending_room_bytes(p, form_of(step),
                              step->set.experts.width * dtype_bytes(p->dtype));
}

/* Rows before they are coded, or decoded, at once. */
static size_t rows_plain(const struct step *step, const struct program *p,
                         size_t mine, size_t theirs)
{
    if (coded(step, p, false) == NULL && coded(step, p, true) == NULL)
        return 0;
    return mine > theirs ? mine : theirs;
}

static const struct param *up_of(const struct step *step,
                                 const struct program *p)
{
    return &p->params.items[step->param[0]];
}

bool spread_codes_h(const struct step *step, const struct program *p)
{
    return step->few && p->precision.recipe.glu.format != FORMAT_BF16;
}

/* Spans and largest magnitudes of gate and up, and codes of a further turn. */
static size_t glu_bytes(const struct step *step, const struct program *p,
                        size_t rows)
{
    if (step->param[0] < 0 || !spread_codes_h(step, p)) return 0;
    return glu_rows_room(p, up_of(step, p), (int64_t)rows) +
           (size_t)glu_rows_bytes(p, up_of(step, p), (int64_t)rows);
}

/* Each step has the rooms that it uses. */
static struct rooms rooms_of(const struct step *step, const struct program *p)
{
    const bool works = step->param[0] >= 0;
    const size_t real = (size_t)dtype_bytes(program_real(p));
    const size_t width = (size_t)step->set.experts.width * real;
    const size_t inner = (size_t)step->set.experts.inner * real;
    const size_t mine = (size_t)rows_mine(step, p);
    const size_t rows = works ? (size_t)rows_held(step, p) : 0;
    const size_t later = works && spread_has_turns(step, p) ? rows : 0;
    const size_t again = later > 0 ? mine : 0;
    const size_t glu = glu_bytes(step, p, rows);
    const size_t plain = rows_plain(step, p, works ? again : mine, rows);
    const size_t bytes[ROOMS] = {
        [ROOM_MINE] = again * width, [ROOM_THEIRS] = later * width,
        [ROOM_ALL] = works ? 0 : mine * width,
        [ROOM_SUM] = works ? 0 : mine * width, [ROOM_INNER] = rows * inner,
        [ROOM_OUT] = rows * width,
        [ROOM_GATES] = (sending_relays(p) ? rows : works ? again : mine) *
                       real,
        [ROOM_RELAY] = later > 0 ? relay_bytes(step, p) : 0,
        [ROOM_X] = later * width, [ROOM_GLU] = glu,
        [ROOM_H] = 2 * (glu > 0 ? rows : later) * inner,
        [ROOM_DZ] = later * width, [ROOM_DH] = 2 * later * inner,
        [ROOM_BESIDE] = works ? beside_bytes(step, p, (int64_t)rows) : 0,
        [ROOM_FEW] = works ? few_bytes(step, p, (int64_t)rows) : 0,
        [ROOM_PLAIN] = plain * (size_t)(step->set.experts.width *
                                       dtype_bytes(p->dtype)),
        [ROOM_CODING] = plain > 0 ? row_codes_scratch((int64_t)plain) : 0};
    struct rooms rooms = {{sending_bytes(p, form_of(step))}};

    for (int i = 0; i < ROOMS; i++)
        rooms.at[i + 1] = rooms.at[i] + arena_aligned(bytes[i]);
    return rooms;
}

size_t spread_scratch(const struct step *step, const struct program *p)
{
    return rooms_of(step, p).at[ROOMS];
}

struct tensor spread_room(const struct spread *w, int which, int64_t rows,
                          int64_t width, enum dtype dtype)
{
    return tensor_2d((char *)w->run->scratch + w->rooms.at[which], dtype, rows,
                     width);
}

/* ---- slots ---- */

static int64_t words_of(size_t bytes, const struct program *p)
{
    const size_t each = (size_t)p->size.tokens * sizeof(int32_t);

    return (int64_t)((bytes + each - 1) / each);
}

/* Where parts of the slot of rows under way begin. */
struct way { size_t mine, theirs, relay, all; };

static struct way way_of(const struct step *step, const struct program *p)
{
    const size_t row = (size_t)step->set.experts.width *
                       (size_t)dtype_bytes(spread_way_dtype(p));
    struct way way = {.mine = sending_counts_bytes(p, form_of(step))};

    way.theirs = way.mine + arena_aligned((size_t)rows_mine(step, p) * row);
    way.relay = way.theirs + arena_aligned((size_t)rows_held(step, p) * row);
    way.all = way.relay +
              sending_room_bytes(p, form_of(step), step->set.experts.width *
                                                       dtype_bytes(p->dtype));
    return way;
}

int64_t spread_way_width(const struct step *step, const struct program *p)
{
    return words_of(way_of(step, p).all, p);
}

/* Gates that this rank has: its own, or all. */
static int64_t gates_count(const struct step *step, const struct program *p)
{
    const int sources = sending_relays(p) ? experts_sources(p) : 1;

    return p->size.tokens * form_of(step)->choices * sources;
}

static size_t gates_bytes(const struct step *step, const struct program *p)
{
    return (size_t)gates_count(step, p) *
           (size_t)dtype_bytes(program_real(p));
}

int64_t spread_joined_width(const struct step *step, const struct program *p)
{
    return words_of(gates_bytes(step, p), p) +
           (int64_t)form_of(step)->choices * experts_sources(p);
}

void *spread_gates(struct run *run, slot joined)
{
    return run_slot(run, joined).data;
}

int32_t *spread_joined(const struct step *step, struct run *run, slot joined)
{
    return (int32_t *)(void *)((char *)run_slot(run, joined).data +
                               gates_bytes(step, run->program));
}

/* Bytes of x as codes; 0: it is kept as it is. */
static int64_t saved_x_bytes(const struct step *step, const struct program *p)
{
    const struct step up = with_param(step, 0);

    if (!p->precision.saved || !step->few ||
        expert_adapter_is(step, EXPERT_UP) ||
        expert_adapter_is(step, EXPERT_DOWN))
        return 0;
    return (int64_t)arena_aligned(
        (size_t)saved_experts_bytes(p, &up, rows_held(step, p)));
}

bool spread_saves(const struct step *step, const struct program *p)
{
    return saved_x_bytes(step, p) > 0;
}

/* Before gate and up. */
static int64_t kept_x_bytes(const struct step *step, const struct program *p)
{
    return spread_saves(step, p)
               ? saved_x_bytes(step, p)
               : rows_held(step, p) * step->set.experts.width *
                     dtype_bytes(p->dtype);
}

int64_t spread_kept_bytes(const struct step *step, const struct program *p)
{
    const int64_t rows = rows_held(step, p);

    return kept_x_bytes(step, p) +
           (spread_codes_h(step, p)
                ? glu_rows_bytes(p, up_of(step, p), rows)
                : rows * 2 * step->set.experts.inner * dtype_bytes(p->dtype));
}

void *spread_h_codes(const struct spread *w)
{
    return (char *)run_slot(w->run, w->step->aux).data +
           kept_x_bytes(w->step, w->run->program);
}

/* The first turn's are in aux, or in its gradient; x that becomes codes is
 * where results will be. */
struct tensor spread_kept(const struct spread *w, int which)
{
    const struct program *p = w->run->program;
    const bool inner = which == ROOM_H || which == ROOM_DH;
    const enum dtype dtype = p->dtype;
    const int64_t width = inner ? 2 * w->inner : w->width;
    const int64_t other = which == ROOM_H
                              ? kept_x_bytes(w->step, p)
                              : w->rows * w->width * dtype_bytes(dtype);
    const int64_t before = (inner ? other : 0) +
                           w->row * width * dtype_bytes(dtype);

    if (w->number > 0 || (which == ROOM_H && spread_codes_h(w->step, p)))
        return spread_room(w, which, w->turn.rows, width, dtype);
    if (which == ROOM_X && spread_saves(w->step, p))
        return spread_room(w, ROOM_OUT, w->turn.rows, width, dtype);
    const struct tensor aux =
        which == ROOM_X || which == ROOM_H
            ? run_slot(w->run, w->step->aux)
            : run_gradient(w->run, w->step->aux);

    return tensor_2d((char *)aux.data + before, dtype, w->turn.rows, width);
}

/* Rows [first, first + rows); halves are apart in all types. */
static struct tensor rows_at(const struct spread *w, char *base, int64_t first,
                             int64_t rows, enum dtype dtype)
{
    const int each = dtype_bytes(spread_way_dtype(w->run->program));

    return tensor_2d(base + first * w->width * each, dtype, rows, w->width);
}

/* This rank's rows of the turn or half that go, or come back; and those of
 * others, as they arrive. */
static struct tensor mine(const struct spread *w, enum dtype dtype)
{
    return rows_at(w, w->mine, w->before + w->own, w->turn.sent, dtype);
}

static struct tensor theirs(const struct spread *w, enum dtype dtype)
{
    return rows_at(w, w->theirs, w->row, w->turn.rows, dtype);
}

/* ---- turns ---- */

/* The relay of a turn that goes at once lies in scratch, and so does its
 * room. */
static void use_relay(struct spread *w)
{
    const struct program *p = w->run->program;
    const size_t first = w->rooms.at[ROOM_RELAY];
    const size_t lists = sending_relay_bytes(p, form_of(w->step));

    if (!sending_relays(p) || w->rooms.at[ROOM_RELAY + 1] == first) return;
    w->s.relay.turn =
        sending_relay_lie(&w->s, (char *)w->run->lists + first);
    w->s.relay.room = (char *)w->run->scratch + first + lists;
    w->s.relay.room_bytes = w->rooms.at[ROOM_RELAY + 1] - first - lists;
}

/* Rows of this pass: under way in the slot, or in scratch, where there is
 * none. */
static void find_rows(struct spread *w, slot way)
{
    struct run *run = w->run;
    const struct way lie = way_of(w->step, run->program);

    if (way < 0) {
        w->mine = (char *)run->scratch + w->rooms.at[ROOM_MINE];
        w->theirs = (char *)run->scratch + w->rooms.at[ROOM_THEIRS];
        use_relay(w);
        return;
    }
    char *at = run->event->pass == PASS_BACKWARD_INPUT
                   ? run_gradient(run, way).data : run_slot(run, way).data;

    sending_counts_lie(&w->s, run->stream->device == NULL ? at : run->counts);
    w->mine = at + lie.mine;
    w->theirs = at + lie.theirs;
    w->s.relay.room = at + lie.relay;
    w->s.relay.room_bytes = lie.all - lie.relay;
}

/* The joined choices as the host reads them. */
static status read_joined(const struct spread *w, int32_t **joined)
{
    const struct program *p = w->run->program;
    struct choice all = {.choices = form_of(w->step)->choices,
                         .tokens = p->size.tokens * experts_sources(p),
                         .slot = -1};

    all.chosen = spread_joined(w->step, w->run, w->joined);
    TRY(choice_read(w->run, &all));
    *joined = all.chosen;
    return OK;
}

status spread_begin(struct spread *w, const struct step *step,
                    struct run *run, const struct spread_slots *slots)
{
    const struct program *p = run->program;
    int32_t *joined = NULL;

    *w = (struct spread){
        .step = step, .run = run, .up = with_param(step, 0),
        .down = with_param(step, 1), .bias = with_param(step, 2),
        .width = step->set.experts.width, .inner = step->set.experts.inner,
        .rows = rows_held(step, p), .joined = slots->joined, .number = -1,
        .rooms = rooms_of(step, p)};
    w->saved.rows = w->rows;
    TRY(read_joined(w, &joined));
    sending_begin(&w->s, run, form_of(step), joined);
    find_rows(w, slots->way);
    return OK;
}

bool spread_next(struct spread *w)
{
    w->before += w->turn.sent;
    w->number++;
    if (!sending_next(&w->s, &w->turn)) return false;
    w->whole = w->turn;
    if (w->number == 0) sending_cut(&w->s, &w->whole);
    return true;
}

void spread_use_half(struct spread *w, int number)
{
    w->half = &w->s.halves[number];
    w->turn = w->half->turn;
    w->row = w->half->row;
    w->own = w->half->own;
}

void spread_use_whole(struct spread *w)
{
    w->turn = w->whole;
    w->half = NULL;
    w->row = w->own = 0;
    use_relay(w);
}

/* ---- messages ---- */

/* mine to the holders, or theirs back: begins, where it is a half. */
static status swap(struct spread *w, struct tensor own, struct tensor others,
                   bool goes)
{
    if (w->half == NULL) return sending_swap(&w->s, own, others, goes);
    return sending_start(&w->s, w->half, own, others, goes);
}

/* Rows where messages find them, as codes: a row has spread_row_bytes. */
static struct tensor as_codes(const struct spread *w, struct tensor rows,
                              bool gradient)
{
    return tensor_2d(rows.data, DTYPE_U8, rows.shape[0],
                     spread_row_bytes(w->step, w->run->program, gradient));
}

static void *coding_room(const struct spread *w)
{
    return spread_room(w, ROOM_CODING, 1, 1, DTYPE_F32).data;
}

/* Where rows are made that go from `to`: there, or in scratch. */
static struct tensor made_in(const struct spread *w, struct tensor to,
                             bool gradient)
{
    if (coded(w->step, w->run->program, gradient) == NULL) return to;
    return spread_room(w, ROOM_PLAIN, to.shape[0], w->width, to.dtype);
}

/* Encodes the rows `made`: *to becomes the codes that are sent, *from the room
 * for codes that arrive. Both stay as they are if rows travel plain. */
static status encode(struct spread *w, bool gradient, struct tensor made,
                     struct tensor *to, struct tensor *from)
{
    const struct precision_role *role =
        coded(w->step, w->run->program, gradient);

    if (role == NULL) return OK;
    *to = as_codes(w, *to, gradient);
    *from = as_codes(w, *from, gradient);
    return row_codes_encode(w->run, role, coding_room(w), made, to->data);
}

/* *rows, those that came, as numbers. */
static status decode(struct spread *w, bool gradient, struct tensor *rows)
{
    const struct precision_role *role =
        coded(w->step, w->run->program, gradient);
    const void *codes = rows->data;

    if (role == NULL) return OK;
    *rows = spread_room(w, ROOM_PLAIN, rows->shape[0], w->width, rows->dtype);
    return row_codes_decode(w->run, role, coding_room(w), codes, *rows);
}

/* The rows of x, or of dy, once to each node. */
static status relay(struct spread *w, struct tensor x, bool gradient)
{
    int64_t sent, come;

    sending_relay_list(&w->s, w->half, w->own, &sent, &come);
    struct tensor to = rows_at(w, w->mine, w->before + w->own, sent, x.dtype);
    struct tensor from = rows_at(w, w->theirs, w->row, come, x.dtype);
    const struct tensor made = made_in(w, to, gradient);

    TRY(sending_pick(w->run, made, x, w->s.tokens + w->own));
    TRY(encode(w, gradient, made, &to, &from));
    return sending_relay_go(&w->s, w->half, to, from);
}

status spread_go_x(struct spread *w, slot which)
{
    const struct tensor x = run_slot(w->run, which);
    struct tensor to = mine(w, x.dtype), from = theirs(w, x.dtype);
    const struct tensor made = made_in(w, to, false);

    if (sending_relays(w->run->program)) return relay(w, x, false);
    TRY(sending_pick(w->run, made, x, w->s.tokens + w->own));
    TRY(encode(w, false, made, &to, &from));
    return swap(w, to, from, true);
}

/* The gates of these choices, of all joined ones. */
static status pick_gates(struct spread *w, const int32_t *entries,
                         int64_t count, const void **gates)
{
    char *out = (char *)w->run->scratch + w->rooms.at[ROOM_GATES];
    const enum dtype real = program_real(w->run->program);
    const int64_t all = gates_count(w->step, w->run->program);

    *gates = out;
    return sending_pick(
        w->run, tensor_2d(out, real, count, 1),
        tensor_2d(spread_gates(w->run, w->joined), real, all, 1), entries);
}

/* gate dy of each choice, rounded once, as the product rounds it that has all
 * experts. */
status spread_go_dy(struct spread *w, slot y)
{
    const struct tensor dy = run_gradient(w->run, y);
    const int32_t *tokens = w->s.tokens + w->own;
    struct tensor to = mine(w, dy.dtype), from = theirs(w, dy.dtype);
    struct experts_combine call = {
        .y = made_in(w, to, true), .rows = dy, .places = tokens,
        .numbers = tokens, .choices = 1, .leaf_experts = 1};

    if (sending_relays(w->run->program)) return relay(w, dy, true);
    TRY(pick_gates(w, w->s.entries + w->own, w->turn.sent, &call.gates));
    if (w->turn.sent > 0)
        TRY(w->run->kernels->experts_combine(w->run->stream, &call));
    TRY(encode(w, true, call.y, &to, &from));
    return swap(w, to, from, true);
}

/* gate dy of rows of dy that came by token, as spread_go_dy makes it. */
static status apply_gates(struct spread *w, struct tensor to,
                          const int32_t *arrival)
{
    struct experts_combine call = {
        .y = to, .rows = rows_at(w, w->theirs, w->row, w->turn.rows, to.dtype),
        .places = arrival, .numbers = arrival, .choices = 1,
        .leaf_experts = 1};

    if (w->turn.rows == 0) return OK;
    TRY(pick_gates(w, w->turn.lists.groups.entries, w->turn.rows,
                   &call.gates));
    return w->run->kernels->experts_combine(w->run->stream, &call);
}

static status arrive(struct spread *w, struct tensor to, bool gated)
{
    int32_t *arrival = w->s.arrival + w->row;
    struct tensor rows = theirs(w, to.dtype);

    if (w->half != NULL) TRY(sending_wait(w->half));
    if (sending_relays(w->run->program)) {
        rows.shape[0] =
            sending_relay_arrivals(&w->s, w->half, &w->turn, arrival);
        if (gated) return apply_gates(w, to, arrival);
    }
    TRY(decode(w, gated, &rows));
    return sending_pick(w->run, to, rows, arrival);
}

status spread_arrive_x(struct spread *w, struct tensor to)
{
    return arrive(w, to, false);
}

status spread_arrive_dz(struct spread *w, struct tensor to)
{
    return arrive(w, to, true);
}

status spread_return(struct spread *w, struct tensor from)
{
    TRY(sending_pick(w->run, theirs(w, from.dtype), from,
                     w->s.order + w->row));
    return swap(w, mine(w, from.dtype), theirs(w, from.dtype), false);
}

/* ---- rows that returned ---- */

static status place(struct spread *w, struct tensor all)
{
    for (int k = 0; k < EXPERT_HALVES && w->number == 0; k++) {
        spread_use_half(w, k);
        TRY(sending_wait(w->half));
        TRY(sending_place_half(&w->s, w->half, all, mine(w, all.dtype)));
    }
    spread_use_whole(w);
    if (w->number == 0) return OK;
    return sending_place(&w->s, all, mine(w, all.dtype));
}

status spread_settle(struct spread *w, enum dtype dtype, struct tensor *out)
{
    const struct program *p = w->run->program;
    const int cut = experts_cut(p);
    const int64_t rows = w->s.own.groups.offsets[w->s.own.groups.experts];
    const struct tensor all =
        spread_room(w, ROOM_ALL, rows * cut, w->width,
                    spread_way_dtype(p));

    while (spread_next(w)) TRY(place(w, all));
    *out = all.dtype == dtype
               ? tensor_rows(all, 0, rows)
               : spread_room(w, ROOM_SUM, rows, w->width, dtype);
    return expert_parts_add(w->run, all, cut, *out);
}
