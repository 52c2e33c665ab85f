/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - starts the kernels of norm.cu, and sums over tokens. */
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"

static void *vector_of(struct tensor tensor, enum dtype dtype, int64_t count)
{
    CHECK(tensor.dtype == dtype && tensor_count(&tensor) == count);
    return tensor.data;
}

static status token_sums(struct stream *stream, struct tensor sums,
                         struct token_sums_call *call)
{
    const struct token_order *order = &call->order;

    call->sums = view_of(sums, DTYPE_F32);
    CHECK(call->sums.rows == (int64_t)order->leaves *
                                 token_order_contexts(order) * order->parts);
    CHECK(call->dy.width == call->sums.width);
    CHECK(call->dy.rows ==
          order->length * order->sequences_per_leaf * order->leaves);
    call->unit_blocks =
        (call->sums.width + TOKEN_COLUMNS - 1) / TOKEN_COLUMNS;
    LAUNCH(stream, token_sums, call->sums.rows * call->unit_blocks, call);
    return OK;
}

status cuda_sum_rows(struct stream *stream, struct tensor sums,
                     struct tensor dy, const struct token_order *order)
{
    struct token_sums_call call = {.term = TERM_ROWS, .order = *order,
                                   .dy = view_real(dy)};

    return token_sums(stream, sums, &call);
}

status cuda_rmsnorm_forward(struct stream *stream, struct tensor y,
                            struct tensor rrms, struct tensor x,
                            struct tensor weight, double epsilon)
{
    struct rmsnorm_forward_call call = {
        {.to = view_of(y, x.dtype), .x = view_real(x),
         .epsilon = (float)epsilon}};

    CHECK(view_same_shape(call.norm.to, call.norm.x));
    call.norm.weight = vector_of(weight, x.dtype, call.norm.to.width);
    call.norm.stats = vector_of(rrms, DTYPE_F32, call.norm.to.rows);
    LAUNCH(stream, rmsnorm_forward, blocks_of(LANES * call.norm.to.rows),
           &call);
    return OK;
}

/* The operands of a backward call; `numbers`: statistics of a token. */
static struct norm_call backward_of(struct tensor dx, struct tensor dy,
                                    struct tensor x, struct tensor stats,
                                    struct tensor weight, int numbers)
{
    struct norm_call norm = {.to = view_of(dx, x.dtype), .x = view_real(x),
                             .dy = view_of(dy, x.dtype)};

    CHECK(view_same_shape(norm.to, norm.x) &&
          view_same_shape(norm.to, norm.dy));
    norm.weight = vector_of(weight, x.dtype, norm.to.width);
    norm.stats = vector_of(stats, DTYPE_F32, norm.to.rows * numbers);
    return norm;
}

/* Sums come before dx, which may be dy. */
status cuda_rmsnorm_backward(struct stream *stream, struct tensor dx, bool adds,
                             struct tensor sums, struct tensor dy,
                             struct tensor x, struct tensor rrms,
                             struct tensor weight,
                             const struct token_order *order)
{
    struct rmsnorm_backward_call call = {
        backward_of(dx, dy, x, rrms, weight, 1)};
    struct token_sums_call of_weight = {.term = TERM_RMS, .order = *order,
                                        .dy = call.norm.dy, .x = call.norm.x,
                                        .stats = call.norm.stats};

    call.norm.adds = adds;
    TRY(token_sums(stream, sums, &of_weight));
    LAUNCH(stream, rmsnorm_backward, blocks_of(LANES * call.norm.to.rows),
           &call);
    return OK;
}

status cuda_layernorm_forward(struct stream *stream, struct tensor y,
                              struct tensor stats, struct tensor x,
                              struct tensor weight, struct tensor bias,
                              double epsilon)
{
    struct layernorm_forward_call call = {
        {.to = view_of(y, x.dtype), .x = view_real(x),
         .epsilon = (float)epsilon}};

    CHECK(view_same_shape(call.norm.to, call.norm.x));
    call.norm.weight = vector_of(weight, x.dtype, call.norm.to.width);
    call.norm.bias = vector_of(bias, x.dtype, call.norm.to.width);
    call.norm.stats = vector_of(stats, DTYPE_F32, 2 * call.norm.to.rows);
    LAUNCH(stream, layernorm_forward, blocks_of(LANES * call.norm.to.rows),
           &call);
    return OK;
}

status cuda_norm(struct stream *stream, struct tensor x,
                 const struct norm_after *norm)
{
    if (norm->layer)
        return cuda_layernorm_forward(stream, norm->y, norm->stats, x,
                                      norm->weight, norm->bias, norm->epsilon);
    return cuda_rmsnorm_forward(stream, norm->y, norm->stats, x, norm->weight,
                                norm->epsilon);
}

status cuda_sum_norm(struct stream *stream, struct add_norm_call *call,
                     const struct norm_after *norm)
{
    struct norm_call *n = &call->norm;
    const int64_t numbers = norm->layer ? 2 : 1;

    n->to = view_of(norm->y, n->x.dtype);
    n->epsilon = (float)norm->epsilon;
    call->layer = norm->layer;
    CHECK(view_same_shape(n->to, n->x) && view_same_shape(call->y, n->x));
    CHECK(!call->left.data || view_same_shape(call->left, n->x));
    n->weight = vector_of(norm->weight, n->x.dtype, n->to.width);
    if (norm->layer)
        n->bias = vector_of(norm->bias, n->x.dtype, n->to.width);
    n->stats = vector_of(norm->stats, DTYPE_F32, numbers * n->to.rows);
    LAUNCH(stream, add_norm, blocks_of(LANES * n->to.rows), call);
    return OK;
}

status cuda_add_norm(struct stream *stream, const struct add_norm *p)
{
    struct add_norm_call call = {.norm = {.x = view_real(p->x)},
                                 .left = view_of(p->left, p->x.dtype),
                                 .y = view_real(p->y)};

    return cuda_sum_norm(stream, &call, &p->norm);
}

status cuda_layernorm_backward(struct stream *stream, struct tensor dx,
                               bool adds, struct tensor sums_weight,
                               struct tensor sums_bias, struct tensor dy,
                               struct tensor x, struct tensor stats,
                               struct tensor weight,
                               const struct token_order *order)
{
    struct layernorm_backward_call call = {
        backward_of(dx, dy, x, stats, weight, 2)};
    struct token_sums_call of_weight = {.term = TERM_LAYER, .order = *order,
                                        .dy = call.norm.dy, .x = call.norm.x,
                                        .stats = call.norm.stats};
    struct token_sums_call of_bias = {.term = TERM_ROWS, .order = *order,
                                      .dy = call.norm.dy};

    call.norm.adds = adds;
    TRY(token_sums(stream, sums_weight, &of_weight));
    TRY(token_sums(stream, sums_bias, &of_bias));
    LAUNCH(stream, layernorm_backward, blocks_of(LANES * call.norm.to.rows),
           &call);
    return OK;
}
