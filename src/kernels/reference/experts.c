/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - products of experts, one after the other, and the ways of rows
 * back to their tokens. */
#include <string.h>
#include "kernels/expert_index.h"
#include "kernels/reference/product.h"

static void *address(const struct tensor *t, int64_t element)
{
    return (char *)t->data + element * dtype_bytes(t->dtype);
}

/* Matrix i of a stack. */
static struct tensor matrix_of(const struct tensor *stack, int64_t i)
{
    struct tensor out = tensor_2d(address(stack, i * stack->stride[0]),
                                  stack->dtype, stack->shape[1],
                                  stack->shape[2]);

    out.stride[0] = stack->stride[1];
    out.stride[1] = stack->stride[2];
    return out;
}

static void product(struct stream *stream, const struct experts_product *p,
                    enum granule_kind kind, enum dtype dtype)
{
    const struct expert_groups *groups = p->groups;

    expert_groups_check(groups);
    expert_rows_check(groups, &p->a, dtype);
    CHECK(p->b.dtype == dtype && p->b.shape[0] == groups->experts);
    CHECK(p->b.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->b.shape[2] == p->c.shape[1] && p->c.stride[1] == 1);
    CHECK(p->c.dtype == REAL_DTYPE || p->c.dtype == dtype);
    CHECK(p->c.shape[0] >= groups->offsets[groups->experts]);
    CHECK(p->accumulator == NULL || dtype == DTYPE_BF16);
    sum_order_check(p->order, p->b.shape[1], false);
    for (int e = 0; e < groups->experts; e++) {
        const int64_t rows = expert_count(groups, e);
        const struct gathered gathered = {groups, e, &p->a, NULL, false};
        struct tensor bias = {0};
        struct matmul one = {
            .c = tensor_rows(p->c, groups->offsets[e], rows),
            .a = tensor_2d(p->a.matrix.data, dtype, rows, p->b.shape[1]),
            .b = matrix_of(&p->b, e), .order = p->order,
            .accumulator = p->accumulator};

        if (p->bias.data != NULL) {
            bias = tensor_1d(address(&p->bias, e * p->bias.stride[0]),
                             p->bias.dtype, p->bias.shape[1]);
            CHECK(bias.dtype == dtype && bias.shape[0] == p->c.shape[1]);
            one.bias = &bias;
        }
        if (rows > 0) NAME(matmul_gathered)(stream, &one, kind, &gathered);
    }
}

/* Whether the expert has a token in the order. */
static bool expert_is_summed(const struct expert_groups *groups, int expert,
                             const struct sum_order *order)
{
    for (int64_t i = 0; i < order->segment_count; i++)
        if (expert_segment(groups, expert, &order->segments[i]).length > 0)
            return true;
    return false;
}

static void matrix_zero(const struct tensor *c)
{
    for (int64_t row = 0; row < c->shape[0]; row++)
        memset(address(c, row * c->stride[0]), 0,
               (size_t)c->shape[1] * sizeof(real));
}

static void gradient(struct stream *stream, const struct experts_gradient *p,
                     enum granule_kind kind, enum dtype dtype)
{
    const struct expert_groups *groups = p->groups;

    expert_groups_check(groups);
    expert_rows_check(groups, &p->a, dtype);
    expert_rows_check(groups, &p->b, dtype);
    CHECK(p->c.dtype == REAL_DTYPE && p->c.stride[2] == 1);
    CHECK(p->c.shape[0] == groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1]);
    CHECK(p->c.shape[2] == p->b.matrix.shape[1]);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    CHECK(p->accumulator == NULL || dtype == DTYPE_BF16);
    for (int e = 0; e < groups->experts; e++) {
        const struct gathered gathered = {groups, e, &p->a, &p->b, true};
        const int64_t rows = expert_count(groups, e);
        struct tensor c = matrix_of(&p->c, e);
        struct matmul one = {
            .c = c, .order = p->order, .continues = p->continues,
            .a = tensor_2d(p->a.matrix.data, dtype, c.shape[0], rows),
            .b = tensor_2d(p->b.matrix.data, dtype, rows, c.shape[1]),
            .left = p->adds ? &c : NULL, .accumulator = p->accumulator};

        if (expert_is_summed(groups, e, p->order))
            NAME(matmul_gathered)(stream, &one, kind, &gathered);
        else if (!p->continues && !p->adds)
            matrix_zero(&c);
    }
}

status NAME(experts_product)(struct stream *stream,
                             const struct experts_product *p)
{
    product(stream, p, GRANULE_CHAIN, REAL_DTYPE);
    return OK;
}

status NAME(experts_gradient)(struct stream *stream,
                              const struct experts_gradient *p)
{
    gradient(stream, p, GRANULE_CHAIN, REAL_DTYPE);
    return OK;
}

#if REAL_BITS == 32
#define NARROW(name, kind, dtype)                                            \
    status reference_experts_product_##name(struct stream *stream,           \
                                            const struct experts_product *p) \
    {                                                                        \
        product(stream, p, kind, dtype);                                     \
        return OK;                                                           \
    }                                                                        \
    status reference_experts_gradient_##name(                                \
        struct stream *stream, const struct experts_gradient *p)             \
    {                                                                        \
        gradient(stream, p, kind, dtype);                                    \
        return OK;                                                           \
    }
