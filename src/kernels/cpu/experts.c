/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - rows of experts back to their tokens, gradients of gates, and
 * sums of rows. Threads share tokens, or strips of columns of experts. */
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/expert_index.h"
#include "kernels/lanes.h"

enum { STRIP = 128 }; /* columns */

static void *at(const struct tensor *t, int64_t row, int64_t column)
{
    return element_at(t->data, t->dtype, row * t->stride[0] + column);
}

/* ---- combine ---- */

/* Columns [column, column + count) of a token. */
struct span {
    int64_t token, column;
    int count;
};

/* sum = fma(gate, row, sum), or sum + row. */
ELEMENTARY void row_add(enum dtype dtype, float *sum, const void *row,
                        const float *gate, int count)
{
    if (gate)
        SIMD for (int j = 0; j < count; j++)
            sum[j] = __builtin_fmaf(*gate, element_get(row, dtype, j), sum[j]);
    else
        SIMD for (int j = 0; j < count; j++)
            sum[j] = sum[j] + element_get(row, dtype, j);
}

static void span_sum(const struct experts_combine *p,
                     const struct expert_order *order, struct span span,
                     float (*sums)[STRIP])
{
    const float *gates = p->gates;

    memset(sums[0], 0, sizeof *sums);
    for (int i = 0; i < order->count; i++) {
        const int64_t entry = span.token * p->choices + order->choice[i];
        const void *row = at(&p->rows, p->places[entry], span.column);
        const float *gate = gates ? gates + entry : NULL;
        float *sum = sums[order->slot[i]];

        if (order->starts[i]) memset(sum, 0, sizeof *sums);
        ELEMENT_CHOOSE(p->rows.dtype, row_add, sum, row, gate, span.count);
    }
    for (int i = 0; i < order->merges; i++) {
        float *left = sums[order->left[i]];
        const float *right = sums[order->right[i]];

        SIMD for (int j = 0; j < span.count; j++) left[j] = left[j] + right[j];
    }
    SIMD for (int j = 0; j < span.count; j++) sums[0][j] = sums[0][j] + 0.0f;
}

ELEMENTARY void left_add(enum dtype dtype, float *sum, const void *left,
                         int count)
{
    SIMD for (int j = 0; j < count; j++)
        sum[j] = element_get(left, dtype, j) + sum[j];
}

ELEMENTARY void span_store(enum dtype dtype, void *y, const float *sum,
                           int count)
{
    SIMD for (int j = 0; j < count; j++) element_set(y, dtype, j, sum[j]);
}

static void combine_body(void *argument, int index, int threads)
{
    const struct experts_combine *p = argument;
    float sums[CHOICES_MAX][STRIP];
    int64_t first, last;

    threads_split(p->y.shape[0], 1, index, threads, &first, &last);
    for (int64_t token = first; token < last; token++) {
        struct expert_order order;

        expert_order_make(p, token, &order);
        for (int64_t column = 0; column < p->y.shape[1]; column += STRIP) {
            const int64_t rest = p->y.shape[1] - column;
            const int count = rest < STRIP ? (int)rest : STRIP;

            span_sum(p, &order, (struct span){token, column, count}, sums);
            if (p->left)
                ELEMENT_CHOOSE(p->left->dtype, left_add, sums[0],
                               at(p->left, token, column), count);
            ELEMENT_CHOOSE(p->y.dtype, span_store, at(&p->y, token, column),
                           sums[0], count);
        }
    }
}

status CPU(experts_combine)(struct stream *stream,
                            const struct experts_combine *p)
{
    struct experts_combine call = *p;

    experts_combine_check(p);
    CHECK(dtype_real(p->y.dtype) == DTYPE_F32);
    CHECK(dtype_real(p->rows.dtype) == DTYPE_F32);
    cpu_run(stream, p->y.shape[0] * p->y.shape[1] * p->choices, combine_body,
            &call);
    return OK;
}

/* ---- gates ---- */

ELEMENTARY void dots(enum dtype rows, enum dtype of_dy,
                     const struct experts_gates *p, int64_t first,
                     int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        const struct elements dy = {at(&p->dy, i / p->choices, 0), of_dy};
        float *out = (float *)p->dgates.data +
                     i / p->choices * p->dgates.stride[0] + i % p->choices;

        *out = 0;
        if (p->places[i] < 0) continue;
        *out = lanes_dot(dy, (struct elements){at(&p->rows, p->places[i], 0),
                                               rows}, p->dy.shape[1]);
    }
}

/* Rows may be of another type than dy. */
ELEMENTARY void dots_of(enum dtype dy, const struct experts_gates *p,
                        int64_t first, int64_t last)
{
    ELEMENT_CHOOSE(p->rows.dtype, dots, dy, p, first, last);
}

static void gates_body(void *argument, int index, int threads)
{
    const struct experts_gates *p = argument;
    int64_t first, last;

    threads_split(p->dy.shape[0] * p->choices, 1, index, threads, &first,
                  &last);
    ELEMENT_CHOOSE(p->dy.dtype, dots_of, p, first, last);
}

