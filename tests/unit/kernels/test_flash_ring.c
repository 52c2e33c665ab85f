/* SPDX-License-Identifier: Apache-2.0 */
/* test_flash_ring.c - attention on tensor cores of queries and keys that meet
 * block by block, as in a ring of ranks, under the emulator of CUDA: what is
 * merged is as near float64 as whole calls are. */
#include "kernels/cuda/flash.h"

#include "kernels/cuda/rows.h"
#include "tests/test.h"
#include "tests/unit/kernels/flash_cases.h"

static struct tensor numbers(struct arena *arena, int64_t rows, int heads,
                             int width)
{
    return tensor_3d(aligned(arena, 4 * rows * heads * width), DTYPE_F32, rows,
                     heads, width);
}

static struct attention_node node_rows(const struct attention_node *of,
                                       int64_t first, int64_t count)
{
    return (struct attention_node){rows_from(of->values, first, count),
                                   rows_from(of->maximum, first, count),
                                   rows_from(of->denominator, first, count)};
}

/* Blocks of keys come one by one, the own one first. */
static void ring_forward(const struct attention *whole, int64_t span,
                         const struct attention_node node[2])
{
    struct stream none = {0};

    for (int64_t own = 0; own < whole->queries; own += span)
        for (int64_t keys = own; keys >= 0; keys -= span) {
            const struct attention_node *to = &node[keys < own];
            struct attention all = *whole, p;

            all.out = to->values;
            all.lse = to->maximum;
            all.denominator = to->denominator;
            p = block_of(&all, (struct span){own, span},
                         (struct span){keys, span});
            assert_true(cuda_flash_takes(&p));
            IS_OK(cuda_flash_forward(&none, &p));
            for (int64_t i = 0; i < whole->sequences; i++) {
                const int64_t row = i * whole->queries + own;
                struct attention_node rows[2] = {
                    node_rows(&node[0], row, span),
                    node_rows(&node[1], row, span)};

                if (keys < own)
                    IS_OK(cuda_attention_merge(&none, &rows[0], &rows[1]));
                if (keys == 0)
                    IS_OK(cuda_attention_finish(
                        &none, rows_from(whole->out, row, span),
                        rows_from(whole->lse, row, span), &rows[0]));
            }
        }
}

static void add_span(const struct attention *p, struct tensor to,
                     struct tensor from, int64_t first, int64_t span)
{
    const int64_t row = to.shape[1] * to.shape[2];

    for (int64_t i = 0; i < p->sequences; i++) {
        float *const sum = (float *)to.data + (i * p->queries + first) * row;
        const float *const more =
            (const float *)from.data + (i * p->queries + first) * row;

        for (int64_t at = 0; at < span * row; at++) sum[at] += more[at];
    }
}

/* dk and dv of all query heads, which read the same keys. */
static void head_backward(const struct attention *p, int kv)
{
    const int group = p->heads / p->kv_heads, width = p->head_width;
    struct tensor *of[6];
    struct attention one = *p;
    struct stream none = {0};

    memcpy(of, ((struct tensor *[]){&one.q, &one.dout, &one.dk, &one.dv,
                                    &one.k, &one.v}), sizeof of);
    for (int i = 0; i < 6; i++) {
        of[i]->data = (char *)of[i]->data +
                      (i < 4 ? kv * group : kv) * width *
                          dtype_bytes(of[i]->dtype);
        of[i]->shape[1] = group;
        if (i >= 4) of[i]->stride[1] = 0;
    }
    one.lse.data = (float *)one.lse.data + kv * group;
    one.delta.data = (float *)one.delta.data + kv * group;
    one.heads = one.kv_heads = group;
    one.alibi.head = kv * group;
    one.leaves = 1;
    assert_true(cuda_flash_takes_back(&one));
    IS_OK(cuda_flash_backward(&none, &one, NULL));
}

