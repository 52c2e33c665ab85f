/* SPDX-License-Identifier: Apache-2.0 */
/* expert_parallel_products.c - products of the rows that have come to a rank
 * for its experts. */
#include "nn/expert_parallel.h"

#include "nn/expert_adapter.h"
#include "nn/expert_bias.h"
#include "nn/glu_codes.h"
#include "nn/quantized_experts.h"
#include "nn/straight_through.h"

static struct quantized_experts few_of(const struct spread *w,
                                       const struct step *one)
{
    return (struct quantized_experts){
        .step = one, .lists = &w->turn.lists,
        .memory = spread_room(w, ROOM_FEW, 1, 1, DTYPE_F32).data,
        .rows = w->rows, .tokens = w->run->program->size.tokens};
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

static struct expert_adapter beside_of(const struct spread *w,
                                       enum expert_side side)
{
    return (struct expert_adapter){
        w->step, side, &w->turn.lists,
        spread_room(w, ROOM_BESIDE, 1, 1, DTYPE_F32).data, w->rows};
}

/* A product whose sums ranks may cut, with the adapter beside it. */
static status multiply_cut(struct spread *w, enum expert_side side,
                           const struct spread_product *of)
{
    const struct tensor b = weights_of(of->step, w->run);
    const struct expert_adapter beside = beside_of(w, side);
    struct expert_product product = {
        .few = few_of(w, of->step), .use = of->use,
        .call = {.groups = &w->turn.lists.groups, .c = of->c,
                 .a = {.matrix = of->a},
                 .b = of->use == USE_FORWARD ? transposed(b) : b}};

    return expert_adapter_product(&beside, w->run, &product);
}

/* c = c + what an adapter makes of a, forward or backward. */
static status add_beside(struct spread *w, enum expert_side side,
                         const struct spread_product *of)
{
    const struct expert_adapter beside = beside_of(w, side);
    const struct expert_rows rows = {.matrix = of->a};

    return of->use == USE_FORWARD
               ? expert_adapter_add(&beside, w->run, &rows, of->c)
               : expert_adapter_back(&beside, w->run, &rows, of->c);
}

static const struct param *param_of(const struct spread *w,
                                    const struct step *step)
{
    return &w->run->program->params.items[step->param[0]];
}

/* Like param_of, for W, where x of the first turn is codes. */
static struct quantized_experts saved_of(const struct spread *w,
                                         const struct step *one)
{
    struct quantized_experts few = few_of(w, one);

    if (w->number == 0 && spread_saves(w->step, w->run->program))
        few.codes = run_slot(w->run, w->step->aux).data;
    return few;
}

status spread_save_x(struct spread *w)
{
    const struct quantized_experts few = saved_of(w, &w->up);

    if (few.codes == NULL || w->run->gradients == NULL) return OK;
    return quantized_experts_save(w->run, &few, spread_kept(w, ROOM_X),
                                  &w->saved);
}

status spread_make_h(struct spread *w)
{
    const struct sum_order order = run_order_whole(w->run, w->width);
    const struct spread_product of = {
        &w->up, USE_FORWARD, spread_kept(w, ROOM_H), spread_kept(w, ROOM_X),
        expert_bias_of(&w->bias, 0, w->run)};

    TRY(multiply(w, &of, &order));
    return add_beside(w, EXPERT_UP, &of);
}

/* The rows of the piece or turn among those that are kept; those of further
 * turns lie in scratch. */
static struct glu_rows glu_rows_of(const struct spread *w)
{
    const struct param *up = param_of(w, &w->up);
    char *room = spread_room(w, ROOM_GLU, 1, 1, DTYPE_F32).data;
    char *later = room + glu_rows_room(w->run->program, up, w->rows);
    const bool first = w->number == 0;

    return (struct glu_rows){up, first ? spread_h_codes(w) : later, w->rows,
                             first ? w->row : 0, room};
}

status spread_save_h(struct spread *w)
{
    if (w->run->gradients == NULL || w->number > 0 ||
        !spread_codes_h(w->step, w->run->program))
        return OK;
    const struct glu_rows at = glu_rows_of(w);

    return glu_rows_encode(w->run, &at, spread_kept(w, ROOM_H));
}

status spread_round_h(struct spread *w)
{
    if (!spread_codes_h(w->step, w->run->program)) return OK;
    const struct glu_rows at = glu_rows_of(w);

    if (w->number > 0)
        TRY(glu_rows_encode(w->run, &at, spread_kept(w, ROOM_H)));
    return glu_rows_decode(w->run, &at, spread_kept(w, ROOM_H));
}

static struct tensor inner_room(const struct spread *w)
{
    return spread_room(w, ROOM_INNER, w->turn.rows, w->inner,
                       w->run->program->dtype);
}

static struct straight_glu inner_glu(const struct spread *w)
{
    return (struct straight_glu){w->step, param_of(w, &w->down),
                                 spread_kept(w, ROOM_H),
                                 spread_room(w, ROOM_FEW, 1, 1,
                                             DTYPE_F32).data};
}

status spread_make_inner(struct spread *w)
{
    const struct straight_glu glu = inner_glu(w);

    return straight_glu(w->run, &glu, inner_room(w));
}

status spread_make_out(struct spread *w, struct tensor out)
{
    const struct spread_product of = {&w->down, USE_FORWARD, out,
                                      inner_room(w), {0}};

    return multiply_cut(w, EXPERT_DOWN, &of);
}

/* Gradients of gate and up; that of their product takes its room. */
status spread_make_dh(struct spread *w)
{
    const struct straight_glu glu = inner_glu(w);
    const struct sum_order order = run_order_whole(w->run, w->width);
    const struct spread_product of = {&w->down, USE_DGRAD, inner_room(w),
                                      spread_kept(w, ROOM_DZ), {0}};

    TRY(multiply(w, &of, &order));
    TRY(add_beside(w, EXPERT_DOWN, &of));
    TRY(straight_glu_back(w->run, &glu, inner_room(w)));
    return experts_gate_backward(w->step, w->run, spread_kept(w, ROOM_DH),
                                 inner_room(w), spread_kept(w, ROOM_H));
}

status spread_make_dx(struct spread *w, struct tensor out)
{
    const struct spread_product of = {&w->up, USE_DGRAD, out,
                                      spread_kept(w, ROOM_DH), {0}};

    return multiply_cut(w, EXPERT_UP, &of);
}

/* The sums of one parameter: of a (gradients) and b. */
static status sum_rows(struct spread *w, const struct step *one,
                       struct tensor a, struct tensor b)
{
    const bool up = one->param[0] == w->up.param[0];
    const struct quantized_experts few = up ? saved_of(w, one)
                                            : few_of(w, one);
    struct expert_operands of = {.lists = &w->turn.lists,
                                 .first = w->turn.first,
                                 .last = w->turn.last,
                                 .a.matrix = a, .b.matrix = b};

    if (b.data != NULL) /* biases sum rows before rounding */
        TRY(quantized_experts_operands(w->run, &few, &of));
    return experts_weight(one, w->run, &of);
}

static status sum_beside(struct spread *w, enum expert_side side,
                         struct tensor dy, struct tensor x)
{
    const struct expert_adapter beside = beside_of(w, side);
    const struct expert_adapter_rows rows = {
        .dy.matrix = dy, .x.matrix = x, .first = w->turn.first,
        .last = w->turn.last};

    return expert_adapter_weight(&beside, w->run, &rows);
}

/* The others' turn: nothing to sum, but ranks that cut the experts talk. */
static status idle_turn(struct spread *w)
{
    const struct expert_adapter up = beside_of(w, EXPERT_UP);
    const struct expert_adapter down = beside_of(w, EXPERT_DOWN);

    TRY(expert_adapter_idle(&up, w->run));
    return expert_adapter_idle(&down, w->run);
}

status spread_sum_turn(struct spread *w)
{
    if (w->turn.first == w->turn.last) return idle_turn(w);
    if (w->bias.param[0] >= 0)
        TRY(sum_rows(w, &w->bias, spread_kept(w, ROOM_DH), (struct tensor){0}));
    TRY(sum_beside(w, EXPERT_UP, spread_kept(w, ROOM_DH),
                   spread_kept(w, ROOM_X)));
    TRY(sum_rows(w, &w->up, spread_kept(w, ROOM_DH), spread_kept(w, ROOM_X)));
    TRY(spread_make_inner(w));
    TRY(sum_beside(w, EXPERT_DOWN, spread_kept(w, ROOM_DZ), inner_room(w)));
    return sum_rows(w, &w->down, spread_kept(w, ROOM_DZ), inner_room(w));
}
