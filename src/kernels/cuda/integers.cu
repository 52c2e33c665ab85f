/* SPDX-License-Identifier: Apache-2.0 */
/* integers.cu - products of int8 and ternary codes. Sums of a leaf are exact;
 * leaves meet in the tree of product.h. */
#include "kernels/cuda/product.h"
#include "kernels/element.h"

enum { CODES_DEPTH = 32, CODES_PAD = 4 };
struct integers_shared {
    int8_t a[PRODUCT_TILE][CODES_DEPTH + CODES_PAD];
    int8_t b[PRODUCT_TILE][CODES_DEPTH + CODES_PAD];
};
struct counted { int32_t at[PATCH][PATCH]; };

/* Elements sum[0] to sum[1], at most CODES_DEPTH, of PRODUCT_TILE rows from
 * `first` on; 0 where there are none. */
DEVICE void codes_load(int8_t (*out)[CODES_DEPTH + CODES_PAD],
                       const struct tensor *x, int64_t first,
                       const int64_t sum[2])
{
    UNROLLED for (int i = 0; i < PRODUCT_TILE * CODES_DEPTH / BLOCK_THREADS;
                  i++) {
        const int element = i * BLOCK_THREADS + THREAD;
        const int at = element / CODES_DEPTH, k = element % CODES_DEPTH;
        const int64_t row = first + at;

        out[at][k] = row < x->shape[0] && sum[0] + k < sum[1]
                         ? ((const int8_t *)x->data)[row * x->stride[0] +
                                                     sum[0] + k]
                         : 0;
    }
}

DEVICE void counts_step(const struct integers_shared *s, int k,
                        struct counted *t)
{
    const int row = THREAD / SIDE * PATCH, column = THREAD % SIDE * PATCH;

    EACH_OF_PATCH t->at[i][j] += s->a[row + i][k] * s->b[column + j][k];
}

/* t of a leaf. */
DEVICE void leaf_counts(const struct integer_tiles_call *p,
                        struct integers_shared *s, const int64_t tile[2],
                        const struct sum_segment *leaf, struct counted *t)
{
    const int64_t end = leaf->first + leaf->length;

    EACH_OF_PATCH t->at[i][j] = 0;
    for (int64_t k = leaf->first; k < end; k += CODES_DEPTH) {
        const int64_t sum[2] = {k, end};

        codes_load(s->a, &p->of.a, tile[0], sum);
        codes_load(s->b, &p->of.b, tile[1], sum);
        BARRIER;
        LOOPED for (int i = 0; i < CODES_DEPTH; i++) counts_step(s, i, t);
        BARRIER;
    }
}

/* The scale of a row of one of the operands; 1: there is no such row. */
DEVICE float scale_at(const float *scales, int64_t row, int64_t rows,
                      int64_t leaf, int leaves)
{
    return row < rows ? scales[row * leaves + leaf] : 1.0f;
}

DEVICE void product_write(const struct integer_tiles_call *p, int64_t row,
                          int64_t column, const struct patch *sum)
{
    const struct tensor *c = &p->of.c;

    EACH_OF_PATCH {
        const int64_t r = row + i, n = column + j;
        float result = sum->at[i][j];

        if (r >= c->shape[0] || n >= c->shape[1]) continue;
        if (p->bias.data)
            result = result + element_get(p->bias.data, p->bias.dtype, n);
        if (p->left.data)
            result = element_get(p->left.data, p->left.dtype,
                                 r * p->left.stride[0] + n) + result;
        element_set(c->data, c->dtype, r * c->stride[0] + n, result);
    }
}

CUDA_KERNEL(integer_tiles)
{
    const int64_t tile_row = BLOCK / p->column_tiles;
    const int64_t tile[2] = {
        tile_row * PRODUCT_TILE,
        (BLOCK - tile_row * p->column_tiles) * PRODUCT_TILE};
    const int64_t row = tile[0] + THREAD / SIDE * PATCH;
    const int64_t column = tile[1] + THREAD % SIDE * PATCH;
    const int64_t m = p->of.c.shape[0], n = p->of.c.shape[1];
    struct leaf_tree tree;
    struct counted t;
    struct patch sum;
    bool there = false;
    SHARED(struct integers_shared, s);

    tree.waits = 0;
    for (int leaf = 0; leaf < p->leaves; leaf++) {
        if (leaf > 0) leaf_push(&tree, leaf - 1, &sum, true);
        leaf_counts(p, s, tile, &p->segments[leaf], &t);
        EACH_OF_PATCH sum.at[i][j] =
            (float)t.at[i][j] *
            (scale_at(p->of.a_scales, row + i, m, leaf, p->leaves) *
             scale_at(p->of.b_scales, column + j, n, leaf, p->leaves));
        there = true;
    }
    tree_root(&tree, &sum, &there);
    product_write(p, row, column, &sum);
}
