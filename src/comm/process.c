/* SPDX-License-Identifier: Apache-2.0 */
/* process.c - messages of ranks that are processes.
 *
 * A small message travels at once and is copied; a larger one is copied into
 * shared memory, where there is room; otherwise it waits in the caller's memory
 * until the receiver wants it. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/meter.h"
#include "comm/process_world.h"

enum { ANSWER_MS = 300 };

/* ---- the ring ---- */

int64_t ring_take(struct ring *ring, uint64_t id, int64_t bytes)
{
    const int64_t rounded = (int64_t)arena_aligned((size_t)bytes);
    int64_t tail;

    if (ring->data == NULL || rounded > RING_BYTES / 2) return -1;
    while (ring->count > 0 && ring->entries[ring->oldest].read) {
        ring->oldest = (ring->oldest + 1) % RING_MESSAGES;
        ring->count--;
    }
    if (ring->count == 0) ring->head = 0;
    if (ring->count == RING_MESSAGES) return -1;
    tail = ring->count > 0 ? ring->entries[ring->oldest].first : RING_BYTES;
    if (ring->count > 0 && ring->head > tail) {
        if (ring->head + rounded > RING_BYTES) {
            if (rounded >= tail) return -1;
            ring->head = 0;
        }
    } else if (ring->count > 0 && ring->head + rounded >= tail) {
        return -1;
    }
    const int last = (ring->oldest + ring->count++) % RING_MESSAGES;

    ring->entries[last] = (struct ring_entry){id, ring->head, rounded, false};
    ring->head += rounded;
    return ring->entries[last].first;
}

void ring_give_back(struct ring *ring, uint64_t id)
{
    for (int i = 0; i < ring->count; i++) {
        struct ring_entry *p =
            &ring->entries[(ring->oldest + i) % RING_MESSAGES];

        if (p->id == id) p->read = true;
    }
}

/* ---- sending ---- */

static int world_rank(const struct operation *op, int peer)
{
    return op->group->members[peer];
}

static void sending_free(struct process_world *world, struct sending *sending)
{
    struct sending **at = &world->sendings;

    while (*at != sending) at = &(*at)->next;
    *at = sending->next;
    sending->next = world->stock.sendings;
    world->stock.sendings = sending;
}

static status fail_gone(const struct operation *op, int peer)
{
    const struct process_world *world = op->group->backend;
    char name[80];

    if (world->aborted)
        return operation_stopped(op, world->aborter, world->reason);
    FAIL(ERR_PEER, "%s: rank %d has left", operation_name(op, name), peer);
}

/* Copies a message into the ring; false: it has no room. */
static bool place(struct process_world *world, struct outgoing *o,
                  const struct comm_block *block, uint64_t id)
{
    const int64_t bytes = block_bytes(block);
    const int64_t first = ring_take(&world->ring, id, bytes);

    if (first < 0) return false;
    const struct comm_block to = block_plain(world->ring.data + first, bytes);

    block_copy(&to, block);
    o->frame.kind = FRAME_PLACED;
    o->frame.place = (uint64_t)first + 1;
    return true;
}

/* A message that waits in the caller's memory. */
static status offer(struct process_world *world, struct message *message,
                    const struct comm_block *block, uint64_t id)
{
    struct sending *s;

    TRY(stock_sending(&world->stock, &s));
    *s = (struct sending){.block = *block, .id = id, .peer = message->target,
                          .state = MESSAGE_POSTED, .next = world->sendings};
    world->sendings = s;
    message->request = s;
    return OK;
}

/* To this rank itself: no connection is needed. */
static status post_here(struct process_world *world, struct message *message,
                        const struct comm_block *block,
                        const struct frame *frame)
{
    struct link *link = &world->links[message->target];
    struct arrival *a;

    TRY(stock_arrival(&world->stock, &a));
    a->frame = *frame;
    a->frame.kind = FRAME_OFFER;
    link_keep(link, a);
    pthread_cond_broadcast(&world->change);
    return offer(world, message, block, frame->id);
}

