/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - rows of a table by index, and the gradient of the table.
 *
 * For the gradient one thread sorts the tokens by row; then threads share out
 * the rows that tokens name (by the number of tokens) and, apart from that, the
 * rows to be zeroed. Both are whole rows, so no two threads meet. */
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"
#include "kernels/view.h"

enum { STRIP = 128 }; /* columns whose sums are held in registers or L1 */

struct gather {
    struct view out, table;
    const int32_t *index;
    bool adds;
};

ELEMENTARY void gather_row(enum dtype dtype, const struct gather *p,
                           int64_t token)
{
    const void *row = element_at(p->table.data, dtype,
                                 p->index[token] * p->table.stride);
    void *y = element_at(p->out.data, dtype, token * p->out.stride);
    int64_t width = p->out.width;

    if (p->index[token] < 0) {
        for (int64_t i = 0; i < width; i++)
            element_set(y, dtype, i,
                        p->adds ? element_get(y, dtype, i) + 0.0f : 0.0f);
    } else if (p->adds) {
        SIMD for (int64_t i = 0; i < width; i++)
            element_set(y, dtype, i,
                        element_get(y, dtype, i) +
                            (element_get(row, dtype, i) + 0.0f));
    } else {
        SIMD for (int64_t i = 0; i < width; i++)
            element_set(y, dtype, i, element_get(row, dtype, i) + 0.0f);
    }
}

static void gather_body(void *argument, int index, int count)
{
    const struct gather *p = argument;
    int64_t first, last;

    threads_split(p->out.rows, 1, index, count, &first, &last);
    for (int64_t token = first; token < last; token++) {
        CHECK(p->index[token] >= -1 && p->index[token] < p->table.rows);
        ELEMENT_CHOOSE(p->out.dtype, gather_row, p, token);
    }
}

status CPU(gather_rows)(struct stream *stream, struct tensor out, bool adds,
                        struct tensor table, const int32_t *index)
{
    struct gather p = {view_any(out), view_any(table), index, adds};

    CHECK(dtype_real(out.dtype) == DTYPE_F32 && table.dtype == out.dtype);
    CHECK(p.out.width == p.table.width);
    cpu_run(stream, p.out.rows * p.out.width, gather_body, &p);
    return OK;
}

struct scatter {
    struct view table, dout;
    const int32_t *index;
    const struct token_order *order;
    int32_t *ends;   /* [rows]: where a row's tokens end, in `tokens` */
    int32_t *tokens; /* [named] sorted by row, each row's in order */
    int64_t named;   /* tokens with a row here */
};

/* Counting sort. Filling from the back turns ends into starts, filling from the
 * front starts into ends. */
static void tokens_sort(struct scatter *p)
{
    int32_t before = 0;

    memset(p->ends, 0, (size_t)p->table.rows * sizeof *p->ends);
    for (int64_t i = 0; i < p->dout.rows; i++) {
        CHECK(p->index[i] >= -1 && p->index[i] < p->table.rows);
        if (p->index[i] >= 0) p->ends[p->index[i]]++;
    }
    for (int64_t row = 0; row < p->table.rows; row++) {
        int32_t tokens = p->ends[row];

        p->ends[row] = before;
        before += tokens;
    }
    for (int64_t i = 0; i < p->dout.rows; i++)
        if (p->index[i] >= 0) p->tokens[p->ends[p->index[i]]++] = (int32_t)i;
    p->named = before;
}

/* chain[j] += the token's gradient, columns column + j. */
ELEMENTARY void strip_add(enum dtype dtype, const struct view *dout,
                          int64_t first, int width, float *chain)
{
    const void *row = element_at(dout->data, dtype, first);

    SIMD for (int j = 0; j < width; j++)
        chain[j] = chain[j] + element_get(row, dtype, j);
}

/* One strip of one row's gradient. Sums of chains are never -0, so leaves
 * without the row, +0, need not be added; those that have it are kept with
 * their numbers, which decide what meets what in the tree. */
