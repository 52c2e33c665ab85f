/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.cu - rows of a table, the gradient of the table, dropout. */
#include "kernels/cuda/words.h"
#include "kernels/cuda/random.h"

/* + 0.0 turns -0 into +0, as in reference/lookup.c. */
CUDA_KERNEL(gather_rows)
{
    const int64_t token = BLOCK / p->row_blocks;
    const int64_t column = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;
    const int32_t row = p->index[token];
    float value = 0;

    if (column >= p->out.width) return;
    if (row >= 0) value = value_get(p->table, row, column) + 0.0f;
    if (p->adds) value = value_get(p->out, token, column) + value;
    value_set(p->out, token, column, value);
}

struct keys_shared { int32_t keys[BLOCK_THREADS]; };

/* tokens [count] becomes the tokens sorted by row, stably: a token's place is
 * the number of tokens with a smaller row, and of earlier ones with the same.
 * A thread has a token. */
CUDA_KERNEL(rows_sort)
{
    const int64_t token = BLOCK * BLOCK_THREADS + THREAD;
    const int32_t own = token < p->count ? p->index[token] : 0;
    int64_t place = 0;
    SHARED(struct keys_shared, s);

    for (int64_t first = 0; first < p->count; first += BLOCK_THREADS) {
        const int64_t left = p->count - first;
        const int some = left < BLOCK_THREADS ? (int)left : BLOCK_THREADS;

        if (THREAD < some) s->keys[THREAD] = p->index[first + THREAD];
        BARRIER;
        for (int i = 0; i < some; i++)
            place += s->keys[i] < own ||
                     (s->keys[i] == own && first + i < token);
        BARRIER;
    }
    if (token < p->count) p->tokens[place] = (int32_t)token;
}

/* How many of the sorted tokens name a row below `row`. */
DEVICE int64_t rows_before(const struct scatter_rows_call *p, int64_t row)
{
    int64_t low = 0, high = p->count;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (p->index[p->tokens[middle]] < row) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* A thread has an element of the table. Leaves wait in the tree's levels as in
 * product.h; one without the row is +0, and a sum of chains is never -0. */
CUDA_WIDE_KERNEL(scatter_rows)
{
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t column = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;
    const int64_t end = rows_before(p, row + 1);
    int64_t i = rows_before(p, row);
    float leaves[LEAVES_MAX];

    if (column >= p->table.width || (i == end && p->order.continues)) return;
    for (int leaf = 0; leaf < p->leaves; leaf++) leaves[leaf] = 0;
    if (p->order.continues) leaves[0] = *view_at(p->table, row, column);
    while (i < end) {
        const int64_t first = p->tokens[i];
        const int64_t leaf = token_order_leaf(&p->order, first);
        float chain = 0;

        for (; i < end && token_order_together(&p->order, first, p->tokens[i]);
             i++)
            chain = chain + value_get(p->dout, p->tokens[i], column);
        if (leaf >= 0) leaves[leaf] = leaves[leaf] + chain;
    }
    for (int apart = 1; apart < p->leaves; apart *= 2)
        for (int at = 0; at + apart < p->leaves; at += 2 * apart)
            leaves[at] = leaves[at] + leaves[at + apart];
    *view_at(p->table, row, column) = leaves[0];
}

CUDA_KERNEL(dropout)
{
    const int64_t row = BLOCK / p->row_blocks;
    const int64_t column = BLOCK % p->row_blocks * BLOCK_THREADS + THREAD;

    if (column >= p->y.width) return;
    const float value = value_get(p->x, row, column) * p->factor;
    const uint32_t word = element_word(p->key, p->rows[row], column);
    const float kept = word >= p->least ? value : 0.0f;

    value_set(p->y, row, column,
              p->left.data ? value_get(p->left, row, column) + kept : kept);
}
