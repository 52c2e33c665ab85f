/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - starts the kernels of experts.cu and router.cu. Lists of experts
 * lie where kernels read them, so no count of rows is known here: there are
 * blocks for as many rows as there may be. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"
#include "kernels/expert_index.h"

static status segments_of(struct stream *stream, const struct sum_order *order,
                          const struct sum_segment **out)
{
    return cuda_copy(stream, order->segments,
                     (size_t)order->segment_count * sizeof **out,
                     (const void **)out);
}

/* An operand whose rows are those of an expert. */
static struct product_operand rows_of(const struct expert_rows *rows)
{
    const struct tensor *matrix = &rows->matrix;

    CHECK(dtype_real(matrix->dtype) == DTYPE_F32 && matrix->stride[1] == 1);
    return (struct product_operand){.data = matrix->data,
                                    .dtype = matrix->dtype,
                                    .outer = matrix->stride[0], .inner = 1,
                                    .of_rows = true,
                                    .gathered = rows->gathered,
                                    .scales = rows->scales};
}

static status product_run(struct stream *stream,
                          const struct experts_product *p,
                          enum granule_kind kind)
{
    const enum dtype dtype = product_dtype(kind);
    struct experts_call call = {
        .product = {.a = rows_of(&p->a),
                    .b = {.data = p->b.data, .outer = p->b.stride[1],
                          .inner = p->b.stride[2], .summed = true},
                    .c = p->c.data, .c_dtype = p->c.dtype,
                    .c_stride = p->c.stride[0], .n = p->c.shape[1],
                    .bias = p->bias.data,
                    .segment_count = p->order->segment_count,
                    .column_tiles = parts_of(p->c.shape[1], PRODUCT_TILE)},
        .groups = *p->groups, .b_stride = p->b.stride[0],
        .bias_stride = p->bias.data ? p->bias.stride[0] : 0,
        .row_tiles = parts_of(p->c.shape[0], PRODUCT_TILE) +
                     p->groups->experts};
    const int64_t blocks = call.row_tiles * call.product.column_tiles;

    CHECK(p->a.matrix.dtype == dtype && p->b.dtype == dtype);
    CHECK(p->b.shape[0] == p->groups->experts);
    CHECK(!p->bias.data || p->bias.dtype == dtype);
    CHECK(p->b.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->b.shape[2] == p->c.shape[1] && p->c.stride[1] == 1);
    CHECK(p->c.dtype == DTYPE_F32 || p->c.dtype == dtype);
    sum_order_check(p->order, p->b.shape[1], false);
    if (p->accumulator) call.product.accumulator = *p->accumulator;
    if (p->accumulator) kind = GRANULE_CUT;
    TRY(segments_of(stream, p->order, &call.product.segments));
    return cuda_launch(stream,
                       product_kernel(CUDA_experts_product_leaf, kind,
                                      p->order), blocks, &call, sizeof call);
}

static status gradient_run(struct stream *stream,
                           const struct experts_gradient *p,
                           enum granule_kind kind)
{
    const enum dtype dtype = product_dtype(kind);
    struct experts_call call = {
        .product = {.a = rows_of(&p->a), .b = rows_of(&p->b),
                    .c = p->c.data, .c_stride = p->c.stride[1],
                    .m = p->c.shape[1], .n = p->c.shape[2],
                    .continues = p->continues,
                    .segment_count = p->order->segment_count,
                    .column_tiles = parts_of(p->c.shape[2], PRODUCT_TILE)},
        .groups = *p->groups, .c_stride = p->c.stride[0],
        .row_tiles = parts_of(p->c.shape[1], PRODUCT_TILE),
        .adds = p->adds};
    const int64_t blocks = call.row_tiles * call.product.column_tiles *
                           p->groups->experts;

    CHECK(p->a.matrix.dtype == dtype && p->b.matrix.dtype == dtype);
    CHECK(p->c.dtype == DTYPE_F32 && p->c.stride[2] == 1);
    CHECK(p->c.shape[0] == p->groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->c.shape[2] == p->b.matrix.shape[1]);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    call.product.a.outer = 1; /* transposed: the sum is over rows */
    call.product.a.inner = p->a.matrix.stride[0];
    call.product.b.summed = true;
    if (p->accumulator) call.product.accumulator = *p->accumulator;
    if (p->accumulator) kind = GRANULE_CUT;
    TRY(segments_of(stream, p->order, &call.product.segments));
    return cuda_launch(stream,
                       product_kernel(CUDA_experts_gradient_leaf, kind,
                                      p->order), blocks, &call, sizeof call);
}

#define EXPERTS_ROWS(row, name, kind)                                      \
    status cuda_experts_##row##name(struct stream *stream,                 \
                                    const struct experts_##row *p)         \
    {                                                                      \
        return row##_run(stream, p, kind);                                 \
    }
