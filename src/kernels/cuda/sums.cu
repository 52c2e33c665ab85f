/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cu - sums over tokens (gradients of vectors), over leaves, of
 * squares. */
#include "kernels/cuda/lanes.h"

/* Granules of one column that are summed at the same time. */
enum { TOKEN_SLOTS = BLOCK_THREADS / TOKEN_COLUMNS };
struct token_shared { float chains[TOKEN_SLOTS][TOKEN_COLUMNS]; };

/* The granules of one accumulator: of each of `runs` runs of tokens `count`,
 * numbered through. */
struct token_granules {
    const struct token_order *order;
    int64_t leaf, first, last, count, all;
    int context, halves;
};

DEVICE struct token_granules granules_of(const struct token_order *order,
                                         int64_t unit)
{
    const int contexts = token_order_contexts(order);
    const int64_t part = unit % order->parts;
    struct token_granules g;

    g.order = order;
    g.leaf = unit / order->parts / contexts;
    g.context = (int)(unit / order->parts % contexts);
    g.halves = order->context_chunks > 1 ? 2 : 1;
    g.first = token_order_part(order, part);
    g.last = token_order_part(order, part + 1);
    g.count = (g.last - g.first + GRANULE - 1) / GRANULE;
    g.all = g.count * order->sequences_per_leaf * g.halves;
    return g;
}

DEVICE float term_of(const struct token_sums_call *p, int64_t token,
                     int64_t column, float chain)
{
    const float dy = value_get(p->dy, token, column);
    float x;

    if (p->term == TERM_ROWS) return chain + dy;
    x = value_get(p->x, token, column);
    if (p->term == TERM_RMS)
        return __builtin_fmaf(dy, x * p->stats[token], chain);
    return __builtin_fmaf(
        dy, (x - p->stats[2 * token]) * p->stats[2 * token + 1], chain);
}

/* The chain of granule `number`. */
DEVICE float granule_of(const struct token_sums_call *p,
                        const struct token_granules *g, int64_t number,
                        int64_t column)
{
    const int64_t run = number / g->count;
    const int64_t base =
        (g->leaf * g->order->sequences_per_leaf + run / g->halves) *
            g->order->length +
        token_order_first(g->order, g->context, (int)(run % g->halves));
    const int64_t first = base + g->first + number % g->count * GRANULE;
    int64_t end = first + GRANULE;
    float chain = 0;

    if (end > base + g->last) end = base + g->last;
    for (int64_t token = first; token < end; token++)
        chain = term_of(p, token, column, chain);
    return chain;
}

/* TOKEN_SLOTS granules at a time, then one thread of each column adds them in
 * order. */
CUDA_KERNEL(token_sums)
{
    const int64_t unit = BLOCK / p->unit_blocks;
    const int64_t column =
        BLOCK % p->unit_blocks * TOKEN_COLUMNS + THREAD % TOKEN_COLUMNS;
    const int slot = THREAD / TOKEN_COLUMNS, at = THREAD % TOKEN_COLUMNS;
    const struct token_granules g = granules_of(&p->order, unit);
    const bool here = column < p->sums.width;
    bool started = p->order.continues;
    float sum = 0;
    SHARED(struct token_shared, s);

    if (here && slot == 0 && started) sum = *view_at(p->sums, unit, column);
    for (int64_t first = 0; first < g.all; first += TOKEN_SLOTS) {
        if (here && first + slot < g.all)
            s->chains[slot][at] = granule_of(p, &g, first + slot, column);
        BARRIER;
        if (slot == 0)
            for (int i = 0; i < TOKEN_SLOTS && first + i < g.all; i++) {
                sum = started ? sum + s->chains[i][at] : s->chains[i][at];
                started = true;
            }
        BARRIER;
    }
    if (here && slot == 0) *view_at(p->sums, unit, column) = sum;
}

/* The tree over `count` rows of a column, `step` rows apart: row `first`
 * becomes the root. */
DEVICE void column_fold(struct view in, int64_t column, int64_t first,
                        const int64_t of[2])
{
    const int64_t count = of[0], step = of[1];

    for (int64_t apart = 1; apart < count; apart *= 2)
        for (int64_t i = 0; i + apart < count; i += 2 * apart) {
            float *left = view_at(in, first + i * step, column);

            *left = *left + *view_at(in, first + (i + apart) * step, column);
        }
}

/* A thread has a column. */
CUDA_KERNEL(fold)
{
    const int64_t column = BLOCK * BLOCK_THREADS + THREAD;
    const int64_t of_parts[2] = {p->parts, 1};
    const int64_t of_leaves[2] = {p->leaves, p->parts};

    if (column >= p->in.width) return;
    for (int64_t leaf = 0; leaf < p->leaves; leaf++)
        column_fold(p->in, column, leaf * p->parts, of_parts);
    column_fold(p->in, column, 0, of_leaves);
    p->out[column] = *view_at(p->in, 0, column);
}

/* LANES threads have a block of SQUARES_BLOCK elements. */
CUDA_KERNEL(sum_squares)
{
    const int64_t number = BLOCK * BLOCK_ROWS + THREAD / LANES;
    const int64_t count = p->x.rows * p->x.width;
    const int64_t first = number * SQUARES_BLOCK;
    int64_t last = first + SQUARES_BLOCK, column = first + THREAD % LANES;
    int64_t row = column / p->x.width;
    double sum = 0;
    SHARED(struct lanes64_shared, s);

    if (last > count) last = count;
    column -= row * p->x.width;
    for (int64_t i = first + THREAD % LANES; i < last; i += LANES) {
        float *at = view_at(p->x, row, column);

        for (column += LANES; column >= p->x.width; column -= p->x.width) row++;
        if (p->factor != 1) *at = *at * p->factor;
        sum = __builtin_fma((double)*at, (double)*at, sum);
    }
    sum = lanes64_of_row(s, sum);
    if (first < count && THREAD % LANES == 0) p->sums[number] = sum;
}

CUDA_KERNEL(squares_tree)
{
    squares_fold(p->sums, p->count);
    if (THREAD == 0) {
        const double norm = __builtin_sqrt(p->sums[0]);

        p->sums[0] = 1 / (norm > p->least ? norm : p->least);
    }
}

CUDA_KERNEL(normalize)
{
    const int64_t i = BLOCK * BLOCK_THREADS + THREAD;

    if (i < p->count) p->x[i] = p->x[i] * (float)*p->factor;
}

/* Memory of several ranks is read once; partial sums wait in a stack. */
CUDA_KERNEL(sum_roots)
{
    const struct device_roots *r = &p->of;
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t i = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;
    const int64_t from = row * r->stride + i, to = row * r->out_stride + i;
    int top = 0;

    if (i >= r->elements) return;
    if (r->integers) { /* their order does not show */
        uint64_t sum = 0;

        for (int k = 0; k < r->count; k++)
            sum += ((const uint64_t *)r->at[k].data)[from];
        ((uint64_t *)r->out)[to] = sum;
        return;
    }
    float part[ROOTS_DEEP];

    for (int k = 0; k < r->count; k++) {
        part[top++] = ((const float *)r->at[k].data)[from];
        for (int64_t m = r->at[k].merges; m > 0; m--) {
            top--;
            part[top - 1] = part[top - 1] + part[top];
        }
    }
    ((float *)r->out)[to] = part[0];
}
