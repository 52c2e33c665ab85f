/* SPDX-License-Identifier: Apache-2.0 */
/* expert_adapter.c - low-rank adapters beside the matrices of experts.
 *
 *   memory   x A' [rows, pieces * rank] | dy B, the same | what is added, real
 *            [rows, in or out] | a sum before it is rounded, real [rows,
 *            pieces * rank] | a product of some leaves | of all, real */
#include "nn/expert_adapter.h"

#include "mesh/group.h"
#include "nn/expert_ranks.h"
#include "nn/sending.h"

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

/* The one of the two that the ranks cut which cut the experts. */
static const struct param *cut_param(const struct program *p,
                                     const struct step *step,
                                     enum expert_side side)
{
    return param_of(p, step, side, side == EXPERT_UP);
}

static int cut_ranks(const struct program *p, const struct step *step,
                     enum expert_side side)
{
    return layout_ranks_of(&cut_param(p, step, side)->spec, &p->layout.mesh,
                           AXIS_TENSOR);
}

/* Whether these are neighbours among the ranks that divide the experts; else
 * they are those of the tensor axis. */
static bool are_mates(const struct program *p, const struct step *step,
                      enum expert_side side)
{
    return cut_param(p, step, side)->spec.within > 1;
}

enum { PART_X, PART_DY, PART_ADDED, PART_SUM, PART_LEAVES, PART_ALL,
       PART_COUNTS, PARTS };
struct adapter_rooms { size_t at[PARTS + 1]; };

static struct adapter_rooms rooms_of(const struct step *step,
                                     const struct program *p,
                                     enum expert_side side, int64_t rows)
{
    const bool narrow = dtype_is_narrow(p->dtype);
    const int64_t inner = inner_of(step, p, side);
    const int64_t outer = outer_of(step, p, side);
    const int cut = cut_ranks(p, step, side);
    const bool mates = are_mates(p, step, side);
    const int parts = mates ? 2 * cut : narrow && cut > 1;
    const int64_t bytes = dtype_bytes(p->dtype);
    const int64_t real = dtype_bytes(program_real(p));
    const int64_t row[PARTS] = {
        [PART_X] = inner * bytes, [PART_DY] = inner * bytes,
        [PART_ADDED] = outer * real, [PART_SUM] = parts * inner * real,
        [PART_LEAVES] = p->layout.grid.tensor > 1 ? outer * real : 0,
        [PART_ALL] = narrow ? outer * real : 0};
    struct adapter_rooms rooms = {{0}};

    for (int i = 0; i < PARTS; i++)
        rooms.at[i + 1] =
            rooms.at[i] + arena_aligned((size_t)(rows * row[i]));
    if (mates)
        rooms.at[PARTS] += arena_aligned(
            (size_t)mesh_expert_ranks(&p->layout.mesh) * sizeof(int64_t));
    return rooms;
}

size_t expert_adapter_bytes(const struct step *step, const struct program *p,
                            enum expert_side side, int64_t rows)
{
    if (!expert_adapter_is(step, side)) return 0;
    return rooms_of(step, p, side, rows).at[PARTS];
}

static int64_t row_count(const struct expert_adapter *of)
{
    const struct expert_groups *groups = &of->lists->groups;

    return groups->offsets[groups->experts];
}

static struct tensor room_of(const struct expert_adapter *of,
                             const struct run *run, int which, int64_t width)
{
    const struct program *p = run->program;
    const struct adapter_rooms rooms =
        rooms_of(of->step, p, of->side, of->rows);

    return tensor_2d((char *)of->memory + rooms.at[which],
                     which < PART_SUM ? p->dtype : program_real(p),
                     row_count(of), width);
}

