/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - rows of a table by index, and the gradient of the table. */
#include <string.h>
#include "kernels/reference/real.h"
#include "kernels/view.h"

/* + 0.0 turns -0 into +0, so that a table split over ranks, where all but one
 * contribute zeros, gives the same bits. */
status NAME(gather_rows)(struct stream *stream, struct tensor out, bool adds,
                         struct tensor table, const int32_t *index)
{
    struct view to = view_of(out, REAL_DTYPE);
    struct view rows = view_of(table, REAL_DTYPE);

    (void)stream;
    CHECK(to.width == rows.width);
    for (int64_t token = 0; token < to.rows; token++) {
        const real *row = (const real *)rows.data + index[token] * rows.stride;
        real *y = (real *)to.data + token * to.stride;

        CHECK(index[token] >= -1 && index[token] < rows.rows);
        for (int64_t i = 0; i < to.width; i++) {
            const real value = index[token] < 0 ? 0 : row[i] + 0;

            y[i] = adds ? y[i] + value : value;
        }
    }
    return OK;
}

/* Tokens sorted by row, stably, by counting: those of row r are
 * tokens[starts[r]] to tokens[starts[r + 1] - 1]. */
struct sorted {
    int32_t *starts; /* [rows + 1] */
    int32_t *tokens;
};

static struct sorted tokens_sort(struct stream *stream, const int32_t *index,
                                 int64_t count, int64_t rows)
{
    struct sorted s;
    size_t bytes = ((size_t)rows + 1 + (size_t)count) * sizeof(int32_t);

    CHECK(stream->scratch_bytes >= bytes && count <= INT32_MAX);
    s.starts = stream->scratch;
    s.tokens = s.starts + rows + 1;
    memset(s.starts, 0, ((size_t)rows + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        CHECK(index[i] >= -1 && index[i] < rows);
        if (index[i] >= 0) s.starts[index[i] + 1]++;
    }
    for (int64_t row = 0; row < rows; row++)
        s.starts[row + 1] += s.starts[row];
    /* Placing moves each start to the next row's; from the back, it does not
     * have to be moved again. */
    const int32_t named = s.starts[rows];

    for (int64_t i = count - 1; i >= 0; i--)
        if (index[i] >= 0) s.tokens[--s.starts[index[i] + 1]] = (int32_t)i;
    for (int64_t row = 0; row < rows; row++)
        s.starts[row] = s.starts[row + 1];
    s.starts[rows] = named;
    return s;
}

struct scatter {
    struct view dout;
    const struct token_order *order;
    const int32_t *tokens; /* that name one row */
    int64_t count;
};

/* One element of the table's gradient. */
static real element_sum(const struct scatter *s, int64_t column, real old)
{
    real leaves[LEAVES_MAX] = {0};
    int count = s->order->leaves *
                (s->order->only ? 1 : token_order_contexts(s->order));

    if (s->order->continues) leaves[0] = old;
    for (int64_t i = 0; i < s->count;) {
        int64_t first = s->tokens[i], leaf = token_order_leaf(s->order, first);
        real chain = 0;

        for (; i < s->count &&
               token_order_together(s->order, first, s->tokens[i]); i++)
            chain = chain + ((const real *)s->dout.data)[
                s->tokens[i] * s->dout.stride + column];
        /* A chain is never -0, so +0 + chain is the chain, as if assigned. */
        if (leaf >= 0) leaves[leaf] = leaves[leaf] + chain;
    }
    for (int apart = 1; apart < count; apart *= 2)
        for (int i = 0; i + apart < count; i += 2 * apart)
            leaves[i] = leaves[i] + leaves[i + apart];
    return leaves[0];
}

status NAME(scatter_rows)(struct stream *stream, struct tensor dtable,
                          struct tensor dout, const int32_t *index,
                          const struct token_order *order)
{
    struct view table = view_of(dtable, REAL_DTYPE);
    struct scatter s = {view_of(dout, REAL_DTYPE), order, NULL, 0};
    struct sorted sorted = tokens_sort(stream, index, s.dout.rows, table.rows);

    CHECK(table.width == s.dout.width && order->leaves <= LEAVES_MAX);
    CHECK(s.dout.rows ==
          order->length * order->sequences_per_leaf * order->leaves);
    CHECK(order->leaves * token_order_contexts(order) <= LEAVES_MAX);
    CHECK(!order->continues ||
          (order->leaves == 1 &&
           (order->only || token_order_contexts(order) == 1)));
    for (int64_t row = 0; row < table.rows; row++) {
        real *out = (real *)table.data + row * table.stride;

        s.tokens = sorted.tokens + sorted.starts[row];
        s.count = sorted.starts[row + 1] - sorted.starts[row];
        if (s.count == 0 && order->continues) continue;
        for (int64_t i = 0; i < table.width; i++)
            out[i] = element_sum(&s, i, out[i]);
    }
    return OK;
}