/* sums: dq dk dv, and what is added to them. */
static void ring_backward(const struct attention *whole, int64_t span,
                          struct tensor sums[2][3])
{
    struct stream none = {0};

    for (int64_t own = 0; own < whole->queries; own += span)
        for (int64_t at = own; at < own + whole->queries; at += span) {
            const int64_t other = at % whole->queries;
            const struct span here = {own, span}, there = {other, span};
            const struct tensor *to = sums[other != own];
            struct attention all = *whole, p;

            all.out = (struct tensor){0};
            all.dq = to[0], all.dk = to[1], all.dv = to[2];
            if (other <= own) {
                p = block_of(&all, here, there);
                p.half = ATTENTION_OF_QUERIES;
                assert_true(cuda_flash_takes_back(&p));
                IS_OK(cuda_flash_backward(&none, &p, NULL));
            }
            if (other >= own) {
                p = block_of(&all, there, here);
                p.half = ATTENTION_OF_KEYS;
                for (int kv = 0; kv < p.kv_heads; kv++) head_backward(&p, kv);
            }
            for (int i = 0; i < 3 && other != own; i++)
                if (i == 0 ? other < own : other > own)
                    add_span(whole, sums[0][i], sums[1][i], own, span);
        }
}

/* Own spans come first, since the sums begin with them. */
static void run_ring(struct arena *arena, const struct attention *whole,
                     int ranks)
{
    const int64_t rows = whole->sequences * whole->queries;
    const int64_t span = whole->queries / ranks;
    const int heads = whole->heads, width = whole->head_width;
    struct attention_node node[2];
    struct attention all = *whole;
    struct tensor sums[2][3];
    struct stream none = {0};

    for (int i = 0; i < 2; i++) {
        float *two = aligned(arena, 8 * rows * heads);

        node[i].values = numbers(arena, rows, heads, width);
        node[i].maximum = tensor_2d(two, DTYPE_F32, rows, heads);
        node[i].denominator =
            tensor_2d(two + rows * heads, DTYPE_F32, rows, heads);
        for (int n = 0; n < 3; n++)
            sums[i][n] = numbers(arena, rows, heads, width);
    }
    ring_forward(&all, span, node);
    all.delta = tensor_2d(room_take(arena, rows * heads, 4), DTYPE_F32, rows,
                          heads);
    IS_OK(cuda_attention_delta(&none, &all));
    ring_backward(&all, span, sums);
    IS_OK(cuda_attention_heads(&none, all.dq, sums[0][0], 1));
    IS_OK(cuda_attention_heads(&none, all.dk, sums[0][1], all.leaves));
    IS_OK(cuda_attention_heads(&none, all.dv, sums[0][2], all.leaves));
}

static void ring_run(int index, const struct flash_case *c,
                     struct arena *arena)
{
    struct call have, want;

    call_build(&have, arena, c, DTYPE_BF16);
    call_build(&want, arena, c, DTYPE_F64);
    run_ring(arena, &have.p, 4);
    run_float64(&want);
    compare(index, &have, &want);
}

/* Spans begin anywhere in a tile; in some a query sees no key. */
TEST(blocks_of_a_ring_are_near_float64)
{
    static const struct flash_case all[] = {
        {2, 4 * 37, 4, 2, 64, 0, 0, 0, 0, 0, 0, 0},
        {1, 4 * 64, 2, 2, 128, 60, 0, 0, 0, 0, 0, 0},
        {2, 4 * 33, 2, 1, 72, 0, 0, 45, 2, 0, 2, 0},
        {1, 4 * 50, 2, 1, 96, 1, 0, 0, 0, 0, 0, 0},
        {1, 4 * 21, 2, 1, 192, 0, 30, 0, 0, 3.0, 0, 0},
        {2, 4 * 19, 2, 2, 192, 0, 0, 0, 0, 0, 0, 128}};

    each_case(all, ROWS(all), 2000, ring_run);
}

TEST_MAIN(blocks_of_a_ring_are_near_float64)
