/* SPDX-License-Identifier: Apache-2.0 */
/* experts.cu - products of all experts in one call, and the ways of rows back
 * to their tokens. No row is copied: tiles are read where tokens lie. */
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/product.h"

/* ---- rows times the matrix of their expert ---- */


/* Expert and first row of a tile of rows: experts follow each other, each with
 * as many tiles as its rows take. False: there are no more. */
DEVICE bool tile_expert(const struct expert_groups *groups, int64_t tile,
                        int *expert, int64_t *row)
{
    for (int e = 0; e < groups->experts; e++) {
        const int64_t rows = groups->offsets[e + 1] - groups->offsets[e];
        const int64_t tiles = (rows + PRODUCT_TILE - 1) / PRODUCT_TILE;

        if (tile < tiles) {
            *expert = e;
            *row = tile * PRODUCT_TILE;
            return true;
        }
        tile -= tiles;
    }
    return false;
}

DEVICE void rows_product(const struct experts_call *call,
                         enum granule_kind kind, bool one)
{
    struct tiled p = call->product;
    struct product_expert of = {&call->groups, 0, false};
    const struct product_work w = {&p, &of, kind, one};
    const enum dtype dtype = product_dtype(kind);
    int64_t tile[2];
    struct patch sum;

    if (!tile_expert(&call->groups, BLOCK / p.column_tiles, &of.number,
                     &tile[0]))
        return;
    tile[1] = BLOCK % p.column_tiles * PRODUCT_TILE;
    p.m = call->groups.offsets[of.number + 1] -
          call->groups.offsets[of.number];
    p.b.data = element_at(p.b.data, dtype, of.number * call->b_stride);
    p.c = element_at(p.c, p.c_dtype,
                     call->groups.offsets[of.number] * p.c_stride);
    if (p.bias)
        p.bias = element_at(p.bias, dtype, of.number * call->bias_stride);
    product_sum(&w, tile, &sum);
    patch_store(&w, tile, &sum);
}

PRODUCT_KERNELS(CUDA_WIDE_KERNEL, experts_product, rows_product)

/* ---- sums over the rows of an expert ---- */

/* An expert without a row in the order becomes +0, or stays as it is. */
DEVICE void rows_gradient(const struct experts_call *call,
                          enum granule_kind kind, bool one)
{
    const int64_t tiles = call->row_tiles * call->product.column_tiles;
    const int64_t number = BLOCK % tiles;
    const struct product_expert of = {&call->groups, (int)(BLOCK / tiles),
                                      true};
    struct tiled p = call->product;
    const struct product_work w = {&p, &of, kind, one};
    const int64_t tile[2] = {number / p.column_tiles * PRODUCT_TILE,
                             number % p.column_tiles * PRODUCT_TILE};
    struct patch sum;

    p.c = (float *)p.c + of.number * call->c_stride;
    if (call->adds) {
        p.left = p.c;
        p.left_stride = p.c_stride;
    }
    if (!product_sum(&w, tile, &sum) && call->adds) return;
    patch_store(&w, tile, &sum);
}

PRODUCT_KERNELS(CUDA_WIDE_KERNEL, experts_gradient, rows_gradient)

/* A thread has a column of an expert. */
CUDA_KERNEL(experts_sums)
{
    const struct product_expert of = {&p->groups,
                                      (int)(BLOCK / p->column_blocks), false};
    const int64_t column = BLOCK % p->column_blocks * BLOCK_THREADS + THREAD;
    float *const to = p->c + of.number * p->c_stride + column;
    struct number_tree tree = {{0}, 0};
    bool there = p->continues;
    float sum;
    int leaf = 0;

    if (column >= p->width) return;
    sum = there ? *to : 0;
    for (int64_t n = 0; n < p->segment_count; n++) {
        const struct sum_segment s =
            expert_segment(&p->groups, of.number, &p->segments[n]);

        if (s.leaf != leaf) {
            number_push(&tree, leaf, sum, there);
            leaf = s.leaf;
            there = false;
        }
        for (int64_t first = 0; first < s.length; first += GRANULE) {
            float chain = 0;

            for (int64_t k = first; k < s.length && k < first + GRANULE; k++)
                chain = chain + operand_gather(&p->a, s.first + k, column, &of,
                                               p->a.dtype);
            sum = there ? sum + chain : chain;
            there = true;
        }
    }
    number_root(&tree, &sum, &there);
    if (there) *to = p->adds ? *to + sum : sum;
    else if (!p->adds) *to = 0;
}

/* ---- rows back to tokens ---- */

struct order_shared { struct expert_order order; };

DEVICE float token_sum(const struct experts_combine *p,
                       const struct expert_order *order, int64_t token,
                       int64_t column)
{
    float sums[CHOICES_MAX];

    for (int i = 0; i < order->count; i++) {
        const int64_t entry = token * p->choices + order->choice[i];
        const float row =
            element_get(p->rows.data, p->rows.dtype,
                        p->places[entry] * p->rows.stride[0] + column);
        const float before = order->starts[i] ? 0 : sums[order->slot[i]];

        sums[order->slot[i]] =
            p->gates ? __builtin_fmaf(((const float *)p->gates)[entry], row,
                                      before)
                     : before + row;
    }
    for (int i = 0; i < order->merges; i++)
        sums[order->left[i]] = sums[order->left[i]] + sums[order->right[i]];
    return order->count > 0 ? sums[0] + 0.0f : 0.0f;
}

/* A block has a token. */
CUDA_KERNEL(experts_combine)
{
    const int64_t token = BLOCK;
    SHARED(struct order_shared, s);

    if (THREAD == 0) expert_order_make(&p->of, token, &s->order);
    BARRIER;
    for (int64_t column = THREAD; column < p->of.y.shape[1];
         column += BLOCK_THREADS) {
        float sum = token_sum(&p->of, &s->order, token, column);

        if (p->left.data)
            sum = element_get(p->left.data, p->left.dtype,
                              token * p->left.stride[0] + column) + sum;
        element_set(p->of.y.data, p->of.y.dtype,
                    token * p->of.y.stride[0] + column, sum);
    }
}

/* 16 threads have a choice. */
CUDA_KERNEL(experts_gates)
{
    const struct experts_gates *of = &p->of;
    const int64_t i = BLOCK * BLOCK_ROWS + THREAD / LANES;
    const int64_t token = i / of->choices;
    const bool there = token < of->dy.shape[0];
    const int32_t place = there ? of->places[i] : -1;
    float sum = 0;
    SHARED(struct lanes_shared, s);

    for (int64_t j = THREAD % LANES; place >= 0 && j < of->dy.shape[1];
         j += LANES)
        sum = __builtin_fmaf(
            element_get(of->dy.data, of->dy.dtype,
                        token * of->dy.stride[0] + j),
            element_get(of->rows.data, of->rows.dtype,
                        place * of->rows.stride[0] + j),
            sum);
    sum = lanes_of_row(s, sum);
    if (there && THREAD % LANES == 0)
        ((float *)of->dgates.data)[token * of->dgates.stride[0] +
                                   i % of->choices] = sum;
}
