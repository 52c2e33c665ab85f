/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - products for tests: all forms of operands, segments with holes,
 * leaves, and what follows the sum. */
#ifndef LOCKSTEP_TESTS_KERNELS_PRODUCT_H
#define LOCKSTEP_TESTS_KERNELS_PRODUCT_H

#include "tests/unit/kernels/room.h"

enum { SEGMENTS_MAX = 64, PAD = 3 };

static int64_t row_pad = PAD; /* elements after a row of a matrix */

/* One product; every case runs with a and b in each of their forms. */
struct matmul_case {
    int64_t m, n, k;
    int leaves, segments_per_leaf;
    bool continues, bias, left, in_place;
};

struct a_product {
    struct matmul p;
    struct sum_order order;
    struct sum_segment segments[SEGMENTS_MAX];
    struct tensor bias, left;
};

/* Cuts k elements into equal runs for leaves and uneven ones for segments,
 * with a hole of one element wherever one fits. */
static inline void order_build(struct a_product *x, const struct matmul_case *c)
{
    int count = c->leaves * c->segments_per_leaf;

    assert_true(count <= SEGMENTS_MAX);
    for (int i = 0; i < count; i++) {
        int64_t first = c->k * i / count, end = c->k * (i + 1) / count;

        x->segments[i].first = first;
        x->segments[i].length = end - first > 20 && i % 3 == 1
                                    ? end - first - 1
                                    : end - first;
        x->segments[i].leaf = i / c->segments_per_leaf;
    }
    x->order = (struct sum_order){x->segments, count, c->leaves};
}

/* A matrix with padded rows, transposed in memory if `turned`. */
static inline struct tensor matrix(struct arena *arena, int64_t rows,
                                   int64_t columns, bool turned,
                                   enum dtype dtype, uint64_t seed)
{
    const int64_t pad = row_pad;
    int64_t r = turned ? columns : rows, c = (turned ? rows : columns) + pad;
    struct tensor t = tensor_2d(room_numbers(arena, r * c, dtype, seed), dtype,
                                r, c);

    t = tensor_cols(t, 0, c - pad);
    return turned ? tensor_transpose(t) : t;
}

/* dtype of a, b and bias; c and left have the other two types. */
struct product_types {
    enum dtype dtype, c, left;
};

static inline void product_build_of(struct a_product *x, struct arena *arena,
                                    const struct matmul_case *c, int form,
                                    struct product_types types)
{
    const enum dtype dtype = types.dtype;

    memset(x, 0, sizeof *x);
    order_build(x, c);
    x->p.a = matrix(arena, c->m, c->k, form & 1, dtype, 1);
    x->p.b = matrix(arena, c->k, c->n, form >> 1 & 1, dtype, 2);
    x->p.c = matrix(arena, c->m, c->n, false, types.c, 3);
    x->bias = tensor_1d(room_numbers(arena, c->n, dtype, 4), dtype, c->n);
    x->left = c->in_place ? x->p.c
                          : matrix(arena, c->m, c->n, false, types.left, 5);
    x->p.order = &x->order;
    x->p.continues = c->continues;
    x->p.bias = c->bias ? &x->bias : NULL;
    x->p.left = c->left || c->in_place ? &x->left : NULL;
}

static inline void product_build(struct a_product *x, struct arena *arena,
                                 const struct matmul_case *c, int form,
                                 enum dtype dtype)
{
    product_build_of(x, arena, c, form,
                     (struct product_types){dtype, dtype, dtype});
}

static inline size_t c_bytes(const struct a_product *x)
{
    return (size_t)(x->p.c.shape[0] * x->p.c.stride[0]) *
           (size_t)dtype_bytes(x->p.c.dtype);
}

/* The product once more, with a result of its own, which is still as it was
 * before `x` ran. Made before that; operands are shared. */
static inline void product_twin(struct a_product *twin, struct arena *arena,
                                const struct a_product *x)
{
    *twin = *x;
    twin->p.c.data = room_take(arena, (int64_t)c_bytes(x), 1);
    memcpy(twin->p.c.data, x->p.c.data, c_bytes(x));
    if (x->left.data == x->p.c.data) {
        twin->left = twin->p.c;
        twin->p.left = &twin->left;
    }
}

/* Its result as that of another, for the next run. */
static inline void product_again(struct a_product *x,
                                 const struct a_product *fresh)
{
    memcpy(x->p.c.data, fresh->p.c.data, c_bytes(x));
}

#endif
