/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.c - low-rank adapters beside a product.
 * Source: Hu et al. 2021, arXiv:2106.09685, equation 3.
 *
 *   y = x Wᵀ + scale (x Aᵀ) Bᵀ     A [rank, in], B [out, rank]
 *
 *   shrink   a = x Aᵀ       scale   a = scale a       expand   u = a Bᵀ
 *
 * u is the residual of the product with W. Pieces of a fused matrix (q, k, v)
 * have adapters of their own: their rows of A lie one after the other, and
 * those of B meet their own part of a only.
 *
 * Where tensor ranks share W, the small matrix that they do not share (A of a
 * matrix cut by rows, B of one cut by columns) works on the tokens that a rank
 * has, and its gradient is summed as that of a norm's weight: by parts of each
 * sequence (docs/numerics.md). The other one is cut as W is. */

#include "nn/layer.h"

static const struct param *weight_of(const struct run *run,
                                     const struct step *step)
{
    return &run->program->params.items[step->param[0]];
}

/* ---- B of a matrix whose rows tensor ranks share ---- */

/* Piece i of the adapter: its rows of B here, its columns of a and of u. */
struct span {
    struct tensor weight; /* [count, rank] */
    int64_t first, count; /* rows of B */
    int64_t column;       /* of u */
    int64_t part;         /* column of a */
    int64_t rank;
};

static struct span span_of(const struct run *run, const struct step *step,
                           int piece)
{
    const struct program *p = run->program;
    const struct param *param = weight_of(run, step);
    struct span span = {.rank = param->cols, .part = piece * param->cols};

    if (step->set.adapter.pieces == 1) {
        span.count = param->rows;
    } else {
        for (int i = 0; i < piece; i++)
            span.first +=
                layout_held(&param->spec, &p->layout.mesh, &p->layout.place, i)
                    .count;
        span.count =
            layout_held(&param->spec, &p->layout.mesh, &p->layout.place, piece)
                .count;
    }
    span.column = step->set.adapter.column[piece];
    return span;
}

static status expand_forward(const struct step *step, struct run *run)
{
    const struct tensor u = run_slot(run, step->output);
    const struct tensor a = run_slot(run, step->input);
    const struct tensor weight = run_weight(run, step, 0);

    TRY(overlap_wait_all(run, a));
    if (weight.shape[0] < u.shape[1]) /* pieces without adapter */
        TRY(device_fill(run->stream, u.data, 0,
                        (size_t)tensor_bytes(&u)));
    for (int i = 0; i < step->set.adapter.pieces; i++) {
        const struct span s = span_of(run, step, i);
        const struct sum_order order = run_order_whole(run, s.rank);
        const struct matmul call = {
            .c = tensor_cols(u, s.column, s.count),
            .a = tensor_cols(a, s.part, s.rank),
            .b = tensor_transpose(tensor_rows(weight, s.first, s.count)),
            .order = &order};

        if (s.count > 0) TRY(run->kernels->matmul(run->stream, &call));
    }
    return OK;
}

/* This rank's leaves of the rows of a piece; one that is not named outside has
 * all pieces of the matrix. */
static struct sum_order order_piece(struct run *run, const struct step *step,
                                    int piece)
{
    const struct program *p = run->program;
    const struct param *param = weight_of(run, step);
    const struct layout_span own = program_leaves(p);

    if (step->set.adapter.pieces == 1) return run_order_cut(run, param);
    const struct layout_span held =
        layout_held(&param->spec, &p->layout.mesh, &p->layout.place, piece);

    for (int leaf = 0; leaf < own.count; leaf++) {
        const struct layout_span block = layout_leaf(
            &param->spec, p->layout.grid.tensor, (int)own.first + leaf, piece);

        run->segments[leaf] = (struct sum_segment){
            block.first - held.first, block.count, leaf};
    }
    return (struct sum_order){run->segments, own.count, (int)own.count};
}