status CPU(experts_gates)(struct stream *stream, const struct experts_gates *p)
{
    struct experts_gates call = *p;

    CHECK(p->dgates.dtype == DTYPE_F32 && p->dgates.shape[1] == p->choices);
    CHECK(p->dgates.shape[0] == p->dy.shape[0]);
    CHECK(dtype_real(p->dy.dtype) == DTYPE_F32 && p->dy.stride[1] == 1);
    CHECK(dtype_real(p->rows.dtype) == DTYPE_F32 && p->rows.stride[1] == 1);
    CHECK(p->rows.shape[1] == p->dy.shape[1]);
    cpu_run(stream, p->dy.shape[0] * p->dy.shape[1] * p->choices, gates_body,
            &call);
    return OK;
}

/* ---- sums of rows ---- */

/* Columns of an expert. */
struct strip {
    const struct experts_sums *p;
    int expert, count;
    int64_t column;
};

ELEMENTARY void chain_add(enum dtype dtype, float *chain, const void *row,
                          const float *scale, int count)
{
    if (scale)
        SIMD for (int j = 0; j < count; j++)
            chain[j] = chain[j] + element_scaled(element_get(row, dtype, j),
                                                 *scale, dtype);
    else
        SIMD for (int j = 0; j < count; j++)
            chain[j] = chain[j] + element_get(row, dtype, j);
}

/* chain = rows [first, last) of the expert. */
static void granule_sum(const struct strip *s, int64_t first, int64_t last,
                        float *chain)
{
    const struct experts_sums *p = s->p;
    const struct expert_groups *groups = p->groups;
    const float *scales = p->a.scales;

    memset(chain, 0, sizeof *chain * STRIP);
    for (int64_t k = first; k < last; k++) {
        const int64_t g = expert_place(groups, s->expert, k);
        const void *row = at(&p->a.matrix, expert_row(groups, &p->a, g),
                             s->column);
        const float *scale = scales ? scales + groups->entries[g] : NULL;

        ELEMENT_CHOOSE(p->a.matrix.dtype, chain_add, chain, row, scale,
                       s->count);
    }
}

static void sums_to(float *to, const float *from, bool assign, int count)
{
    if (assign) memcpy(to, from, sizeof *to * (size_t)count);
    else
        SIMD for (int j = 0; j < count; j++) to[j] = to[j] + from[j];
}

static void strip_run(const struct strip *s)
{
    const struct experts_sums *p = s->p;
    const int leaves = p->order->leaves;
    float sums[LEAVES_MAX][STRIP], chain[STRIP];
    float *c = (float *)p->c.data + s->expert * p->c.stride[0] + s->column;
    bool there[LEAVES_MAX] = {p->continues};

    if (p->continues) sums_to(sums[0], c, true, s->count);
    for (int64_t i = 0; i < p->order->segment_count; i++) {
        const struct sum_segment of =
            expert_segment(p->groups, s->expert, &p->order->segments[i]);
        const int64_t end = of.first + of.length;

        for (int64_t k = of.first; k < end; k += GRANULE) {
            granule_sum(s, k, k + GRANULE < end ? k + GRANULE : end, chain);
            sums_to(sums[of.leaf], chain, !there[of.leaf], s->count);
            there[of.leaf] = true;
        }
    }
    for (int apart = 1; apart < leaves; apart *= 2)
        for (int leaf = 0; leaf + apart < leaves; leaf += 2 * apart) {
            if (!there[leaf + apart]) continue;
            sums_to(sums[leaf], sums[leaf + apart], !there[leaf], s->count);
            there[leaf] = true;
        }
    if (there[0]) sums_to(c, sums[0], !p->adds, s->count);
    else if (!p->adds) memset(c, 0, sizeof *c * (size_t)s->count);
}

static void sums_body(void *argument, int index, int threads)
{
    const struct experts_sums *p = argument;
    const int64_t strips = (p->c.shape[1] + STRIP - 1) / STRIP;
    int64_t unit = 0;

    for (int e = 0; e < p->groups->experts; e++)
        for (int64_t i = 0; i < strips; i++, unit++) {
            const int64_t column = i * STRIP, rest = p->c.shape[1] - column;
            const struct strip s = {p, e, rest < STRIP ? (int)rest : STRIP,
                                    column};

            if (unit % threads == index) strip_run(&s);
        }
}

status CPU(experts_sums)(struct stream *stream, const struct experts_sums *p)
{
    struct experts_sums call = *p;

    expert_groups_check(p->groups);
    expert_rows_check(p->groups, &p->a, p->a.matrix.dtype);
    CHECK(p->c.dtype == DTYPE_F32 && p->c.shape[0] == p->groups->experts);
    CHECK(p->c.shape[1] == p->a.matrix.shape[1] && p->c.stride[1] == 1);
    CHECK(p->order->leaves >= 1 && p->order->leaves <= LEAVES_MAX);
    CHECK(!p->continues || (p->order->leaves == 1 && !p->adds));
    cpu_run(stream, p->groups->offsets[p->groups->experts] * p->c.shape[1],
            sums_body, &call);
    return OK;
}
