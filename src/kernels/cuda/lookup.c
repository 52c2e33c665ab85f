/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - starts the kernels of lookup.cu and loss.cu, and those that add
 * what is there. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

status cuda_gather_rows(struct stream *stream, struct tensor out, bool adds,
                        struct tensor table, const int32_t *index)
{
    struct gather_rows_call call = {.out = view_real(out),
                                    .table = view_of(table, out.dtype),
                                    .index = index, .adds = adds};

    CHECK(call.out.width == call.table.width);
    call.row_blocks = blocks_of(call.out.width);
    LAUNCH(stream, gather_rows, call.out.rows * call.row_blocks, &call);
    return OK;
}

status cuda_scatter_rows(struct stream *stream, struct tensor dtable,
                         struct tensor dout, const int32_t *index,
                         const struct token_order *order)
{
    struct scatter_rows_call call = {.table = view_of(dtable, DTYPE_F32),
                                     .dout = view_real(dout),
                                     .index = index, .order = *order};
    const int contexts = token_order_contexts(order);
    const struct rows_sort_call sort = {index, call.dout.rows,
                                        stream->scratch};

    CHECK(stream->scratch_bytes >= (size_t)sort.count * sizeof(int32_t));
    CHECK(sort.count <= INT32_MAX && call.table.width == call.dout.width);
    CHECK(call.dout.rows ==
          order->length * order->sequences_per_leaf * order->leaves);
    CHECK(order->leaves * contexts <= LEAVES_MAX);
    CHECK(!order->continues ||
          (order->leaves == 1 && (order->only || contexts == 1)));
    call.tokens = sort.tokens;
    call.count = sort.count;
    call.leaves = order->leaves * (order->only ? 1 : contexts);
    call.row_blocks = blocks_of(call.table.width);
    LAUNCH(stream, rows_sort, blocks_of(sort.count), &sort);
    LAUNCH(stream, scatter_rows, call.table.rows * call.row_blocks, &call);
    return OK;
}

status cuda_dropout(struct stream *stream, const struct dropout *p)
{
    struct dropout_call call = {
        .y = view_real(p->y), .x = view_of(p->x, p->y.dtype),
        .key = p->key, .rows = p->rows, .least = dropout_least(p->rate),
        .factor = (float)(1 / (1 - p->rate))};

    if (p->left.data) call.left = view_of(p->left, p->y.dtype);
    CHECK(view_same_shape(call.y, call.x) && p->rate >= 0 && p->rate < 1);
    CHECK(!p->left.data || view_same_shape(call.y, call.left));
    call.row_blocks = blocks_of(call.y.width);
    LAUNCH(stream, dropout, call.y.rows * call.row_blocks, &call);
    return OK;
}

status cuda_fold(struct stream *stream, struct tensor out, struct tensor in,
                 int leaves, int parts)
{
    const struct fold_call call = {view_of(in, DTYPE_F32), out.data, leaves,
                                   parts};

    CHECK(call.in.rows == (int64_t)leaves * parts && leaves >= 1 && parts >= 1);
    CHECK(out.dtype == DTYPE_F32 && tensor_count(&out) == call.in.width);
    LAUNCH(stream, fold, blocks_of(call.in.width), &call);
    return OK;
}

status cuda_sum_squares(struct stream *stream, double *sums, struct tensor x,
                        double factor)
{
    const struct sum_squares_call call = {view_of(x, DTYPE_F32), sums,
                                          (float)factor};
    const int64_t count = call.x.rows * call.x.width;
    const int64_t sums_count = (count + SQUARES_BLOCK - 1) / SQUARES_BLOCK;

    LAUNCH(stream, sum_squares, blocks_of(sums_count * LANES), &call);
    return OK;
}

status cuda_normalize(struct stream *stream, struct tensor x, double *sums,
                      double least)
{
    const int64_t count = tensor_count(&x);
    const struct squares_tree_call tree = {
        sums, parts_of(count, SQUARES_BLOCK), least};
    const struct normalize_call call = {x.data, count, sums};

    CHECK(x.dtype == DTYPE_F32 && x.stride[x.dimensions - 1] == 1);
    CHECK(x.dimensions == 1 || x.stride[0] == x.shape[1]);
    LAUNCH(stream, squares_tree, 1, &tree);
    LAUNCH(stream, normalize, blocks_of(count), &call);
    return OK;
}

static status loss_run(struct stream *stream, const struct cross_entropy *p,
                       enum dtype dtype)
{
    const int64_t columns = p->logits.shape[1];
    const struct cross_entropy_call call = {
        {.logits = p->logits.data, .stride = p->logits.stride[0],
         .columns = columns, .first = p->first,
         .leaf_columns = p->block > 0
                             ? p->block
                             : (columns + p->leaves - 1) / p->leaves,
         .targets = p->targets, .losses = p->losses, .leaves = p->leaves,
         .gradient = p->gradient, .scale = p->scale > 0 ? (float)p->scale : 1,
         .z_loss = p->z_loss, .twice_z_loss = (float)(2 * p->z_loss),
         .z_losses = p->z_losses, .phase = p->phase, .maximum = p->maximum,
         .target = p->target, .sum = p->sum, .dtype = dtype}};

    CHECK(p->logits.dtype == DTYPE_F32 && p->logits.stride[1] == 1);
    CHECK(p->leaves >= 1 && p->leaves <= LEAVES_MAX);
    LAUNCH(stream, cross_entropy, p->logits.shape[0], &call);
    return OK;
}

status cuda_cross_entropy(struct stream *stream,
                          const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_F32);
}

status cuda_cross_entropy_bf16(struct stream *stream,
                               const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_BF16);
}

status cuda_cross_entropy_f16(struct stream *stream,
                              const struct cross_entropy *p)
{
    return loss_run(stream, p, DTYPE_F16);
}