static status post(struct operation *op, int peer, struct message *message)
{
    struct process_world *world = op->group->backend;
    struct link *link = &world->links[message->target];
    const struct comm_block block = block_simplify(&message->block);
    const struct frame frame = {.context = op->group->context, .tag = op->tag,
                                .id = ++world->last_id,
                                .bytes = block_bytes(&block)};
    struct outgoing *o;

    message->request = NULL;
    operation_sent(op, peer, frame.bytes);
    if (message->target == world->identity.rank)
        return post_here(world, message, &block, &frame);
    if (world->aborted || link->descriptor < 0)
        return fail_gone(op, message->target);
    TRY(stock_outgoing(&world->stock, &o));
    o->frame = frame;
    /* An answer (peer_messages.c) may not wait for who sent the message. */
    if (frame.bytes <= SMALL_BYTES &&
        (link->unread < SMALL_WINDOW || op->call->kind == COMM_RECV)) {
        link->unread++;
        o->frame.kind = FRAME_SMALL;
        o->block = block_plain(o->own, frame.bytes);
        block_copy(&o->block, &block);
    } else if (!place(world, o, &block, frame.id)) {
        o->frame.kind = FRAME_OFFER;
        TRY(offer(world, message, &block, frame.id));
    }
    process_send(world, message->target, o);
    return OK;
}

static status process_post(struct operation *op, int peer,
                           struct message *message)
{
    struct process_world *world = op->group->backend;
    status result;

    pthread_mutex_lock(&world->lock);
    message->target = world_rank(op, peer);
    message->source = world->identity.rank;
    result = post(op, peer, message);
    pthread_mutex_unlock(&world->lock);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

/* ---- waiting ---- */

/* Sleeps, with the lock, until there is news or the deadline; may return
 * early. */
static void await_news(struct process_world *world, int64_t deadline)
{
    const struct timespec until = {deadline / 1000000000,
                                   deadline % 1000000000};

    pthread_cond_timedwait(&world->change, &world->lock, &until);
}

/* For whom `peer` waits; -1: for nobody, or it is silent. */
static int ask(void *argument, const struct wait_chain *asker, int peer)
{
    struct process_world *world = argument;
    const int64_t end = clock_ns() + (int64_t)ANSWER_MS * 1000000;

    world->answer.id = ++world->last_id;
    world->answer.came = false;
    process_tell(world, peer, (struct frame){
        .kind = FRAME_QUESTION, .id = world->answer.id,
        .context = asker->context, .tag = asker->tag});
    while (!world->answer.came && !world->aborted && clock_ns() < end)
        await_news(world, end);
    return world->answer.came ? world->answer.peer : -1;
}

/* Lock held. One thread asks; the others soon see its abort. */
static void give_up(struct operation *op, const struct wait_chain *waiting)
{
    struct process_world *world = op->group->backend;
    int missing;

    if (world->asks) {
        await_news(world, clock_ns() + (int64_t)ANSWER_MS * 1000000);
        return;
    }
    world->asks = true;
    missing = wait_chain_missing(waiting, world->identity.size,
                                 world->identity.rank, ask, world);
    world->asks = false;
    (void)operation_late(op, missing); /* its words are for all ranks */
    process_abort(world, world->identity.rank, status_message());
    status_clear();
}

struct wait {
    struct operation *op;
    struct wait_chain waiting;
    int64_t deadline;
    struct meter_track *track;
};

static struct wait wait_begin(struct operation *op, int peer)
{
    return (struct wait){.op = op,
                         .waiting = wait_chain_for(op, peer),
                         .deadline = clock_ns() + op->group->limit_ns,
                         .track = meter_begin()};
}

static void wait_end(struct wait *wait)
{
    meter_end(wait->track, &(struct meter_what){
        .kind = METER_IDLE, .name = "wait for a message"});
}

/* Once, with the lock. False: it makes no sense to wait any more. */
static bool wait_more(struct wait *wait)
{
    struct process_world *world = wait->op->group->backend;

    if (world->aborted ||
        (world->links[wait->waiting.peer].descriptor < 0 &&
         wait->waiting.peer != world->identity.rank))
        return false;
    if (clock_ns() >= wait->deadline) {
        give_up(wait->op, &wait->waiting);
        return true;
    }
    wait_chain_add(&world->waiting, &wait->waiting);
    await_news(world, wait->deadline);
    wait_chain_remove(&world->waiting, &wait->waiting);
    return true;
}

/* A message that nobody reads any more. Bytes that are on their way leave the
 * caller's memory, or the connection ends. */
static void sending_withdraw(struct process_world *world, struct sending *s)
{
    const int64_t end = clock_ns() + 1000000000;

    s->state = MESSAGE_DONE;
    while (s->writes && clock_ns() < end) await_news(world, end);
    if (s->writes) process_lose(world, &world->links[s->peer]);
}

static status process_finish(struct operation *op, struct message *message,
                             bool withdraw)
{
    struct process_world *world = op->group->backend;
    struct sending *s = message->request;
    struct wait wait;
    status result = OK;
    char name[80];

    if (s == NULL) return OK;
    wait = wait_begin(op, s->peer);
    pthread_mutex_lock(&world->lock);
    while (s->state < MESSAGE_DONE && !withdraw && result == OK)
        if (!wait_more(&wait)) result = fail_gone(op, s->peer);
    if (s->state < MESSAGE_DONE || s->writes) sending_withdraw(world, s);
    if (result == OK && !withdraw && s->state == MESSAGE_REFUSED)
        result = status_fail(ERR_PEER, __FILE__, __LINE__,
                             "%s: rank %d refused %lld bytes from rank %d: it "
                             "expects another size", operation_name(op, name),
                             s->peer, (long long)block_bytes(&s->block),
                             world->identity.rank);
    sending_free(world, s);
    message->request = NULL;
    pthread_mutex_unlock(&world->lock);
    wait_end(&wait);
    return result;
}

/* ---- receiving ---- */

static struct arrival *arrival_take(struct operation *op, struct link *link)
{
    struct arrival *before = NULL;

