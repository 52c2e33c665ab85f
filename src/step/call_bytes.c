/* SPDX-License-Identifier: Apache-2.0 */
/* call_bytes.c - bytes that a rank sends in a call, from the call alone. */
#include "step/call_bytes.h"

#include "comm/message.h"
#include "nn/exchange.h"

/* Every root goes to the ranks of its blocks. */
static int64_t scattered(const struct group *group,
                         const struct comm_call *call, int64_t roots)
{
    const int64_t rows = comm_rows(call);
    int64_t elements = 0;

    if (call->narrow.bits > 0)
        return comm_narrow_sent(&call->narrow, call->in_counts, group->size,
                                group->rank);
    if (call->in_counts == NULL)
        elements = (group->size - 1) * tensor_count(&call->out);
    for (int i = 0; call->in_counts != NULL && i < group->size; i++)
        if (i != group->rank) elements += rows * call->in_counts[i];
    return roots * elements * dtype_bytes(call->out.dtype);
}

/* Roots travel in the first half of the call; the second sends one sum. */
static int64_t reduced(const struct group *group, const struct comm_call *call,
                       int64_t roots)
{
    const int64_t n = tensor_count(&call->out);
    const int64_t block =
        n / group->size + (group->rank < n % group->size);

    return (exchange_all_reduce(n, group->size, group->rank) +
            (roots - 1) * (n - block)) * dtype_bytes(call->out.dtype);
}

/* Blocks for the other ranks. */
static int64_t exchanged(const struct group *group,
                         const struct comm_call *call)
{
    int64_t bytes = 0;

    for (int i = 0; i < group->size; i++)
        if (i != group->rank) bytes += block_bytes(&call->send[i]);
    return bytes;
}

static int64_t dealt(const struct group *group, const struct comm_call *call)
{
    int64_t elements = 0;

    if (call->in_counts == NULL)
        return (group->size - 1) * tensor_bytes(&call->in) / group->size;
    for (int i = 0; i < group->size; i++)
        if (i != group->rank) elements += call->in_counts[i];
    return elements * dtype_bytes(call->in.dtype);
}

/* Rows for other nodes, and those that came and go on to other ranks here. */
static int64_t relayed(const struct comm_relay *relay)
{
    int64_t rows = 0;

    for (int i = 0; i < relay->nodes; i++)
        if (i != relay->node) rows += relay->out[i];
    for (int i = 0; i < relay->each; i++)
        if (i != relay->place) rows += relay->to[i];
    return rows * relay->row_bytes;
}

/* The ranks first, first + step, ... in a circle: the one at `place` passes on
 * the blocks of all but the next one. */
struct circle { int first, step, count, place; };

static int64_t passed_around(const struct comm_call *call, int64_t equal,
                             struct circle c)
{
    int64_t elements = 0;

    for (int i = 0; c.count > 1 && i < c.count; i++)
        if (i != (c.place + 1) % c.count)
            elements += call->out_counts == NULL
                            ? equal : call->out_counts[c.first + i * c.step];
    return elements;
}

/* Among the ranks of one place on all nodes, then on each node. */
static int64_t passed(const struct group *group, const struct comm_call *call)
{
    const int each = group->node, nodes = group->size / each;
    const int64_t equal = tensor_count(&call->in);
    int64_t elements = passed_around(
        call, equal, (struct circle){group->rank % each, each, nodes,
                                     group->rank / each});

    for (int i = 0; i < nodes; i++)
        elements += passed_around(
            call, equal, (struct circle){i * each, 1, each,
                                         group->rank % each});
    return elements * dtype_bytes(call->in.dtype);
}

int64_t call_bytes(const struct group *group, const struct comm_call *call)
{
    const int64_t count = comm_own_roots(group, call->leaves);

    switch (call->kind) {
    case COMM_SEND: return tensor_bytes(&call->in);
    case COMM_ALL_GATHER:
        return call->algorithm == ALGORITHM_HIERARCHY
                   ? passed(group, call)
                   : (group->size - 1) * tensor_bytes(&call->in);
    case COMM_REDUCE_SCATTER: return scattered(group, call, count);
    case COMM_ALL_REDUCE: return reduced(group, call, count);
    case COMM_EXCHANGE: return exchanged(group, call);
    case COMM_ALL_TO_ALL:
        return call->relay != NULL ? relayed(call->relay) : dealt(group, call);
    default: return 0;
    }
}
