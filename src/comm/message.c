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

status operation_stopped(const struct operation *operation, int aborter,
                         const char *reason)
{
    char name[80];

    FAIL(ERR_PEER, "%s: stopped because rank %d gave up: %s",
         operation_name(operation, name), aborter, reason);
}

status operation_late(const struct operation *operation, int missing)
{
    char name[80];

    FAIL(ERR_PEER, "%s: rank %d has not come within %.1f s",
         operation_name(operation, name), missing,
         1e-9 * (double)operation->group->limit_ns);
}

void *operation_scratch(struct operation *operation, int64_t bytes)
{
    const size_t rounded = arena_aligned((size_t)bytes);
    char *taken = operation->scratch;

    CHECK(rounded <= operation->scratch_left);
    operation->scratch += rounded;
    operation->scratch_left -= rounded;
    return taken;
}

void *operation_room(struct operation *operation, int64_t bytes)
{
    if (operation->group->ops->borrows) return NULL;
    return operation_scratch(operation, bytes);
}

/* ---- blocks ---- */

struct comm_block block_plain(const void *data, int64_t bytes)
{
    return (struct comm_block){.data = (void *)(uintptr_t)data,
                               .bytes = bytes, .rows = 1, .planes = 1};
}

static int64_t at_least_one(int64_t count)
{
    return count > 0 ? count : 1;
}

int64_t block_bytes(const struct comm_block *block)
{
    return block->bytes * at_least_one(block->rows) *
           at_least_one(block->planes);
}

struct comm_block block_simplify(const struct comm_block *block)
{
    struct comm_block b = *block;

    b.rows = at_least_one(b.rows);
    b.planes = at_least_one(b.planes);
    if (b.rows > 1 && b.stride == b.bytes) {
        b.bytes *= b.rows;
        b.rows = 1;
    }
    if (b.rows == 1 && b.planes > 1) {
        b.rows = b.planes;
        b.stride = b.plane_stride;
        b.planes = 1;
        if (b.stride == b.bytes) {
            b.bytes *= b.rows;
            b.rows = 1;
        }
    }
    if (b.planes > 1 && b.plane_stride == b.rows * b.stride) {
        b.rows *= b.planes;
        b.planes = 1;
    }
    return b;
}

/* Walks through a simplified block. */
struct walk {
    struct comm_block block;
    int64_t row, plane, done; /* bytes of the row */
};

static char *walk_at(const struct walk *walk)
{
    return (char *)walk->block.data + walk->plane * walk->block.plane_stride +
           walk->row * walk->block.stride + walk->done;
}

static void walk_on(struct walk *walk, int64_t bytes)
{
    walk->done += bytes;
    if (walk->done < walk->block.bytes) return;
    walk->done = 0;
    if (++walk->row < walk->block.rows) return;
    walk->row = 0;
    walk->plane++;
}

void block_copy(const struct comm_block *to, const struct comm_block *from)
{
    struct walk in = {block_simplify(to), 0, 0, 0};
    struct walk out = {block_simplify(from), 0, 0, 0};

    for (int64_t left = block_bytes(from); left > 0;) {
        const int64_t a = in.block.bytes - in.done;
        const int64_t b = out.block.bytes - out.done;
        const int64_t bytes = a < b ? a : b;

        if (walk_at(&in) != walk_at(&out))
            memcpy(walk_at(&in), walk_at(&out), (size_t)bytes);
        walk_on(&in, bytes);
        walk_on(&out, bytes);
        left -= bytes;
    }
}

/* ---- transfers ---- */

status block_take(struct operation *op, int from, const struct comm_block *in)
{
    const struct comm_ops *ops = op->group->ops;
    struct parcel parcel = {.block = *in};

    if (block_bytes(in) == 0) return OK;
    TRY(ops->borrow(op, from, &parcel));
    if (parcel.block.data != in->data) block_copy(in, &parcel.block);
    ops->give_back(op, &parcel);
    return OK;
}

/* Adds the received elements from where they lie. A back end that cannot lend
 * memory fills room at the end of the scratch. */
static status transfer_combine(struct operation *op, const struct transfer *t)
{
    const struct comm_ops *ops = op->group->ops;
    const struct operation saved = *op;
    struct parcel parcel = {
        .block = block_plain(operation_room(op, t->in_bytes), t->in_bytes)};

    op->scratch = saved.scratch;
    op->scratch_left = saved.scratch_left;
    TRY(ops->borrow(op, t->from, &parcel));
    combine(op->call, t->in, t->in, parcel.block.data, t->in_bytes);
    ops->give_back(op, &parcel);
    return OK;
}

static status transfer_receive(struct operation *op, const struct transfer *t)
{
    const struct comm_block in = block_plain(t->in, t->in_bytes);

    return t->combine ? transfer_combine(op, t) : block_take(op, t->from, &in);
}

status transfer_run(struct operation *op, const struct transfer *t)
{
    const struct comm_ops *ops = op->group->ops;
    const bool sends = t->to >= 0 && t->out_bytes > 0;
    struct message message = {.block = block_plain(t->out, t->out_bytes)};
    status result = OK;

    if (sends) TRY(ops->post(op, t->to, &message));
    if (t->from >= 0 && t->in_bytes > 0) result = transfer_receive(op, t);
    if (sends) {
        const status sent = ops->finish(op, &message, result != OK);

        if (result == OK) result = sent;
    }
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