EXPERTS_ROWS(product, , GRANULE_CHAIN)
EXPERTS_ROWS(product, _bf16_pairs, GRANULE_PAIRS)
EXPERTS_ROWS(product, _bf16_tiles, GRANULE_TILES)
EXPERTS_ROWS(product, _f16, GRANULE_WIDENED)
EXPERTS_ROWS(gradient, , GRANULE_CHAIN)
EXPERTS_ROWS(gradient, _bf16_pairs, GRANULE_PAIRS)
EXPERTS_ROWS(gradient, _bf16_tiles, GRANULE_TILES)
EXPERTS_ROWS(gradient, _f16, GRANULE_WIDENED)

status cuda_experts_sums(struct stream *stream, const struct experts_sums *p)
{
    struct experts_sums_call call = {
        .groups = *p->groups, .a = rows_of(&p->a), .c = p->c.data,
        .c_stride = p->c.stride[0], .width = p->c.shape[1],
        .column_blocks = blocks_of(p->c.shape[1]),
        .segment_count = p->order->segment_count,
        .continues = p->continues, .adds = p->adds};

    CHECK(p->c.dtype == DTYPE_F32 && p->c.shape[0] == p->groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1]);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    TRY(segments_of(stream, p->order, &call.segments));
    LAUNCH(stream, experts_sums, call.column_blocks * p->groups->experts,
           &call);
    return OK;
}

status cuda_experts_combine(struct stream *stream,
                            const struct experts_combine *p)
{
    struct experts_combine_call call = {.of = *p};

    experts_combine_check(p);
    CHECK(dtype_real(p->y.dtype) == DTYPE_F32);
    CHECK(dtype_real(p->rows.dtype) == DTYPE_F32);
    if (p->left) call.left = *p->left;
    call.of.left = NULL;
    LAUNCH(stream, experts_combine, p->y.shape[0], &call);
    return OK;
}

status cuda_experts_gates(struct stream *stream, const struct experts_gates *p)
{
    const struct experts_gates_call call = {*p};

    CHECK(p->dgates.dtype == DTYPE_F32 && p->dgates.shape[1] == p->choices);
    CHECK(p->dgates.shape[0] == p->dy.shape[0]);
    CHECK(dtype_real(p->dy.dtype) == DTYPE_F32);
    CHECK(dtype_real(p->rows.dtype) == DTYPE_F32);
    CHECK(p->rows.shape[1] == p->dy.shape[1] && p->rows.stride[1] == 1);
    LAUNCH(stream, experts_gates,
           blocks_of(p->dy.shape[0] * p->choices * LANES),
           &call);
    return OK;
}

/* ---- routers ---- */

static void logits_check(const struct router_form *form, struct tensor logits)
{
    CHECK(form->experts >= 1 && form->experts <= EXPERTS_MAX);
    CHECK(form->choices >= 1 && form->choices <= CHOICES_MAX);
    CHECK(form->choices <= form->experts);
    CHECK(logits.dtype == DTYPE_F32 && logits.shape[1] == form->experts);
    CHECK(logits.stride[1] == 1);
}

status cuda_router_choose(struct stream *stream, const struct router *p)
{
    const struct router_choose_call call = {*p};

    logits_check(&p->form, p->logits);
    CHECK(p->gates.dtype == DTYPE_F32 && p->gates.stride[1] == 1);
    CHECK(p->gates.shape[1] == p->form.choices);
    LAUNCH(stream, router_choose, p->logits.shape[0], &call);
    return OK;
}

status cuda_router_losses(struct stream *stream, const struct router_losses *p)
{
    const struct router_losses_call call = {*p};

    logits_check(&p->form, p->logits);
    CHECK(!p->weights || p->length >= 1);
    LAUNCH(stream, router_losses, p->logits.shape[0], &call);
    return OK;
}

status cuda_router_backward(struct stream *stream,
                            const struct router_losses *p)
{
    const struct router_backward_call call = {*p};

    logits_check(&p->form, p->logits);
    logits_check(&p->form, p->dlogits);
    CHECK(!p->weights || p->length >= 1);
    CHECK(p->dgates.data == NULL || (p->dgates.dtype == DTYPE_F32 &&
                                     p->dgates.stride[1] == 1));
    LAUNCH(stream, router_backward, p->logits.shape[0], &call);
    return OK;
}

status cuda_jitter(struct stream *stream, const struct jitter *p)
{
    struct jitter_call call = {.y = view_real(p->y),
                               .x = view_of(p->x, p->y.dtype), .key = p->key,
                               .rows = p->rows, .epsilon = (float)p->epsilon};

    CHECK(view_same_shape(call.y, call.x));
    CHECK(p->epsilon >= 0 && p->epsilon < 1);
    call.row_blocks = blocks_of(call.y.width);
    LAUNCH(stream, jitter, call.y.rows * call.row_blocks, &call);
    return OK;
}
