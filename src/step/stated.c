/* SPDX-License-Identifier: Apache-2.0 */
/* stated.c - the messages of a step are those that its list states. */
#include "step/stated.h"

#include <string.h>

#include "comm/message.h"
#include "comm/traffic.h"
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
        return comm_narrow_sent(&call->narrow, call->in_counts, group->size,
                                group->rank);
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

/* Blocks for the other ranks. */
static int64_t exchanged(const struct group *group,
                         const struct comm_call *call)
{
    int64_t bytes = 0;

    for (int i = 0; i < group->size; i++)
        if (i != group->rank) bytes += block_bytes(&call->send[i]);
    return bytes;
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
    case COMM_EXCHANGE: return exchanged(group, call);
    default: return 0;
    }
}

/* Calls of one operation on one group count together. */
static status add_row(void *argument, const struct exchange *row)
{
    struct stated *s = argument;

    for (int i = 0; i < s->count; i++) {
        struct exchange *like = &s->rows[i];

        if (like->kind != row->kind || strcmp(like->label, row->label) != 0)
            continue;
        like->calls += row->calls;
        like->bytes += row->bytes;
        return OK;
    }
    CHECK(s->count < STATED_ROWS);
    s->rows[s->count++] = *row;
    return OK;
}

static struct exchange *row_of(struct stated *s, const struct group *group,
                               enum comm_kind kind)
{
    for (int i = 0; i < s->count; i++)
        if (s->rows[i].kind == kind && s->rows[i].size == group->size &&
            strcmp(s->rows[i].label, group->label) == 0)
            return &s->rows[i];
    return NULL;
}

/* The rank's place in the instruction's own group. */
static bool is_placed(const struct stated *s, const struct group *group)
{
    const struct list_group own = list_group(s->pipeline, s->instruction);

    return strcmp(own.name, group->label) != 0 || own.rank == group->rank;
}

static void compare(void *argument, const struct group *group,
                    const struct comm_call *call)
{
    struct stated *s = argument;

    if (group->size == 1) return; /* a supervised rank: nothing is sent */
    struct exchange *row = row_of(s, group, call->kind);
    const bool states_group_and_operation = row != NULL,
               states_place = is_placed(s, group);

    CHECK(states_group_and_operation);
    CHECK(states_place);
    row->calls--;
    row->bytes -= sent(group, call);
    const bool states_calls = row->calls >= 0,
               states_bytes = row->calls > 0 ? row->bytes >= 0
                                             : row->bytes == 0;

    CHECK(states_calls);
    CHECK(states_bytes);
    s->called = true;
}

/* Weights may be there since an evaluation; a step that does not change the
 * weights exchanges no matrices and asks nobody. */
static bool may_be_left_out(const struct instruction *i)
{
    return i->kind == DO_GATHER || i->kind == DO_MATRICES ||
           i->kind == DO_ASK;
}

status stated_begin(struct stated *s, const struct team *team,
                    const struct pipeline *pipeline,
                    const struct instruction *instruction)
{
    s->instruction = NULL;
    if (team->world == NULL || instruction_computes(instruction)) return OK;
    s->pipeline = pipeline;
    s->instruction = instruction;
    s->count = 0;
    s->called = false;
    if (instruction->calls > 0)
        TRY(list_traffic(pipeline, instruction, add_row, s));
    comm_watch(team->world, compare, s);
    return OK;
}

void stated_end(struct stated *s, const struct team *team)
{
    if (s->instruction == NULL) return;
    comm_watch(team->world, NULL, NULL);
    for (int i = 0; i < s->count; i++) {
        const bool made_all_calls = s->rows[i].calls == 0;

        CHECK(made_all_calls ||
              (!s->called && may_be_left_out(s->instruction)));
    }
    s->instruction = NULL;
}

void stated_drop(struct stated *s, const struct team *team)
{
    if (team->world != NULL) comm_watch(team->world, NULL, NULL);
    s->instruction = NULL;
}