static struct tensor inner_room(const struct expert_adapter *of,
                                const struct run *run, int which)
{
    return room_of(of, run, which, inner_of(of->step, run->program, of->side));
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
    return !expert_adapter_is(of->step, of->side) || row_count(of) == 0;
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

/* ---- sums over the ranks that cut an expert ---- */

/* All rows for which there is room, so that the message has one length. */
static status add_over_tensor(const struct expert_adapter *of, struct run *run,
                              struct tensor sum)
{
    const size_t row =
        (size_t)sum.shape[1] * (size_t)dtype_bytes(sum.dtype);
    const size_t rows = (size_t)sum.shape[0];
    struct tensor all = sum;

    all.shape[0] = of->rows;
    TRY(device_fill(run->stream, (char *)sum.data + rows * row, 0,
                    ((size_t)of->rows - rows) * row));
    return comm_run(run->groups[AXIS_TENSOR], &(struct comm_call){
        .kind = COMM_ALL_REDUCE, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .in = flat(all), .out = flat(all)});
}

/* Each neighbour gets this rank's part, and adds up all. The parts for them lie
 * behind each other, then those of them. */
static status add_over_mates(const struct expert_adapter *of, struct run *run,
                             struct tensor *sum)
{
    const struct program *p = run->program;
    const int cut = cut_ranks(p, of->step, of->side);
    const int ranks = mesh_expert_ranks(&p->layout.mesh);
    const int first =
        mesh_expert_rank(&p->layout.mesh, &p->layout.place) / cut * cut;
    const int64_t n = tensor_count(sum);
    const size_t bytes = (size_t)tensor_bytes(sum);
    const struct adapter_rooms rooms =
        rooms_of(of->step, p, of->side, of->rows);
    int64_t *counts = run_list(run, (char *)of->memory + rooms.at[PART_COUNTS]);
    struct tensor in = tensor_1d(sum->data, sum->dtype, cut * n), out = in;
    const struct comm_call call = {
        .kind = COMM_ALL_TO_ALL, .algorithm = ALGORITHM_ORDERED, .in = in,
        .out = tensor_1d((char *)in.data + (size_t)cut * bytes, in.dtype,
                         cut * n),
        .in_counts = counts, .out_counts = counts};

    for (int i = 0; i < ranks; i++)
        counts[i] = i >= first && i < first + cut ? n : 0;
    for (int i = 1; i < cut && n > 0; i++)
        TRY(device_copy(run->stream, (char *)in.data + (size_t)i * bytes,
                        in.data, bytes));
    sending_count(run, &call);
    TRY(comm_run(run->groups[AXIS_EXPERT], &call));
    out = tensor_2d(call.out.data, in.dtype, cut * sum->shape[0],
                    sum->shape[1]);
    *sum = tensor_rows(out, 0, sum->shape[0]);
    return expert_parts_add(run, out, cut, *sum);
}

/* Where this rank's part of a sum goes, and the sum to where it is read. */
static struct tensor part_room(const struct expert_adapter *of,
                               const struct run *run, bool cut,
                               struct tensor out)
{
    const struct program *p = run->program;

    return cut && (are_mates(p, of->step, of->side) ||
                   (dtype_is_narrow(p->dtype) &&
                    cut_ranks(p, of->step, of->side) > 1))
               ? inner_room(of, run, PART_SUM) : out;
}

static status end_sum(const struct expert_adapter *of, struct run *run,
                      struct tensor part, struct tensor out)
{
    if (are_mates(run->program, of->step, of->side))
        TRY(add_over_mates(of, run, &part));
    else
        TRY(add_over_tensor(of, run, part));
    if (part.data == out.data || out.shape[0] == 0) return OK;
    return run->kernels->scale(run->stream, flat(out), flat(part), 1.0);
}

static bool is_summed(const struct expert_adapter *of, const struct run *run,
                      enum expert_side side)
{
    return of->side == side && cut_ranks(run->program, of->step, side) > 1;
}

/* out = scale x A'. */
static status shrink(const struct expert_adapter *of, struct run *run,
                     const struct expert_rows *x, struct tensor *out)
{
    const bool cut = of->side == EXPERT_DOWN;
    const struct step a = one_of(of, false);
    const struct sum_order order =
        cut ? run_order_cut(run, param_of(run->program, of->step, of->side,
                                          false))
            : run_order_whole(run, x->matrix.shape[1]);
    struct experts_product call = {
        .groups = &of->lists->groups, .a = *x, .order = &order,
        .b = transposed(weights_of(&a, run))};

    *out = inner_room(of, run, PART_X);
    call.c = part_room(of, run, cut, *out);
    if (!is_idle(of))
        TRY(run->kernels->experts_product(run->stream, &call));
    if (is_summed(of, run, EXPERT_DOWN))
        TRY(end_sum(of, run, call.c, *out));
    return is_idle(of) ? OK : scale_room(of, run, *out);
}

/* This rank's leaves of the rows of a piece of B. */
static struct sum_order order_piece(const struct expert_adapter *of,
                                    struct run *run, int piece)
{
    const struct program *p = run->program;
    const struct param_spec *spec =
        &param_of(p, of->step, of->side, true)->spec;
    const int ranks = layout_ranks_of(spec, &p->layout.mesh, AXIS_TENSOR);
    const int rank =
        layout_rank_of(spec, &p->layout.mesh, &p->layout.place, AXIS_TENSOR);
    const int first = p->layout.grid.tensor * rank / ranks;
    const int count = p->layout.grid.tensor * (rank + 1) / ranks - first;
    const struct layout_span held =
        layout_held(spec, &p->layout.mesh, &p->layout.place, piece);

    for (int leaf = 0; leaf < count; leaf++) {
        const struct layout_span block =
            layout_leaf(spec, p->layout.grid.tensor, first + leaf, piece);

        run->segments[leaf] = (struct sum_segment){
            block.first - held.first, block.count, leaf};
    }
    return (struct sum_order){run->segments, count, count};
}

/* out = scale dy B. */
static status shrink_back(const struct expert_adapter *of, struct run *run,
                          const struct expert_rows *dy, struct tensor *out)
{
    const struct expert_beside *form = form_of(of);
    const bool cut = of->side == EXPERT_UP;

    *out = inner_room(of, run, PART_DY);
    const struct tensor part = part_room(of, run, cut, *out);

    for (int i = 0; i < form->pieces && !is_idle(of); i++) {
        const struct sum_order order =
            cut ? order_piece(of, run, i) : run_order_whole(run, form->rows);
        struct experts_product call = {
            .groups = &of->lists->groups, .a = *dy, .order = &order,
            .c = tensor_cols(part, i * form->rank, form->rank),
            .b = piece_of(of, run, i)};

        call.a.matrix =
            tensor_cols(dy->matrix, form->column[i], form->rows);
        TRY(run->kernels->experts_product(run->stream, &call));
    }
    if (is_summed(of, run, EXPERT_UP)) TRY(end_sum(of, run, part, *out));
    return is_idle(of) ? OK : scale_room(of, run, *out);
}

/* ---- what they add ---- */

/* u = a B'; +0 in columns of a matrix that has none. */
static status expand(const struct expert_adapter *of, struct run *run,
                     struct tensor a, struct tensor u)
{
    const struct expert_beside *form = form_of(of);

    if (form->pieces * form->rows < u.shape[1])
        TRY(device_fill(run->stream, u.data, 0,
                        (size_t)tensor_bytes(&u)));
    for (int i = 0; i < form->pieces; i++) {
        const struct sum_order order = run_order_whole(run, form->rank);
        const struct experts_product call = {
            .groups = &of->lists->groups, .order = &order,
            .c = tensor_cols(u, form->column[i], form->rows),
            .a = {.matrix = tensor_cols(a, i * form->rank, form->rank)},
            .b = transposed(piece_of(of, run, i))};

        TRY(run->kernels->experts_product(run->stream, &call));
    }
    return OK;
}

/* u = da A. */
static status expand_back(const struct expert_adapter *of, struct run *run,
                          struct tensor da, struct tensor u)
{
    const struct step a = one_of(of, false);
    const struct sum_order order = run_order_whole(run, da.shape[1]);
    const struct experts_product call = {
        .groups = &of->lists->groups, .c = u, .a = {.matrix = da},
        .b = weights_of(&a, run), .order = &order};

    return run->kernels->experts_product(run->stream, &call);
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
    struct tensor a, u;

    if (is_idle(of)) return OK;
    CHECK(of->side == EXPERT_UP);
    TRY(shrink(of, run, x, &a));
    u = room_of(of, run, PART_ADDED, y.shape[1]);
    TRY(expand(of, run, a, u));
    return add_rows(run, y, u);
}

status expert_adapter_back(const struct expert_adapter *of, struct run *run,
                           const struct expert_rows *dy, struct tensor dx)
{
    struct tensor da, u;

    if (is_idle(of)) return OK;
    CHECK(of->side == EXPERT_DOWN);
    TRY(shrink_back(of, run, dy, &da));
    u = room_of(of, run, PART_ADDED, dx.shape[1]);
    TRY(expand_back(of, run, da, u));
    return add_rows(run, dx, u);
}

/* ---- beside a sum over leaves ---- */

/* Makes what the first leaf takes. */
static status make_added(const struct expert_adapter *of, struct run *run,
                         const struct expert_product *product,
                         struct tensor *u)
{
    struct tensor a;

    *u = room_of(of, run, PART_ADDED, product->call.c.shape[1]);
    u->dtype = program_real(run->program);
    if (product->use == USE_FORWARD)
        TRY(shrink(of, run, &product->call.a, &a));
    else
        TRY(shrink_back(of, run, &product->call.a, &a));
    if (is_idle(of)) return OK;
    return product->use == USE_FORWARD ? expand(of, run, a, *u)
                                       : expand_back(of, run, a, *u);
}

/* Leaves [first, first + count) of an order whose leaves follow each other. */
static struct sum_order some_leaves(struct run *run,
                                    const struct sum_order *all, int first,
                                    int count)
{
    int64_t from = 0, to;

    while (run->segments[from].leaf < first) from++;
    for (to = from; to < all->segment_count; to++)
        if (run->segments[to].leaf >= first + count) break;
    struct sum_order some = {run->segments + from, to - from, count};

    return some;
}

static void renumber(struct run *run, const struct sum_order *some, int first)
{
    struct sum_segment *segments =
        run->segments + (some->segments - run->segments);

    for (int64_t i = 0; i < some->segment_count; i++)
        segments[i].leaf -= first;
}

/* The tree's leftmost path: leaf 0, to which u is added; then its sibling, and
 * theirs, and so on. */
static status sum_path(const struct expert_adapter *of, struct run *run,
                       const struct expert_product *product, struct tensor u)
{
    const struct tensor c = tensor_rows(product->call.c, 0, u.shape[0]);
    const int leaves = product->call.order->leaves;
    struct expert_product some = *product;
    struct tensor sum = c;

    if (c.dtype != u.dtype)
        sum = room_of(of, run, PART_ALL, c.shape[1]);
    CHECK(sum.stride[0] == sum.shape[1]);
    for (int first = 0, count = 1; first < leaves;) {
        const struct tensor part =
            first == 0 ? sum : room_of(of, run, PART_LEAVES, c.shape[1]);
        const struct sum_order order =
            some_leaves(run, product->call.order, first, count);

        renumber(run, &order, first);
        some.few.again = first > 0;
        some.call.c = part;
        some.call.order = &order;
        TRY(quantized_experts_product(run, &some.few, some.use, &some.call));
        TRY(run->real->add(run->stream, flat(sum), flat(sum),
                           flat(first == 0 ? u : part)));
        first += count;
        count = first < leaves - first ? first : leaves - first;
    }
    if (sum.data == c.data) return OK;
    return run->kernels->scale(run->stream, flat(c), flat(sum), 1.0);
}

status expert_adapter_product(const struct expert_adapter *of, struct run *run,
                              struct expert_product *product)
{
    const struct param *param =
        &run->program->params.items[product->few.step->param[0]];
    const bool is = expert_adapter_is(of->step, of->side);
    struct tensor u;

    if (is) TRY(make_added(of, run, product, &u));
    const struct sum_order order = run_order_cut(run, param);

    product->call.order = &order;
    if (is && !is_idle(of) &&
        layout_rank_of(&param->spec, &run->program->layout.mesh,
                       &run->program->layout.place, AXIS_TENSOR) == 0)
        return sum_path(of, run, product, u);
    return quantized_experts_product(run, &product->few, product->use,
                                     &product->call);
}

/* ---- gradients ---- */

status expert_adapter_weight(const struct expert_adapter *of, struct run *run,
                             const struct expert_adapter_rows *rows)
{
    const struct step a = one_of(of, false), b = one_of(of, true);
    struct expert_operands sums = {.lists = of->lists, .first = rows->first,
                                   .last = rows->last, .b = rows->x};

    if (!expert_adapter_is(of->step, of->side)) return OK;
    TRY(shrink_back(of, run, &rows->dy, &sums.a.matrix));
    TRY(experts_weight(&a, run, &sums));
    sums.a = rows->dy;
    sums.b = (struct expert_rows){0};
    TRY(shrink(of, run, &rows->x, &sums.b.matrix));
    sums.pieces = form_of(of);
    return experts_weight(&b, run, &sums);
}

status expert_adapter_idle(const struct expert_adapter *of, struct run *run)
{
    struct tensor sum;

    if (!expert_adapter_is(of->step, of->side) ||
        !is_summed(of, run, of->side))
        return OK;
    CHECK(row_count(of) == 0);
    sum = inner_room(of, run, PART_X);
    return end_sum(of, run, part_room(of, run, true, sum), sum);
}

/* ---- messages ---- */

static bool sum_is(const struct expert_adapter_sum *sum,
                   const struct program *p)
{
    return expert_adapter_is(sum->step, sum->side) &&
           cut_ranks(p, sum->step, sum->side) > 1;
}

/* Neighbours send a sum's rows, with equal shares. */
static void add_mates(const struct expert_adapter_sum *sum,
                      const struct program *p, struct layer_exchange exchange,
                      struct layer_exchanges *out)
{
    const int cut = cut_ranks(p, sum->step, sum->side);
    const int rank = mesh_expert_rank(&p->layout.mesh, &p->layout.place);
    const int node = mesh_expert_seat(&p->layout.mesh, rank).node;
    const int64_t bytes = sum->shared * inner_of(sum->step, p, sum->side) *
                          dtype_bytes(program_real(p));
    const int first = rank / cut * cut;

    exchange.axis = AXIS_EXPERT;
    exchange.kind = COMM_ALL_TO_ALL;
    exchange.routed = true;
    exchange.bytes = (cut - 1) * bytes;
    for (int i = first; i < first + cut; i++)
        if (mesh_expert_seat(&p->layout.mesh, i).node != node)
            exchange.between += bytes;
    layer_exchanges_add(out, p, exchange);
}

void expert_adapter_exchanges(const struct expert_adapter_sum *sum,
                              const struct program *p,
                              const struct exchange_case *at,
                              struct layer_exchanges *out)
{
    const bool weight = at->event->pass == PASS_BACKWARD_WEIGHT;
    const bool made = weight || (sum->side == EXPERT_UP
                                     ? exchange_backward(at)
                                     : exchange_forward(at));
    struct layer_exchange exchange = {
        .axis = AXIS_TENSOR, .kind = COMM_ALL_REDUCE,
        .what = SENT_ACTIVATIONS, .calls = weight ? 1 : sum->calls};

    if (!made || !sum_is(sum, p)) return;
    if (are_mates(p, sum->step, sum->side)) {
        add_mates(sum, p, exchange, out);
        return;
    }
    exchange.bytes =
        exchange.calls *
        exchange_all_reduce(sum->rows * inner_of(sum->step, p, sum->side),
                            program_tensor_ranks(p),
                            p->layout.place.at[AXIS_TENSOR]) *
        dtype_bytes(program_real(p));
    layer_exchanges_add(out, p, exchange);
}

size_t expert_adapter_messages(const struct expert_adapter_sum *sum,
                               const struct program *p,
                               const struct group *tensor)
{
    if (!sum_is(sum, p) || are_mates(p, sum->step, sum->side)) return 0;
    const struct tensor all = tensor_1d(
        NULL, program_real(p), sum->rows * inner_of(sum->step, p, sum->side));

    return comm_scratch_bytes(tensor, &(struct comm_call){
        .kind = COMM_ALL_REDUCE, .algorithm = ALGORITHM_ORDERED,
        .reduction = REDUCE_SUM, .in = all, .out = all});
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
        experts_params(p, step, a_of(side) + i, &ab[i], spec->form.experts);
        if (p->error != OK) return;
    }
    struct expert_beside *form = &p->steps[step].set.experts.beside[side];

    *form = (struct expert_beside){
        .scale = adapter->scale, .pieces = adapter->pieces,
        .rank = adapter->rank, .width = weight->rows};
    form->rows = param_of(p, &p->steps[step], side, true)->rows /
                 adapter->pieces;
    for (int i = 0; i < adapter->pieces; i++)
        form->column[i] = adapter->of[i].piece * form->rows;
}

status expert_adapter_check(const struct program *p,
                            const struct experts_spec *spec)
{
    if (spec->up_adapter.pieces == 0 && spec->down_adapter.pieces == 0)
        return OK;
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