static status expand_backward(const struct step *step, struct run *run)
{
    const struct tensor da = run_gradient(run, step->input);
    const struct tensor du = run_gradient(run, step->output);
    const struct tensor weight = run_weight(run, step, 0);

    TRY(overlap_wait_all(run, du));
    for (int i = 0; i < step->set.adapter.pieces; i++) {
        const struct span s = span_of(run, step, i);
        const struct sum_order order = order_piece(run, step, i);
        const struct tensor c = tensor_cols(da, s.part, s.rank);
        const struct matmul call = {
            .c = c, .a = tensor_cols(du, s.column, s.count),
            .b = tensor_rows(weight, s.first, s.count), .order = &order,
            .left = run->event->adds ? &c : NULL};

        TRY(run->kernels->matmul(run->stream, &call));
    }
    return OK;
}

/* Adds one piece of the batch to a gradient sum of B; the matrices of a fused
 * adapter (q, k, v) are summed together. */
static status expand_product(struct run *run, const struct step *step,
                             const struct addend *addend, int sum)
{
    struct gradients *g = run->gradients;
    struct gradient_target target;
    const struct tensor a =
        addend_rows(run, run_slot(run, step->input), addend);
    const struct tensor du =
        addend_rows(run, run_gradient(run, step->output), addend);

    gradient_begin(g, step->use[0], addend, sum, &target);
    for (int i = 0; i < step->set.adapter.pieces; i++) {
        const struct span s = span_of(run, step, i);
        const struct sum_order order =
            run_order_tokens(run, addend, target.only);
        const struct tensor c = tensor_rows(target.c, s.first, s.count);
        const struct matmul call = {
            .c = c,
            .a = tensor_transpose(tensor_cols(du, s.column, s.count)),
            .b = tensor_cols(a, s.part, s.rank), .order = &order,
            .continues = target.continues,
            .left = target.left ? &c : NULL};

        TRY(run->kernels->matmul(run->stream, &call));
    }
    return gradient_end(g, step->use[0], sum);
}

static status expand_addend(struct run *run, const struct step *step,
                            const struct addend *addend)
{
    const int sums = gradient_sums(run->gradients, step->use[0], addend);

    for (int i = 0; i < sums; i++)
        TRY(expand_product(run, step, addend, i));
    return OK;
}

static status expand_backward_weight(const struct step *step, struct run *run)
{
    return weight_addends(step, run, expand_addend);
}

static const struct layer layer_expand = {
    .name = "adapter", .kind = LAYER_ADAPTER, .forward = expand_forward,
    .backward_input = expand_backward,
    .backward_weight = expand_backward_weight, .cost = local_cost,
    .keeps_input_for_w = true, .keeps_output_gradient_for_w = true};

/* ---- building ---- */

/* Where the rows of W that piece `which` makes begin, on this rank. */
static int64_t column_of(const struct program *p,
                         const struct param_spec *weight, int which)
{
    int64_t column = 0;

    for (int i = 0; i < which; i++)
        column +=
            layout_held(weight, &p->layout.mesh, &p->layout.place, i).count;
    return column;
}

static slot add_expand(struct program *p, slot a,
                       const struct param_spec *weight,
                       const struct param_spec *spec,
                       const struct adapter *adapter)
{
    struct param_spec cut = *weight;
    int64_t held[2];

    a = relayout_whole(p, a, true);
    const int step = program_add_step(p, &layer_expand, a);

    cut.leaves = p->layout.grid.tensor;
    layout_local_shape(&cut, &p->layout.mesh, &p->layout.place, &held[0],
                       &held[1]);
    const slot output = program_add_slot(p, "adapter", held[0], false);

    if (p->error != OK) return -1;
    p->steps[step].output = output;
    p->slots[output].layout.width |= 1u << AXIS_TENSOR;
    p->steps[step].set.adapter.pieces = adapter->pieces;
    for (int i = 0; i < adapter->pieces; i++)
        p->steps[step].set.adapter.column[i] =
            column_of(p, &cut, adapter->of[i].piece);
    program_add_param(p, step, 0, spec);
    return p->error == OK ? output : -1;
}

void adapter_specs(const struct param_spec *weight,
                   const struct adapter *adapter, struct param_spec *a,
                   struct param_spec *b)
{
    const int pieces = adapter->pieces;

