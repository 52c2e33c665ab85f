/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c - starts the kernels of matmul.cu. */
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"

/* Whether c, or what is added to it, is of the operands' type or float32. */
static bool is_result(const struct tensor *t, enum dtype dtype)
{
    return (t->dtype == dtype || t->dtype == DTYPE_F32) && t->stride[1] == 1;
}

static void matmul_check(const struct matmul *p, enum dtype dtype)
{
    const struct tensor *left = p->left;

    CHECK(p->a.dtype == dtype && p->b.dtype == dtype);
    CHECK(!p->strips && is_result(&p->c, dtype));
    CHECK(!p->continues || p->c.dtype == DTYPE_F32);
    CHECK(p->a.shape[0] == p->c.shape[0] && p->b.shape[1] == p->c.shape[1]);
    CHECK(p->b.shape[0] == p->a.shape[1]);
    CHECK(!p->bias || (p->bias->dtype == dtype &&
                       p->bias->shape[0] == p->c.shape[1]));
    CHECK(!left || (is_result(left, dtype) &&
                    left->shape[0] == p->c.shape[0] &&
                    left->shape[1] == p->c.shape[1]));
    CHECK(!p->continues || !left || left->data != p->c.data);
    sum_order_check(p->order, p->a.shape[1], p->continues);
}

static status exact_run(struct stream *stream, const struct matmul *p,
                        enum granule_kind kind)
{
    const struct accumulator *accumulator = p->accumulator;
    const struct sum_order *order = p->order;
    const struct sum_segment *segments;

    if (accumulator) kind = GRANULE_CUT;
    TRY(cuda_copy(stream, order->segments,
                  (size_t)order->segment_count * sizeof *segments,
                  (const void **)&segments));
    const struct matmul_leaf_call call = {{
        .a = {.data = p->a.data, .outer = p->a.stride[0],
              .inner = p->a.stride[1]},
        .b = {.data = p->b.data, .outer = p->b.stride[0],
              .inner = p->b.stride[1], .summed = true},
        .c = p->c.data, .c_dtype = p->c.dtype, .c_stride = p->c.stride[0],
        .m = p->c.shape[0], .n = p->c.shape[1], .segments = segments,
        .segment_count = order->segment_count, .continues = p->continues,
        .bias = p->bias ? p->bias->data : NULL,
        .left = p->left ? p->left->data : NULL,
        .left_dtype = p->left ? p->left->dtype : DTYPE_F32,
        .left_stride = p->left ? p->left->stride[0] : 0,
        .column_tiles = parts_of(p->c.shape[1], PRODUCT_TILE),
        .accumulator = accumulator ? *accumulator
                                   : (struct accumulator){.bits = 0}}};

    return cuda_launch(stream, product_kernel(CUDA_matmul_leaf, kind, order),
                       parts_of(call.call.m, PRODUCT_TILE) *
                           call.call.column_tiles, &call, sizeof call);
}

static status product_run(struct stream *stream, const struct matmul *p,
                          enum granule_kind kind)
{
    matmul_check(p, product_dtype(p->accumulator ? GRANULE_CUT : kind));
    if (p->accumulator == NULL && !p->own && cuda_products_take(stream, kind))
        return cuda_products_run(stream, p, kind, exact_run);
    TRY(exact_run(stream, p, kind));
    return p->norm != NULL ? cuda_norm(stream, p->c, p->norm) : OK;
}

status cuda_matmul(struct stream *stream, const struct matmul *p)
{
    return product_run(stream, p, GRANULE_CHAIN);
}

status cuda_matmul_bf16_pairs(struct stream *stream, const struct matmul *p)
{
    return product_run(stream, p, GRANULE_PAIRS);
}

status cuda_matmul_bf16_tiles(struct stream *stream, const struct matmul *p)
{
    return product_run(stream, p, GRANULE_TILES);
}

status cuda_matmul_f16(struct stream *stream, const struct matmul *p)
{
    return product_run(stream, p, GRANULE_WIDENED);
}
