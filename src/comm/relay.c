/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c - an all-to-all of rows in two levels: between nodes a row goes once,
 * to the rank of the same place, and inside the node to all that want it.
 *
 *   node 0, place i ── rows for node 1, each once ──> node 1, place i
 *                                                      ├──> place 0
 *                                                      └──> place 1 ...
 *
 * Messages between nodes are posted first and are under way while rows of the
 * own node wait for nobody. */
#include <string.h>
#include "base/arena.h"
#include "comm/algorithms.h"

size_t comm_relay_bytes(int64_t passed, int64_t most, int64_t row_bytes)
{
    return arena_aligned((size_t)(passed * row_bytes)) +
           arena_aligned((size_t)(most * row_bytes));
}

/* Rows [first, first + rows) of a buffer. */
static struct comm_block rows_of(char *base, int64_t first, int64_t rows,
                                 int64_t row_bytes)
{
    return block_plain(base + first * row_bytes, rows * row_bytes);
}

static int rank_of(const struct comm_relay *r, int node, int place)
{
    return r->ranks[node * r->each + place];
}

static int64_t sum(const int64_t *counts, int first, int last)
{
    int64_t rows = 0;

    for (int i = first; i < last; i++) rows += counts[i];
    return rows;
}

/* ---- between nodes ---- */

static status post_across(struct operation *op, const struct comm_relay *r,
                          int *posted)
{
    for (int i = 1; i < r->nodes; i++) {
        const int node = (r->node + i) % r->nodes;
        const struct comm_block block =
            rows_of(op->call->in.data, sum(r->out, 0, node), r->out[node],
                    r->row_bytes);

        TRY(block_post(op, rank_of(r, node, r->place), &block, posted));
    }
    return OK;
}

/* Rows of the nodes before and behind this one, then its own. */
static status take_across(struct operation *op, const struct comm_relay *r,
                          char *passed)
{
    const int64_t own = r->in[r->node];
    const int64_t others = sum(r->in, 0, r->nodes) - own;
    const struct comm_block from = rows_of(
        op->call->in.data, sum(r->out, 0, r->node), own, r->row_bytes);
    const struct comm_block to = rows_of(passed, others, own, r->row_bytes);

    block_copy(&to, &from);
    for (int i = 1; i < r->nodes; i++) {
        const int node = (r->node + r->nodes - i) % r->nodes;
        const int64_t first =
            sum(r->in, 0, node) - (node > r->node ? own : 0);
        const struct comm_block in =
            rows_of(passed, first, r->in[node], r->row_bytes);

        TRY(block_take(op, rank_of(r, node, r->place), &in));
    }
    return OK;
}

static status cross(struct operation *op, const struct comm_relay *r,
                    char *passed)
{
    int posted = 0;
    status result = post_across(op, r, &posted), ended;

    if (result == OK) result = take_across(op, r, passed);
    ended = posts_end(op, posted, result != OK);
    return result != OK ? result : ended;
}

/* ---- inside the node ---- */

/* The rows of `passed` that a rank of this node wants. */
static void pick_rows(const struct comm_relay *r, int place, char *out,
                      const char *passed)
{
    const int32_t *picks = r->picks + sum(r->to, 0, place);
    const size_t bytes = (size_t)r->row_bytes;

    for (int64_t i = 0; i < r->to[place]; i++)
        memcpy(out + (size_t)i * bytes, passed + (size_t)picks[i] * bytes,
               bytes);
}

/* To the next place but i, and from the one before: `most` rows of room. */
static status hand_on(struct operation *op, const struct comm_relay *r, int i,
                      const char *passed, char *room)
{
    const int to = (r->place + i) % r->each;
    const int from = (r->place + r->each - i) % r->each;
    const struct comm_block block =
        rows_of(room, 0, r->to[to], r->row_bytes);
    const struct comm_block in =
        rows_of(op->call->out.data, sum(r->from, 0, from), r->from[from],
                r->row_bytes);
    int posted = 0;
    status result, ended;

    pick_rows(r, to, room, passed);
    result = block_post(op, rank_of(r, r->node, to), &block, &posted);
    if (result == OK)
        result = block_take(op, rank_of(r, r->node, from), &in);
    ended = posts_end(op, posted, result != OK);
    return result != OK ? result : ended;
}

/* Rows for the one rank of this node that gets most. */
static int64_t most_rows(const struct comm_relay *r)
{
    int64_t most = 0;

    for (int i = 0; i < r->each; i++)
        if (i != r->place && r->to[i] > most) most = r->to[i];
    return most;
}

size_t relay_scratch(const struct comm_relay *r)
{
    return comm_relay_bytes(sum(r->in, 0, r->nodes), most_rows(r),
                            r->row_bytes);
}

status relay_rows(struct operation *op)
{
    const struct comm_relay *r = op->call->relay;
    const int64_t all = sum(r->in, 0, r->nodes);
    char *passed = operation_scratch(op, all * r->row_bytes);

    TRY(cross(op, r, passed));
    pick_rows(r, r->place,
              (char *)op->call->out.data +
                  sum(r->from, 0, r->place) * r->row_bytes, passed);
    char *room = operation_scratch(op, most_rows(r) * r->row_bytes);

    for (int i = 1; i < r->each; i++)
        TRY(hand_on(op, r, i, passed, room));
    return OK;
}
