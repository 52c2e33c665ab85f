/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - blocks that go straight from who has them to who needs them.
 *
 * A rank posts all that it sends before it takes anything, so that nobody waits
 * for an order of the others. Between threads a receiver copies from where the
 * sender has the bytes into where they belong, once. */
#include "comm/algorithms.h"

#include "device/device.h"

struct comm_block cut_rows(const struct cut *cut, int count, int block,
                           int64_t rows)
{
    const struct block first = cut_blocks(cut, count, block, block + 1);
    const struct block row = cut_blocks(cut, count, 0, count);

    return (struct comm_block){.data = first.data, .bytes = first.bytes,
                               .rows = rows, .stride = row.bytes,
                               .planes = 1};
}

status block_post(struct operation *op, int to, const struct comm_block *block,
                  int *posted)
{
    struct message *m = &op->group->messages[op->channel][*posted];

    if (block_bytes(block) == 0) return OK;
    *m = (struct message){.block = *block};
    TRY(op->group->ops->post(op, to, m));
    ++*posted;
    return OK;
}

status posts_end(struct operation *op, int posted, bool withdraw)
{
    status result = OK;

    for (int i = 0; i < posted; i++) {
        const status sent = op->group->ops->finish(
            op, &op->group->messages[op->channel][i],
            withdraw || result != OK);

        if (result == OK) result = sent;
    }
    return result;
}

static status gather_run(struct operation *op, const struct comm_block *own,
                         const struct cut *cut, int64_t rows, int *posted)
{
    const int size = op->group->size, me = op->group->rank;

    for (int i = 1; i < size; i++)
        TRY(block_post(op, (me + i) % size, own, posted));
    for (int i = 1; i < size; i++) {
        const int peer = (me + size - i) % size;
        const struct comm_block in = cut_rows(cut, size, peer, rows);

        TRY(block_take(op, peer, &in));
    }
    return OK;
}

status direct_gather(struct operation *op, const struct comm_block *own,
                     const struct cut *cut, int64_t rows)
{
    int posted = 0;
    const status result = gather_run(op, own, cut, rows, &posted);
    const status ended = posts_end(op, posted, result != OK);

    return result != OK ? result : ended;
}

status direct_broadcast(struct operation *op, int root, struct block whole)
{
    const struct comm_block block = block_plain(whole.data, whole.bytes);
    const int size = op->group->size, me = op->group->rank;
    status result = OK, ended;
    int posted = 0;

    if (me != root) return block_take(op, root, &block);
    for (int i = 1; i < size && result == OK; i++)
        result = block_post(op, (me + i) % size, &block, &posted);
    ended = posts_end(op, posted, result != OK);
    return result != OK ? result : ended;
}

/* Where the block for, or of, rank `rank` lies in a tensor. */
static struct comm_block tensor_block(const struct tensor *tensor,
                                      const int64_t *counts, int size,
                                      int rank)
{
    const struct cut cut = {.data = tensor->data, .counts = counts, .step = 1,
                            .length = tensor_count(tensor) / size,
                            .element_bytes = dtype_bytes(tensor->dtype)};
    const struct block block = cut_blocks(&cut, size, rank, rank + 1);

    return block_plain(block.data, block.bytes);
}

static struct comm_block seen(struct comm_block block)
{
    block.data = device_seen(block.data);
    return block;
}

static struct comm_block block_sent(const struct group *group,
                                    const struct comm_call *call, int to)
{
    if (call->kind == COMM_EXCHANGE) return seen(call->send[to]);
    return tensor_block(&call->in, call->in_counts, group->size, to);
}

static struct comm_block block_received(const struct group *group,
                                        const struct comm_call *call, int from)
{
    if (call->kind == COMM_EXCHANGE) return seen(call->receive[from]);
    return tensor_block(&call->out, call->out_counts, group->size, from);
}

static status exchange_run(struct operation *op, int *posted)
{
    const struct group *group = op->group;
    const int size = group->size, me = group->rank;
    struct comm_block out, in;

    for (int i = 1; i < size; i++) {
        out = block_sent(group, op->call, (me + i) % size);
        TRY(block_post(op, (me + i) % size, &out, posted));
    }
    out = block_sent(group, op->call, me);
    in = block_received(group, op->call, me);
    block_copy(&in, &out);
    for (int i = 1; i < size; i++) {
        in = block_received(group, op->call, (me + size - i) % size);
        TRY(block_take(op, (me + size - i) % size, &in));
    }
    return OK;
}

status exchange(struct operation *op)
{
    int posted = 0;
    const status result = exchange_run(op, &posted);
    const status ended = posts_end(op, posted, result != OK);

    return result != OK ? result : ended;
}
