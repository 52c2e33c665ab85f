/* SPDX-License-Identifier: Apache-2.0 */
/* process_io.c - the thread of the connections of a rank. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "comm/patience.h"
#include "comm/process_world.h"

enum { TELL_MS = 500 };

static void wake(struct process_world *world)
{
    const char byte = 0;

    if (!world->runs) return;
    /* A full pipe wakes the thread as well; a signal must not cost a byte. */
    while (write(world->wake[1], &byte, 1) < 0 && errno == EINTR) continue;
}

void process_lose(struct process_world *world, struct link *link)
{
    char reason[COMM_REASON_BYTES];

    link_close(link, &world->stock);
    pthread_cond_broadcast(&world->change);
    if (link->left || world->aborted || world->quits) return;
    link->died = true;
    if (link->fault[0] != '\0')
        snprintf(reason, sizeof reason, "rank %d: %s", link->peer,
                 link->fault);
    else
        snprintf(reason, sizeof reason, "rank %d is gone: its connection "
                 "broke", link->peer);
    process_abort(world, world->identity.rank, reason);
}

void process_send(struct process_world *world, int peer, struct outgoing *o)
{
    struct link *link = &world->links[peer];
    const bool first = link->out_first == NULL;

    if (fault_point("message.frame") != OK) status_clear();
    o->frame.generation = world->identity.generation;
    link_enqueue(link, o);
    if (!first) return;
    if (!link_flush(link, &world->stock)) process_lose(world, link);
    else if (link->out_first != NULL) wake(world);
}

void process_tell(struct process_world *world, int peer, struct frame frame)
{
    struct outgoing *o;

    if (world->links[peer].descriptor < 0) return;
    if (stock_outgoing(&world->stock, &o) != OK) {
        status_clear();
        process_lose(world, &world->links[peer]);
        return;
    }
    o->frame = frame;
    process_send(world, peer, o);
}

void process_abort(struct process_world *world, int rank, const char *reason)
{
    if (world->aborted) return;
    world->aborted = true;
    world->aborter = rank;
    snprintf(world->reason, sizeof world->reason, "%s", reason);
    pthread_cond_broadcast(&world->change);
    for (int i = 0; i < world->identity.size; i++) {
        struct outgoing *o;

        if (world->links[i].descriptor < 0) continue;
        if (stock_outgoing(&world->stock, &o) != OK) {
            status_clear();
            continue;
        }
        o->frame = (struct frame){.kind = FRAME_FAREWELL, .rank = rank,
                                  .bytes = COMM_REASON_BYTES};
        memset(o->own, 0, COMM_REASON_BYTES);
        snprintf(o->own, COMM_REASON_BYTES, "%s", world->reason);
        o->block = block_plain(o->own, COMM_REASON_BYTES);
        process_send(world, i, o);
    }
}

/* ---- frames that come ---- */

static void keep_arrival(struct process_world *world, struct link *link)
{
    struct arrival *a = link->into;

    link->into = NULL;
    if (a == NULL && stock_arrival(&world->stock, &a) != OK) {
        status_clear();
        snprintf(link->fault, sizeof link->fault, "no memory for a message");
        return;
    }
    if (link->arrivals >= OFFERS_MOST)
        snprintf(link->fault, sizeof link->fault, "too many messages");
    a->frame = link->frame;
    link_keep(link, a);
}

struct sending *process_sending(struct process_world *world, int peer,
                                uint64_t id)
{
    for (struct sending *s = world->sendings; s != NULL; s = s->next)
        if (s->id == id && s->peer == peer) return s;
    return NULL;
}

/* Nobody waits for an offer that was withdrawn: then the answer is that its
 * sender gave up, which its farewell says. */
static void send_bytes(struct process_world *world, struct link *link)
{
    struct sending *s = process_sending(world, link->peer, link->frame.id);
    struct outgoing *o;

    if (s == NULL || s->writes || s->state != MESSAGE_POSTED) return;
    if (stock_outgoing(&world->stock, &o) != OK) {
        status_clear();
        snprintf(link->fault, sizeof link->fault, "no memory for a message");
        return;
    }
    o->frame = (struct frame){.kind = FRAME_BYTES, .id = s->id,
                              .bytes = block_bytes(&s->block)};
    o->block = s->block;
    o->sending = s;
    s->writes = true;
    s->state = MESSAGE_TAKEN;
    process_send(world, link->peer, o);
}

static void note_read(struct process_world *world, struct link *link)
{
    const struct frame *f = &link->frame;
    struct sending *s = process_sending(world, link->peer, f->id);

    if (s != NULL) s->state = f->refused ? MESSAGE_REFUSED : MESSAGE_DONE;
    else if (f->place != 0) ring_give_back(&world->ring, f->id);
    else if (link->unread > 0) link->unread--;
    if (f->refused && s == NULL) {
        char reason[COMM_REASON_BYTES];

        snprintf(reason, sizeof reason, "rank %d refused %lld bytes from rank "
                 "%d: it expects another size", link->peer,
                 (long long)f->bytes, world->identity.rank);
        process_abort(world, world->identity.rank, reason);
    }
}

