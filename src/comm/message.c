/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - one exchange between two ranks, of which collectives are made. */
#include "comm/message.h"

#include <stdio.h>
#include <string.h>
#include "base/arena.h"

const char *operation_name(const struct operation *operation, char out[80])
{
    snprintf(out, 80, "%s on group %s",
             comm_kind_name(operation->call->kind), operation->group->label);
    return out;
}

void *operation_scratch(struct operation *operation, int64_t bytes)
{
    const size_t rounded =
        ((size_t)bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    char *piece = operation->scratch;

    CHECK(rounded <= operation->scratch_left);
    operation->scratch += rounded;
    operation->scratch_left -= rounded;
    return piece;
}

void *operation_room(struct operation *operation, int64_t bytes)
{
    if (operation->group->ops->borrows) return NULL;
    return operation_scratch(operation, bytes);
}

/* What comes is added from where it lies, or copied once. A back end that
 * cannot lend fills `in` itself, or, for a sum, room at the end of the
 * scratch. */
static status transfer_receive(struct operation *op, const struct transfer *t)
{
    const struct comm_ops *ops = op->group->ops;
    struct parcel parcel = {.bytes = t->in_bytes, .pieces = 1};
    struct operation saved = *op;
    void *room = t->in;

    if (t->combine) room = operation_room(op, t->in_bytes);
    op->scratch = saved.scratch;
    op->scratch_left = saved.scratch_left;
    TRY(ops->borrow(op, t->from, &parcel, room));
    if (t->combine) combine(op->call, t->in, t->in, parcel.data, t->in_bytes);
    else if (parcel.data != t->in)
        memcpy(t->in, parcel.data, (size_t)t->in_bytes);
    ops->give_back(op, &parcel);
    return OK;
}

status transfer_run(struct operation *op, const struct transfer *t)
{
    const struct comm_ops *ops = op->group->ops;
    const bool sends = t->to >= 0 && t->out_bytes > 0;
    struct message message = {.data = t->out, .bytes = t->out_bytes,
                              .pieces = 1};
    status result = OK;

    if (sends) TRY(ops->post(op, t->to, &message));
    if (t->from >= 0 && t->in_bytes > 0) result = transfer_receive(op, t);
    if (sends) {
        const status sent = ops->finish(op, &message, result != OK);

        if (result == OK) result = sent;
    }
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
