/* SPDX-License-Identifier: Apache-2.0 */
/* expert_adapter.c - low-rank adapters beside the matrices of experts.
 *
 *   memory   x A' [rows, pieces * rank] | dy B, the same | [rows, in or out] */
#include "nn/expert_adapter.h"


#include "nn/expert_ranks.h"

enum { FIRST = 3, EACH = 2 }; /* parameters: the matrices and a bias before */

static int a_of(enum expert_side side)
{
    return FIRST + EACH * (int)side;
}

bool expert_adapter_is(const struct step *step, enum expert_side side)
{
    return step->param[a_of(side)] >= 0;
}

static const struct param *param_of(const struct program *p,
                                    const struct step *step,
                                    enum expert_side side, bool b)
{
    return &p->params.items[step->param[a_of(side) + b]];
}

/* ---- memory ---- */

/* Widths of the three rooms. */
static int64_t inner_of(const struct step *step, const struct program *p,
                        enum expert_side side)
{
    return param_of(p, step, side, false)->rows;
}

static int64_t outer_of(const struct step *step, const struct program *p,
                        enum expert_side side)
{
    const int64_t in = param_of(p, step, side, false)->cols;
    const int64_t out = step->set.experts.beside[side].width;

    return in > out ? in : out;
}

static size_t room_bytes(const struct program *p, int64_t rows, int64_t width)
{
    return arena_aligned((size_t)(rows * width * dtype_bytes(p->dtype)));
}

size_t expert_adapter_bytes(const struct step *step, const struct program *p,
                            enum expert_side side, int64_t rows)
{
    if (!expert_adapter_is(step, side)) return 0;
    return 2 * room_bytes(p, rows, inner_of(step, p, side)) +
           room_bytes(p, rows, outer_of(step, p, side));
}

/* Room 0: x A'; 1: dy B; 2: what is added. */
static struct tensor room_of(const struct expert_adapter *of,
                             const struct run *run, int which, int64_t width)
{
    const struct program *p = run->program;
    const size_t inner =
        room_bytes(p, of->rows, inner_of(of->step, p, of->side));
    const struct expert_groups *groups = &of->lists->groups;

    return tensor_2d((char *)of->memory + (size_t)which * inner, p->dtype,
                     groups->offsets[groups->experts], width);
}

/* ---- products ---- */

static struct step one_of(const struct expert_adapter *of, bool b)
{
    struct step one = with_param(of->step, a_of(of->side) + b);

    one.few = false;
    return one;
}

static const struct expert_beside *form_of(const struct expert_adapter *of)
{
    return &of->step->set.experts.beside[of->side];
}

static bool is_idle(const struct expert_adapter *of)
{
    const struct expert_groups *groups = &of->lists->groups;

    return !expert_adapter_is(of->step, of->side) ||
           groups->offsets[groups->experts] == 0;
}

static struct tensor flat(struct tensor t)
{
    return tensor_1d(t.data, t.dtype, tensor_count(&t));
}

static status scale_room(const struct expert_adapter *of, struct run *run,
                         struct tensor room)
{
    return run->kernels->scale(run->stream, flat(room), flat(room),
                               form_of(of)->scale);
}

/* The rows of B of piece i, of every expert [experts, rows, rank]. */
static struct tensor piece_of(const struct expert_adapter *of,
                              struct run *run, int i)
{
    const struct step b = one_of(of, true);
    const int64_t rows = form_of(of)->rows;
    struct tensor all = weights_of(&b, run);

    all.data = (char *)all.data +
               i * rows * all.stride[1] * dtype_bytes(all.dtype);
    all.shape[1] = rows;
    return all;
}

/* out = scale x A'. */
static status shrink(const struct expert_adapter *of, struct run *run,
                     const struct expert_rows *x, struct tensor *out)
{
    const struct step a = one_of(of, false);
    const struct sum_order order =
        run_order_whole(run, x->matrix.shape[1]);
    struct experts_product call = {
        .groups = &of->lists->groups, .a = *x, .order = &order,
        .b = transposed(weights_of(&a, run))};

    *out = call.c =
        room_of(of, run, 0, inner_of(of->step, run->program, of->side));
    TRY(run->kernels->experts_product(run->stream, &call));
    return scale_room(of, run, *out);
}

/* out = scale dy B. */
static status shrink_back(const struct expert_adapter *of, struct run *run,
                          const struct expert_rows *dy, struct tensor *out)
{
    const struct expert_beside *form = form_of(of);

    *out = room_of(of, run, 1, inner_of(of->step, run->program, of->side));
    for (int i = 0; i < form->pieces; i++) {
        const struct sum_order order = run_order_whole(run, form->rows);
        struct experts_product call = {
            .groups = &of->lists->groups, .a = *dy, .order = &order,
            .c = tensor_cols(*out, i * form->rank, form->rank),
            .b = piece_of(of, run, i)};

        call.a.matrix =
            tensor_cols(dy->matrix, form->column[i], form->rows);
        TRY(run->kernels->experts_product(run->stream, &call));
    }
    return scale_room(of, run, *out);
}

/* to = to + u, rows of the groups alone. */
static status add_rows(struct run *run, struct tensor to, struct tensor u)
{
    const struct tensor rows = tensor_rows(to, 0, u.shape[0]);

    CHECK(to.dtype == u.dtype && to.stride[0] == u.shape[1]);
    return run->kernels->add(run->stream, flat(rows), flat(rows), flat(u));
}