static void strip_sum(const struct scatter *p, const int32_t *tokens,
                      int64_t count, int64_t column, int width, float *out)
{
    float leaves[LEAVES_MAX][STRIP];
    bool present[LEAVES_MAX] = {false};
    int leaf_count = p->order->leaves *
                     (p->order->only ? 1 : token_order_contexts(p->order));

    if (p->order->continues) {
        memcpy(leaves[0], out, (size_t)width * sizeof(float));
        present[0] = true;
    }
    for (int64_t i = 0; i < count;) {
        int64_t first = tokens[i], leaf = token_order_leaf(p->order, first);
        float chain[STRIP] = {0};

        for (; i < count && token_order_together(p->order, first, tokens[i]);
             i++)
            ELEMENT_CHOOSE(p->dout.dtype, strip_add, &p->dout,
                           tokens[i] * p->dout.stride + column, width, chain);
        if (leaf < 0) continue;
        for (int j = 0; j < width; j++)
            leaves[leaf][j] = present[leaf] ? leaves[leaf][j] + chain[j]
                                            : chain[j];
        present[leaf] = true;
    }
    for (int apart = 1; apart < leaf_count; apart *= 2)
        for (int i = 0; i + apart < leaf_count; i += 2 * apart) {
            if (!present[i + apart]) continue;
            for (int j = 0; j < width; j++)
                leaves[i][j] = present[i]
                                   ? leaves[i][j] + leaves[i + apart][j]
                                   : leaves[i + apart][j];
            present[i] = true;
        }
    if (present[0]) memcpy(out, leaves[0], (size_t)width * sizeof(float));
    else memset(out, 0, (size_t)width * sizeof(float));
}

/* Sorted tokens [first, last) are this thread's, moved up to where a row
 * begins. */
static int64_t row_begin(const struct scatter *p, int64_t at)
{
    while (at > 0 && at < p->named &&
           p->index[p->tokens[at]] == p->index[p->tokens[at - 1]])
        at++;
    return at;
}

static void scatter_body(void *argument, int index, int count)
{
    const struct scatter *p = argument;
    int64_t first, last, width = p->table.width;

    threads_split(p->named, 1, index, count, &first, &last);
    last = row_begin(p, last);
    for (int64_t at = row_begin(p, first); at < last;) {
        int32_t row = p->index[p->tokens[at]];
        float *out = (float *)p->table.data + row * p->table.stride;

        for (int64_t column = 0; column < width; column += STRIP)
            strip_sum(p, p->tokens + at, p->ends[row] - at, column,
                      width - column < STRIP ? (int)(width - column) : STRIP,
                      out + column);
        at = p->ends[row];
    }
    if (p->order->continues) return;
    threads_split(p->table.rows, 1, index, count, &first, &last);
    for (int64_t row = first; row < last; row++)
        if (p->ends[row] == (row > 0 ? p->ends[row - 1] : 0))
            memset((float *)p->table.data + row * p->table.stride, 0,
                   (size_t)width * sizeof(float));
}

status CPU(scatter_rows)(struct stream *stream, struct tensor dtable,
                         struct tensor dout, const int32_t *index,
                         const struct token_order *order)
{
    struct scatter p = {.table = view_of(dtable, DTYPE_F32),
                        .dout = view_any(dout),
                        .index = index, .order = order};
    size_t bytes = (size_t)(p.table.rows + p.dout.rows) * sizeof(int32_t);

    CHECK(dtype_real(dout.dtype) == DTYPE_F32);
    CHECK(stream->scratch_bytes >= bytes && p.dout.rows <= INT32_MAX);
    CHECK(p.table.width == p.dout.width && order->leaves <= LEAVES_MAX);
    CHECK(p.dout.rows ==
          order->length * order->sequences_per_leaf * order->leaves);
    CHECK(order->leaves * token_order_contexts(order) <= LEAVES_MAX);
    CHECK(!order->continues ||
          (order->leaves == 1 &&
           (order->only || token_order_contexts(order) == 1)));
    p.ends = stream->scratch;
    p.tokens = p.ends + p.table.rows;
    tokens_sort(&p);
    cpu_run(stream, p.table.rows * p.table.width, scatter_body, &p);
    return OK;
}