    *a = (struct param_spec){
        .outside_name = adapter->of[0].a, .rows = pieces * adapter->rank,
        .cols = weight->cols, .init = INIT_ADAPTER, .role = weight->role,
        .decay = true, .adapter = true, .split_cols = weight->split_cols};
    *b = *weight;
    b->outside_name = adapter->of[0].b;
    b->outside_transposed = false;
    b->cols = adapter->rank;
    b->split_cols = AXIS_NONE;
    b->init = INIT_ZERO;
    b->decay = b->adapter = b->expands = true;
    b->adapter_scale = adapter->scale;
    if (pieces == 1 && b->piece_count == 1) /* rows of heads */
        b->pieces[0].outside_name = adapter->of[0].b;
    if (pieces == 1 && !adapter->named) return;
    a->piece_count = b->piece_count = pieces > 1 ? pieces : 0;
    b->rows = 0;
    for (int i = 0; i < pieces; i++) {
        const struct param_piece *piece =
            &weight->pieces[adapter->of[i].piece];

        a->pieces[i] = (struct param_piece){adapter->of[i].a, adapter->rank,
                                            0};
        b->pieces[i] = *piece;
        b->pieces[i].outside_name = adapter->of[i].b;
        b->rows += piece->rows;
    }
    if (pieces == 1) b->piece_count = 1; /* its rows may have units */
}

/* A and B of adapter number `index` of a matrix, with their names. */
struct pair { char names[2][PARAM_NAME_BYTES]; struct param_spec a, b; };

static void name_pair(const struct param_spec *weight,
                      const struct adapter *adapter, int index,
                      struct pair *out)
{
    char number[8] = "";

    if (index > 0)
        snprintf(number, sizeof number, ".%hu", (unsigned short)index);
    adapter_specs(weight, adapter, &out->a, &out->b);
    snprintf(out->names[0], sizeof out->names[0], "%.80s%s.lora_a",
             weight->name, number);
    snprintf(out->names[1], sizeof out->names[1], "%.80s%s.lora_b",
             weight->name, number);
    out->a.name = out->names[0];
    out->b.name = out->names[1];
}

/* Adds the product of adapter number `index` of a matrix to its output. */
static slot add_adapter(struct program *p, slot x,
                        const struct param_spec *weight,
                        const struct adapter *adapter, int index)
{
    struct pair pair;
    slot u;

    name_pair(weight, adapter, index, &pair);
    if (weight->split_cols == AXIS_TENSOR) {
        u = nn_scale_over(p, nn_linear(p, x, &pair.a, NULL), adapter->scale);
        return local_adapter(p, u, &pair.b);
    }
    u = nn_scale_over(p, local_adapter(p, x, &pair.a), adapter->scale);
    return add_expand(p, u, weight, &pair.b, adapter);
}

/* Every tensor rank has both matrices whole, and a part of the tokens. */
slot nn_down_adapted(struct program *p, slot x, const struct param_spec *weight,
                     const struct adapter *adapter)
{
    struct pair pair;
    slot u;

    name_pair(weight, adapter, 0, &pair);
    u = nn_scale_over(p, local_adapter(p, x, &pair.a), adapter->scale);
    u = local_adapter(p, u, &pair.b);
    return nn_add(p, u, nn_down(p, x, weight));
}

/* Like nn_down_adapted; u is the residual of the logits. */
slot nn_router_adapted(struct program *p, slot x,
                       const struct param_spec *weight,
                       const struct param_spec *bias,
                       const struct adapter *adapter)
{
    struct pair pair;
    slot u, logits;

    if (adapter->pieces == 0) return nn_router(p, x, weight, bias);
    name_pair(weight, adapter, 0, &pair);
    u = nn_scale_over(p, local_adapter(p, x, &pair.a), adapter->scale);
    u = local_logits(p, u, &pair.b);
    logits = nn_router(p, x, weight, bias);
    if (p->error != OK) return -1;
    p->steps[p->step_count - 1].left = u;
    return logits;
}

slot nn_linear_adapted(struct program *p, slot x,
                       const struct param_spec *weight,
                       const struct param_spec *bias,
                       const struct adapter *adapters, int count)
{
    slot beside[PARAM_PIECES_MAX], y;

    CHECK(count <= PARAM_PIECES_MAX);
    for (int i = 0; i < count; i++)
        beside[i] = add_adapter(p, x, weight, &adapters[i], i);
    y = nn_linear(p, x, weight, bias);
    for (int i = 0; i < count; i++) y = nn_add(p, beside[i], y);
    return y;
}
