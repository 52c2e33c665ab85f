/* SPDX-License-Identifier: Apache-2.0 */
/* stated.c - background messages of a step are those that its list states. */
#include "step/stated.h"

#include <string.h>

#include "comm/progress.h"
#include "list/traffic.h"
#include "nn/exchange.h"

static int64_t bytes_of(const struct tensor *tensor)
{
    return tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

/* Every root goes to the ranks of its blocks. */
static int64_t scattered(const struct group *group,
                         const struct comm_call *call, int64_t roots)
{
    int64_t elements = 0;

    if (call->narrow.bits > 0)
        return comm_narrow_sent(call->in_counts, group->size, group->rank,
                                call->narrow.bits);
    for (int i = 0; i < group->size; i++)
        if (i != group->rank) elements += call->in_counts[i];
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

static int64_t sent(const struct group *group, const struct comm_call *call)
{
    struct comm_root roots[COMM_ROOTS_MAX];
    const int64_t count =
        call->leaves > 0
            ? comm_roots(call->leaves, group->size, group->rank, roots) : 1;

    switch (call->kind) {
    case COMM_SEND: return bytes_of(&call->in);
    case COMM_ALL_GATHER: return (group->size - 1) * bytes_of(&call->in);
    case COMM_REDUCE_SCATTER: return scattered(group, call, count);
    case COMM_ALL_REDUCE: return reduced(group, call, count);
    default: return 0;
    }
}

/* The name of the fact that differs; NULL: none does. */
static const char *difference(const struct pipeline *pipeline,
                              const struct instruction *instruction,
                              const struct group *group,
                              const struct comm_call *call)
{
    const struct list_group stated = list_group(pipeline, instruction);

    if (group == NULL || strcmp(group->label, stated.name) != 0 ||
        group->size != stated.size || group->rank != stated.rank)
        return "group";
    if (call->kind != list_call(pipeline, instruction)) return "operation";
    if (instruction->calls != 1) return "calls";
    return sent(group, call) == instruction->bytes ? NULL : "bytes";
}

status stated_start(const struct pipeline *pipeline,
                    const struct instruction *instruction,
                    struct group *group, const struct comm_call *call,
                    struct comm_handle *handle)
{
    CHECK(difference(pipeline, instruction, group, call) == NULL);
    return comm_start(group, call, handle);
}