static void note_farewell(struct process_world *world, struct link *link)
{
    link->reason[COMM_REASON_BYTES - 1] = '\0';
    if (world->aborted) return;
    world->aborted = true;
    world->aborter = link->frame.rank;
    memcpy(world->reason, link->reason, sizeof world->reason);
}

static void answer_question(struct process_world *world, struct link *link)
{
    const struct wait_chain asker = {.context = link->frame.context,
                                     .tag = link->frame.tag};

    process_tell(world, link->peer, (struct frame){
        .kind = FRAME_ANSWER, .id = link->frame.id,
        .rank = wait_chain_peer(world->waiting, &asker)});
}

static void came(void *argument, struct link *link)
{
    struct process_world *world = argument;
    const struct frame *f = &link->frame;

    switch (f->kind) {
    case FRAME_SMALL:
    case FRAME_PLACED:
    case FRAME_OFFER:
        keep_arrival(world, link);
        break;
    case FRAME_WANT:
        send_bytes(world, link);
        break;
    case FRAME_BYTES:
        link->taking->done = true;
        break;
    case FRAME_READ:
        note_read(world, link);
        break;
    case FRAME_FAREWELL:
        note_farewell(world, link);
        break;
    case FRAME_QUESTION:
        answer_question(world, link);
        break;
    case FRAME_ANSWER:
        if (f->id != world->answer.id) break;
        world->answer.came = true;
        world->answer.peer = f->rank;
        break;
    default:
        link->left = true;
        break;
    }
}

/* ---- the thread ---- */

static int fill_polls(struct process_world *world, struct pollfd *polls)
{
    int count = 0;

    polls[count++] = (struct pollfd){.fd = world->wake[0], .events = POLLIN};
    for (int i = 0; i < world->identity.size; i++) {
        const struct link *link = &world->links[i];

        if (link->descriptor < 0) continue;
        polls[count++] = (struct pollfd){
            .fd = link->descriptor,
            .events = (short)(POLLIN | (link->out_first ? POLLOUT : 0))};
    }
    return count;
}

/* Round trips may become slow while the run lasts. The system measures those of
 * connections with traffic; the others get as long as the slowest. */
static void tell_patience(struct process_world *world)
{
    int64_t most = 0;

    if (clock_ns() - world->told_ns < (int64_t)TELL_MS * 1000000) return;
    world->told_ns = clock_ns();
    for (int i = 0; i < world->identity.size; i++) {
        const int64_t one = world->links[i].descriptor >= 0
                                ? patience_ms(world->links[i].descriptor) : 0;

        if (one > most) most = one;
    }
    for (int i = 0; i < world->identity.size; i++)
        if (world->links[i].descriptor >= 0)
            patience_tell(world->links[i].descriptor, most);
}

static void step(struct process_world *world)
{
    const struct link_events events = {world, world->identity.generation,
                                       &world->stock, came};
    char bytes[64];

    while (read(world->wake[0], bytes, sizeof bytes) > 0) continue;
    for (int i = 0; i < world->identity.size; i++) {
        struct link *link = &world->links[i];

        if (link->descriptor < 0) continue;
        if (!link_receive(link, &events) ||
            !link_flush(link, &world->stock))
            process_lose(world, link);
    }
    tell_patience(world);
    pthread_cond_broadcast(&world->change);
}

static void *io_main(void *argument)
{
    struct process_world *world = argument;
    struct pollfd polls[PROCESSES_MOST + 1];

    pthread_mutex_lock(&world->lock);
    while (!world->quits) {
        const int count = fill_polls(world, polls);

        pthread_mutex_unlock(&world->lock);
        poll(polls, (nfds_t)count, -1);
        pthread_mutex_lock(&world->lock);
        step(world);
    }
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

status process_io_begin(struct process_world *world)
{
    int error;

    if (pipe2(world->wake, O_NONBLOCK | O_CLOEXEC) != 0)
        FAIL(ERR_IO, "no pipe: %s", strerror(errno));
    world->quits = false;
    world->runs = true;
    error = pthread_create(&world->thread, NULL, io_main, world);
    if (error == 0) return OK;
    world->runs = false;
    close(world->wake[0]);
    close(world->wake[1]);
    FAIL(ERR_MEMORY, "the thread of the connections cannot be created (error "
         "%d)", error);
}

void process_io_end(struct process_world *world)
{
    if (!world->runs) return;
    pthread_mutex_lock(&world->lock);
    world->quits = true;
    wake(world);
    pthread_mutex_unlock(&world->lock);
    pthread_join(world->thread, NULL);
    world->runs = false;
    close(world->wake[0]);
    close(world->wake[1]);
}