NARROW(bf16_pairs, GRANULE_PAIRS, DTYPE_BF16)
NARROW(bf16_tiles, GRANULE_TILES, DTYPE_BF16)
NARROW(f16, GRANULE_WIDENED, DTYPE_F16)
#endif

/* Element of a row of an expert. */
static real row_get(const struct experts_sums *p, int e, int64_t row,
                    int64_t column)
{
    const struct tensor *matrix = &p->a.matrix;
    const int64_t g = p->groups->offsets[e] + row;
    const int64_t at = expert_row(p->groups, &p->a, g) * matrix->stride[0];
    const real x = get(matrix, at + column);

    if (p->a.scales == NULL) return x;
#if REAL_BITS == 32
    return element_scaled(x, ((const real *)p->a.scales)[p->groups->entries[g]],
                          matrix->dtype);
#else
    return x * ((const real *)p->a.scales)[p->groups->entries[g]];
#endif
}

/* One column of a bias: the tree over leaves that have rows. */
static real column_sum(const struct experts_sums *p, int e, int64_t column,
                       real before)
{
    real sums[LEAVES_MAX] = {0};
    bool there[LEAVES_MAX] = {p->continues};
    const int leaves = p->order->leaves;

    sums[0] = before;
    for (int64_t i = 0; i < p->order->segment_count; i++) {
        const struct sum_segment s =
            expert_segment(p->groups, e, &p->order->segments[i]);

        for (int64_t first = 0; first < s.length; first += GRANULE) {
            real chain = 0;

            for (int64_t k = first; k < s.length && k < first + GRANULE; k++)
                chain = chain + row_get(p, e, s.first + k, column);
            sums[s.leaf] = there[s.leaf] ? sums[s.leaf] + chain : chain;
            there[s.leaf] = true;
        }
    }
    for (int step = 1; step < leaves; step *= 2)
        for (int leaf = 0; leaf + step < leaves; leaf += 2 * step) {
            if (!there[leaf + step]) continue;
            sums[leaf] = there[leaf] ? sums[leaf] + sums[leaf + step]
                                     : sums[leaf + step];
            there[leaf] = true;
        }
    return p->adds ? before + sums[0] : sums[0];
}

status NAME(experts_sums)(struct stream *stream, const struct experts_sums *p)
{
    (void)stream;
    expert_groups_check(p->groups);
    expert_rows_check(p->groups, &p->a, p->a.matrix.dtype);
    CHECK(p->c.dtype == REAL_DTYPE && p->c.shape[0] == p->groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1]);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    for (int e = 0; e < p->groups->experts; e++)
        for (int64_t j = 0; j < p->c.shape[1]; j++) {
            real *at = (real *)p->c.data + e * p->c.stride[0] + j;

            if (expert_is_summed(p->groups, e, p->order))
                *at = column_sum(p, e, j,
                                 p->continues || p->adds ? *at : 0);
            else if (!p->continues && !p->adds)
                *at = 0;
        }
    return OK;
}

/* ---- rows back to tokens ---- */

/* Column of a token: the tree over its leaves. */
static real token_sum(const struct experts_combine *p,
                      const struct expert_order *order, int64_t token,
                      int64_t column)
{
    real sums[CHOICES_MAX];

    for (int i = 0; i < order->count; i++) {
        const int64_t entry = token * p->choices + order->choice[i];
        const real row = get(&p->rows, p->places[entry] * p->rows.stride[0] +
                                           column);
        real *sum = &sums[order->slot[i]];

        if (order->starts[i]) *sum = 0;
        *sum = p->gates != NULL
                   ? REAL_FMA(((const real *)p->gates)[entry], row, *sum)
                   : *sum + row;
    }
    for (int i = 0; i < order->merges; i++)
        sums[order->left[i]] = sums[order->left[i]] + sums[order->right[i]];
    return order->count > 0 ? sums[0] + 0 : 0;
}

status NAME(experts_combine)(struct stream *stream,
                             const struct experts_combine *p)
{
    (void)stream;
    experts_combine_check(p);
    for (int64_t token = 0; token < p->y.shape[0]; token++) {
        struct expert_order order;

        expert_order_make(p, token, &order);
        for (int64_t j = 0; j < p->y.shape[1]; j++) {
            real sum = token_sum(p, &order, token, j);

            if (p->left)
                sum = get(p->left, token * p->left->stride[0] + j) + sum;
            set(&p->y, token * p->y.stride[0] + j, sum);
        }
    }
    return OK;
}

status NAME(experts_gates)(struct stream *stream, const struct experts_gates *p)
{
    const int64_t width = p->dy.shape[1];

    (void)stream;
    CHECK(p->dgates.dtype == REAL_DTYPE && p->dgates.shape[1] == p->choices);
    CHECK(p->dgates.shape[0] == p->dy.shape[0]);
    CHECK(p->rows.shape[1] == width && p->rows.stride[1] == 1);
    for (int64_t i = 0; i < p->dy.shape[0] * p->choices; i++) {
        real lanes[LANES] = {0};

        for (int64_t j = 0; p->places[i] >= 0 && j < width; j++)
            lanes[j % LANES] = REAL_FMA(
                get(&p->dy, i / p->choices * p->dy.stride[0] + j),
                get(&p->rows, p->places[i] * p->rows.stride[0] + j),
                lanes[j % LANES]);
        ((real *)p->dgates.data)[i / p->choices * p->dgates.stride[0] +
                                 i % p->choices] = real_lanes_fold(lanes);
    }
    return OK;
}
