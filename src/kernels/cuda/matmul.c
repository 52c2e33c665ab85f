/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - starts the kernels of matmul.cu. */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

static void matmul_check(const struct matmul *p)
{
    const struct tensor *left = p->left;

    CHECK(p->a.dtype == DTYPE_F32 && p->b.dtype == DTYPE_F32);
    CHECK(!p->accumulator);
    CHECK(p->c.dtype == DTYPE_F32 && p->c.stride[1] == 1 && !p->strips);
    CHECK(p->a.shape[0] == p->c.shape[0] && p->b.shape[1] == p->c.shape[1]);
    CHECK(p->b.shape[0] == p->a.shape[1]);
    CHECK(!p->bias || (p->bias->dtype == DTYPE_F32 &&
                       p->bias->shape[0] == p->c.shape[1]));
    CHECK(!left || (left->dtype == DTYPE_F32 && left->stride[1] == 1 &&
                    left->shape[0] == p->c.shape[0] &&
                    left->shape[1] == p->c.shape[1]));
    CHECK(!p->continues || !left || left->data != p->c.data);
    sum_order_check(p->order, p->a.shape[1], p->continues);
}

status cuda_matmul(struct stream *stream, const struct matmul *p)
{
    const struct sum_order *order = p->order;
    const struct sum_segment *segments;
    int64_t tiles;

    matmul_check(p);
    TRY(cuda_copy(stream, order->segments,
                  (size_t)order->segment_count * sizeof *segments,
                  (const void **)&segments));
    const struct tiled product = {
        .a = {.data = p->a.data, .outer = p->a.stride[0],
              .inner = p->a.stride[1]},
        .b = {.data = p->b.data, .outer = p->b.stride[0],
              .inner = p->b.stride[1], .summed = true},
        .c = p->c.data, .c_stride = p->c.stride[0], .m = p->c.shape[0],
        .n = p->c.shape[1], .segments = segments,
        .segment_count = order->segment_count, .continues = p->continues,
        .bias = p->bias ? p->bias->data : NULL,
        .left = p->left ? p->left->data : NULL,
        .left_stride = p->left ? p->left->stride[0] : 0,
        .column_tiles = parts_of(p->c.shape[1], PRODUCT_TILE)};
    tiles = parts_of(product.m, PRODUCT_TILE) * product.column_tiles;
    if (order->leaves == 1) LAUNCH(stream, matmul_leaf, tiles, &product);
    else LAUNCH(stream, matmul_tree, tiles, &product);
    return OK;
}
