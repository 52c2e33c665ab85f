/* SPDX-License-Identifier: Apache-2.0 */
/* peer_messages.c - messages from one rank to another that reads them in the
 * sender's memory of a GPU.
 *
 *   sender    an event when its device is done with it; posts both, and goes on
 *   receiver  copies from GPU to GPU, behind the event, and answers
 *   sender    has its memory again
 *
 * A receiver may not wait for its sender to take the answer, as the sender may
 * wait for a message of the receiver before. Between threads the posted message
 * is given back late, and is the answer itself; between processes an answer
 * always travels unasked, however many the sender has not read (frame.h). */
#include "comm/peer_link.h"

#include "comm/frame.h"
#include "comm/rank.h"
#include "device/library.h"

_Static_assert(sizeof(struct peer_told) <= SMALL_BYTES, "it travels unasked");

static bool answers(const struct operation *op)
{
    return !op->group->ops->borrows;
}

/* ---- sending ---- */

/* An event that no open message has, when the device has done what it was
 * given so far. Without any it is awaited here. */
static status mark(struct peers *peers, int64_t *event)
{
    const struct peer_met *own = &peers->met[peers->world->rank];

    for (int i = 0; i < OPEN_SENDS; i++) {
        if (peers->sends[i]) continue;
        *event = CALL_EVENTS + i;
        TRY(device_mark(peers->device, own->events[*event], false));
        peers->sends[i] = true;
        return OK;
    }
    *event = -1;
    return device_made(peers->device);
}

static void unmark(struct peers *peers, int64_t event)
{
    if (event >= 0) peers->sends[event - CALL_EVENTS] = false;
}

status peers_post(struct operation *op, struct message *message,
                  struct peer_told *told)
{
    const struct tensor *in = &op->call->in;
    struct peers *peers = op->group->peers->peers;
    const int peer = op->call->peer;
    status result;

    *told = (struct peer_told){.bytes = tensor_bytes(in)};
    CHECK(device_place(peers->device, in->data, &told->from));
    TRY(mark(peers, &told->event));
    *message = (struct message){.block = block_plain(told, sizeof *told)};
    result = op->group->ops->post(op, peer, message);
    if (result != OK) unmark(peers, told->event);
    op->messages = op->bytes = op->between = 0;
    operation_sent(op, peer, told->bytes); /* as plans state */
    return result;
}

static status take_answer(struct operation *op)
{
    int64_t read = 0;
    const struct comm_block block = block_plain(&read, sizeof read);
    status result;

    op->tag |= TAG_RESULT;
    result = block_take(op, op->call->peer, &block);
    op->tag &= ~TAG_RESULT;
    return result;
}

status peers_finish(struct operation *op, struct message *message)
{
    const struct peer_told *told = message->block.data;
    struct peers *peers = op->group->peers->peers;
    status result = op->group->ops->finish(op, message, false);

    if (result == OK && answers(op)) result = take_answer(op);
    unmark(peers, told->event);
    if (result != OK) peers->failed = true;
    return result;
}

status peers_send(struct operation *op)
{
    struct message message;
    struct peer_told told;

    TRY(peers_post(op, &message, &told));
    return peers_finish(op, &message);
}

/* ---- receiving ---- */

static status answer(struct operation *op, int64_t bytes)
{
    struct message message = {.block = block_plain(&bytes, sizeof bytes)};
    status result;

    op->tag |= TAG_RESULT;
    result = op->group->ops->post(op, op->call->peer, &message);
    if (result == OK) result = op->group->ops->finish(op, &message, false);
    op->tag &= ~TAG_RESULT;
    op->messages = op->bytes = op->between = 0;
    return result;
}

static status read_told(const struct operation *op,
                        const struct peer_told *told)
{
    const struct group *group = op->group;
    const struct peer_met *met =
        &group->peers->peers->met[group->members[op->call->peer]];
    struct device *device = group->peers->peers->device;
    const int64_t bytes = tensor_bytes(&op->call->out);
    struct device_parts parts = {.rows = 1, .parts = 1,
                                 .bytes = (size_t)bytes};
    char *at, name[80];

    if (told->bytes != bytes)
        FAIL(ERR_PEER, "%s: expected %lld bytes from rank %d, found %lld",
             operation_name(op, name), (long long)bytes,
             group->members[op->call->peer], (long long)told->bytes);
    if (told->event < -1 || told->event >= PEER_EVENTS)
        FAIL(ERR_PEER, "rank %d has no event %lld",
             group->members[op->call->peer], (long long)told->event);
    TRY(peers_place(op, op->call->peer, told->from, bytes, &at));
    if (told->event >= 0) TRY(device_follow(device, met->events[told->event]));
    parts.from.at = at;
    parts.to.at = device_there(device, op->call->out.data);
    TRY(device_move(device, &parts));
    return device_moved(device);
}

status peers_receive(struct operation *op)
{
    const struct comm_ops *ops = op->group->ops;
    struct peer_told told = {.bytes = -1};
    struct parcel parcel = {.block = block_plain(answers(op) ? &told : NULL,
                                                 sizeof told)};
    status result;

    TRY(ops->borrow(op, op->call->peer, &parcel));
    if (!answers(op)) told = *(const struct peer_told *)parcel.block.data;
    result = read_told(op, &told);
    ops->give_back(op, &parcel);
    if (result == OK && answers(op)) result = answer(op, told.bytes);
    return result;
}