    for (struct arrival *a = link->first; a != NULL; before = a, a = a->next) {
        if (a->frame.tag != op->tag ||
            a->frame.context != op->group->context)
            continue;
        if (before != NULL) before->next = a->next;
        else link->first = a->next;
        if (link->last == a) link->last = before;
        link->arrivals--;
        return a;
    }
    return NULL;
}

static void arrival_free(struct process_world *world, struct arrival *a)
{
    a->next = world->stock.arrivals;
    world->stock.arrivals = a;
}

/* Where the bytes of an arrival go, and how long to wait for them. */
struct landing {
    struct operation *op;
    struct link *link;
    struct comm_block block;
    struct wait *wait;
};

static status take_own(struct landing *l, const struct frame *frame)
{
    struct process_world *world = l->op->group->backend;
    struct sending *s = process_sending(world, l->link->peer, frame->id);

    if (s == NULL) return fail_gone(l->op, l->link->peer);
    block_copy(&l->block, &s->block);
    s->state = MESSAGE_DONE;
    pthread_cond_broadcast(&world->change);
    return OK;
}

/* Asks for the bytes and waits for them. */
static status take_offer(struct landing *l, const struct frame *frame)
{
    struct process_world *world = l->op->group->backend;
    struct taking taking = {.next = l->link->takings, .block = l->block,
                            .id = frame->id};
    struct taking **at = &l->link->takings;
    status result = OK;

    if (l->link->peer == world->identity.rank) return take_own(l, frame);
    l->link->takings = &taking;
    process_tell(world, l->link->peer, (struct frame){.kind = FRAME_WANT,
                                                      .id = frame->id});
    while (!taking.done && result == OK)
        if (!wait_more(l->wait)) result = fail_gone(l->op, l->link->peer);
    while (*at != &taking) at = &(*at)->next;
    *at = taking.next;
    if (l->link->taking == &taking) { /* nowhere for the rest */
        l->link->taking = NULL;
        if (l->link->descriptor >= 0) process_lose(world, l->link);
    }
    return result;
}

/* From the sender's ring, which a dying rank may have spoilt: only sizes are
 * believed that fit. The sender keeps the bytes until it is told. */
static status take_placed(struct landing *l, const struct frame *frame)
{
    struct process_world *world = l->op->group->backend;
    const uint64_t first = frame->place - 1;
    char name[80];

    if (world->shared == NULL || first > RING_BYTES ||
        (uint64_t)frame->bytes > RING_BYTES - first)
        FAIL(ERR_PEER, "%s: rank %d points outside of shared memory",
             operation_name(l->op, name), l->link->peer);
    const struct comm_block from = block_plain(
        world->shared + (size_t)l->link->peer * RING_BYTES + first,
        frame->bytes);

    pthread_mutex_unlock(&world->lock);
    block_copy(&l->block, &from);
    pthread_mutex_lock(&world->lock);
    return OK;
}

static status take_bytes(struct landing *l, const struct arrival *a)
{
    const int64_t expected = block_bytes(&l->block);
    char name[80];

    if (a->frame.bytes != expected)
        FAIL(ERR_PEER, "%s: expected %lld bytes from rank %d, found %lld",
             operation_name(l->op, name), (long long)expected, l->link->peer,
             (long long)a->frame.bytes);
    if (a->frame.kind == FRAME_OFFER) return take_offer(l, &a->frame);
    if (a->frame.kind == FRAME_PLACED) return take_placed(l, &a->frame);
    const struct comm_block from = block_plain(a->own, expected);

    block_copy(&l->block, &from);
    return OK;
}

/* Lock held. */
static status borrow(struct landing *l)
{
    struct process_world *world = l->op->group->backend;
    struct arrival *a;
    status result;

    while ((a = arrival_take(l->op, l->link)) == NULL)
        if (!wait_more(l->wait)) return fail_gone(l->op, l->link->peer);
    result = take_bytes(l, a);
    process_tell(world, l->link->peer, (struct frame){
        .kind = FRAME_READ, .id = a->frame.id, .bytes = a->frame.bytes,
        .place = a->frame.place,
        .refused = a->frame.bytes != block_bytes(&l->block)});
    arrival_free(world, a);
    return result;
}

static status process_borrow(struct operation *op, int peer,
                             struct parcel *parcel)
{
    struct process_world *world = op->group->backend;
    const int from = world_rank(op, peer);
    struct wait wait = wait_begin(op, from);
    struct landing landing = {op, &world->links[from],
                              block_simplify(&parcel->block), &wait};
    status result;

    pthread_mutex_lock(&world->lock);
    result = borrow(&landing);
    pthread_mutex_unlock(&world->lock);
    wait_end(&wait);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

static void process_give_back(struct operation *op, struct parcel *parcel)
{
    (void)op, (void)parcel;
}

static status process_look(const struct operation *op)
{
    struct process_world *world = op->group->backend;
    int lost = -1;
    bool aborted;

    pthread_mutex_lock(&world->lock);
    aborted = world->aborted;
    for (int i = 0; i < op->group->size && lost < 0; i++)
        if (world->links[op->group->members[i]].died)
            lost = op->group->members[i];
    pthread_mutex_unlock(&world->lock);
    return aborted || lost >= 0 ? fail_gone(op, lost) : OK;
}

static void abort_world(void *backend, int rank, const char *reason)
{
    struct process_world *world = backend;

    pthread_mutex_lock(&world->lock);
    process_abort(world, rank, reason);
    pthread_mutex_unlock(&world->lock);
}

const struct comm_ops process_ops = {
    .name = "processes", .borrows = false, .post = process_post,
    .finish = process_finish, .borrow = process_borrow,
    .give_back = process_give_back, .abort = abort_world,
    .look = process_look,
};