status expert_adapter_add(const struct expert_adapter *of, struct run *run,
                          const struct expert_rows *x, struct tensor y)
{
    const struct expert_beside *form = form_of(of);
    struct tensor a, u;

    if (is_idle(of)) return OK;
    TRY(shrink(of, run, x, &a));
    u = room_of(of, run, 2, y.shape[1]);
    if (form->pieces * form->rows < y.shape[1])
        TRY(device_fill(run->stream, u.data, 0,
                        (size_t)(tensor_count(&u) * dtype_bytes(u.dtype))));
    for (int i = 0; i < form->pieces; i++) {
        const struct sum_order order = run_order_whole(run, form->rank);
        const struct experts_product call = {
            .groups = &of->lists->groups, .order = &order,
            .c = tensor_cols(u, form->column[i], form->rows),
            .a = {.matrix = tensor_cols(a, i * form->rank, form->rank)},
            .b = transposed(piece_of(of, run, i))};

        TRY(run->kernels->experts_product(run->stream, &call));
    }
    return add_rows(run, y, u);
}

status expert_adapter_back(const struct expert_adapter *of, struct run *run,
                           const struct expert_rows *dy, struct tensor dx)
{
    const struct step a = one_of(of, false);
    struct tensor da, u;

    if (is_idle(of)) return OK;
    TRY(shrink_back(of, run, dy, &da));
    u = room_of(of, run, 2, dx.shape[1]);
    const struct sum_order order = run_order_whole(run, da.shape[1]);
    const struct experts_product call = {
        .groups = &of->lists->groups, .c = u, .a = {.matrix = da},
        .b = weights_of(&a, run), .order = &order};

    TRY(run->kernels->experts_product(run->stream, &call));
    return add_rows(run, dx, u);
}

status expert_adapter_weight(const struct expert_adapter *of, struct run *run,
                             const struct expert_adapter_rows *rows)
{
    const struct step a = one_of(of, false), b = one_of(of, true);
    struct expert_operands sums = {.lists = of->lists, .first = rows->first,
                                   .last = rows->last, .b = rows->x};

    if (!expert_adapter_is(of->step, of->side)) return OK;
    if (is_idle(of)) { /* sums of nothing, but sums */
        sums.a.matrix = room_of(of, run, 1, param_of(run->program, of->step,
                                                     of->side, false)->rows);
    } else {
        TRY(shrink_back(of, run, &rows->dy, &sums.a.matrix));
    }
    TRY(experts_weight(&a, run, &sums));
    sums.a = rows->dy;
    sums.b = (struct expert_rows){
        .matrix = room_of(of, run, 0, param_of(run->program, of->step,
                                               of->side, false)->rows)};
    if (!is_idle(of)) TRY(shrink(of, run, &rows->x, &sums.b.matrix));
    sums.pieces = form_of(of);
    return experts_weight(&b, run, &sums);
}

/* ---- building ---- */

static const struct adapter *adapter_of(const struct experts_spec *spec,
                                        enum expert_side side)
{
    return side == EXPERT_UP ? &spec->up_adapter : &spec->down_adapter;
}

void expert_adapter_params(struct program *p, int step, enum expert_side side,
                           const struct experts_spec *spec)
{
    const struct param_spec *weight =
        side == EXPERT_UP ? &spec->up : &spec->down;
    const struct adapter *adapter = adapter_of(spec, side);
    char names[2][PARAM_NAME_BYTES];
    struct param_spec ab[2];

    if (p->error != OK || adapter->pieces == 0) return;
    adapter_specs(weight, adapter, &ab[0], &ab[1]);
    snprintf(names[0], sizeof names[0], "%.80s.lora_a", weight->name);
    snprintf(names[1], sizeof names[1], "%.80s.lora_b", weight->name);
    for (int i = 0; i < 2; i++) {
        ab[i].name = names[i];
        ab[i].split_rows = ab[i].split_cols = AXIS_NONE;
        experts_params(p, step, a_of(side) + i, &ab[i], spec->form.experts);
        if (p->error != OK) return;
    }
    struct expert_beside *form = &p->steps[step].set.experts.beside[side];

    *form = (struct expert_beside){
        .scale = adapter->scale, .pieces = adapter->pieces,
        .rank = adapter->rank, .rows = ab[1].rows / adapter->pieces,
        .width = weight->rows};
    for (int i = 0; i < adapter->pieces; i++)
        form->column[i] = adapter->of[i].piece * form->rows;
}

status expert_adapter_check(const struct program *p,
                            const struct experts_spec *spec)
{
    const bool folded = experts_are_folded(p);
    const int ranks = folded || program_tensor_ranks(p) == 1
                          ? experts_cut(p) : program_tensor_ranks(p);

    if (spec->up_adapter.pieces == 0 && spec->down_adapter.pieces == 0)
        return OK;
    if (ranks > 1)
        FAIL(ERR_CONFIG, "lora.targets: adapters of the experts that tokens "
                         "choose need whole experts on a rank, and %d ranks "
                         "cut each here; mesh.expert_tensor=1 lets them divide "
                         "the experts instead", ranks);
    if (p->precision.on && p->precision.recipe.straight)
        FAIL(ERR_CONFIG, "lora.targets: the experts that tokens choose read "
                         "what numerics.recipe has rotated and rounded, which "
                         "is not what an adapter reads; use a recipe without "
                         "straight-through gradients, or leave their matrices "
                         "out");
    return OK;
}

int64_t expert_adapter_elements(const struct step *step,
                                const struct program *p,
                                enum expert_side side)
{
    if (!expert_adapter_is(step, side)) return 0;
    return param_of(p, step, side, false)->elements +
           param_of(p, step, side, true)->elements;
}
