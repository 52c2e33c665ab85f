/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - ranks as threads of one process.
 *
 * Every rank has a mailbox: a list of the messages that others have posted to
 * it, and a condition on which it waits, both for messages and for its own to
 * be read. A message lies in its sender's memory and the receiver reads the
 * data there. Who changes what: the list, and POSTED to TAKEN, under the lock
 * of the target's mailbox; TAKEN to DONE or REFUSED under the sender's, so that
 * a sender that has seen DONE may reuse the message.
 *
 * A waiting rank looks for SPIN_NS whether its mailbox changed, then sleeps. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/meter.h"
#include "base/threads.h"
#include "comm/message.h"
#include "comm/rank.h"
#include "comm/wait_chain.h"

enum { RANKS_MAX = 1024, SPIN_NS = 20000, SPIN_LOOKS = 64 };

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t change;
    _Atomic uint32_t version; /* raised with every change */
    struct message *first, *last;
    struct wait_chain *waiting;  /* of the rank's threads */
};

struct member {
    struct world *world;
    int rank;
    struct mailbox mailbox;
    struct comm_rank self;
    _Atomic bool ended;
    pthread_t thread;
    status result;
    char reason[COMM_REASON_BYTES], hint[COMM_REASON_BYTES];
};

struct world {
    int count;
    bool spins;
    struct member *members; /* owned, [count] */
    status (*body)(void *argument, struct group *world);
    void *argument;
    _Atomic bool aborted;
    pthread_mutex_t lock; /* of the reason */
    int aborter;
    char reason[COMM_REASON_BYTES];
};

static void mailbox_init(struct mailbox *box)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&box->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&box->change, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void mailbox_free(struct mailbox *box)
{
    pthread_cond_destroy(&box->change);
    pthread_mutex_destroy(&box->lock);
}

/* With the lock held. */
static void mailbox_wake(struct mailbox *box)
{
    atomic_fetch_add(&box->version, 1);
    pthread_cond_broadcast(&box->change);
}

static void mailbox_append(struct mailbox *box, struct message *message)
{
    message->next = NULL;
    message->previous = box->last;
    if (box->last != NULL) box->last->next = message;
    else box->first = message;
    box->last = message;
}

static void mailbox_remove(struct mailbox *box, struct message *message)
{
    if (message->previous) message->previous->next = message->next;
    else box->first = message->next;
    if (message->next) message->next->previous = message->previous;
    else box->last = message->previous;
}

static struct message *mailbox_find(const struct mailbox *box,
                                    uint64_t context, uint64_t tag, int source)
{
    for (struct message *m = box->first; m != NULL; m = m->next)
        if (m->source == source && m->tag == tag && m->context == context)
            return m;
    return NULL;
}

/* Waits, with the lock held, until the mailbox is no longer at `version` or
 * the deadline; it may also return early. */
static void mailbox_wait(struct mailbox *box, uint32_t version, bool spins,
                         int64_t deadline)
{
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};

    if (spins) {
        const int64_t end = clock_ns() + SPIN_NS;

        pthread_mutex_unlock(&box->lock);
        do {
            for (int i = 0; i < SPIN_LOOKS; i++)
                if (atomic_load(&box->version) != version) {
                    pthread_mutex_lock(&box->lock);
                    return;
                }
        } while (clock_ns() < end);
        pthread_mutex_lock(&box->lock);
    }
    if (atomic_load(&box->version) == version)
        pthread_cond_timedwait(&box->change, &box->lock, &until);
}

static struct member *member_of(const struct operation *operation, int peer)
{
    const struct world *world = operation->group->backend;

    return &world->members[operation->group->members[peer]];
}

static int ask(void *argument, const struct wait_chain *asker, int peer)
{
    struct world *world = argument;
    struct mailbox *box = &world->members[peer].mailbox;
    int next;

    pthread_mutex_lock(&box->lock);
    next = wait_chain_peer(box->waiting, asker);
    pthread_mutex_unlock(&box->lock);
    return next;
}

static void world_abort(void *backend, int rank, const char *reason)
{
    struct world *world = backend;

    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) {
        world->aborter = rank;
        snprintf(world->reason, sizeof world->reason, "%s", reason);
        atomic_store(&world->aborted, true);
    }
    pthread_mutex_unlock(&world->lock);
    for (int i = 0; i < world->count; i++) {
        struct mailbox *box = &world->members[i].mailbox;

        pthread_mutex_lock(&box->lock);
        mailbox_wake(box);
        pthread_mutex_unlock(&box->lock);
    }
}

/* Aborter and reason were written before the flag, and stay. */
static status fail_aborted(const struct operation *operation)
{
    const struct world *world = operation->group->backend;

    return operation_stopped(operation, world->aborter, world->reason);
}

static status fail_late(const struct operation *operation, int peer)
{
    const struct member *self = member_of(operation, operation->group->rank);
    const struct wait_chain asker = wait_chain_for(operation, peer);
    const int missing =
        wait_chain_missing(&asker, self->world->count, -1, ask, self->world);
    const status late = operation_late(operation, missing);

    world_abort(self->world, self->rank, status_message());
    return late;
}

/* Whether waiting for `peer` makes no sense any more, from then on. What is
 * waited for may be there nevertheless: look again before saying so. */
static bool is_gone(const struct member *peer, int64_t deadline)
{
    return atomic_load(&peer->world->aborted) || atomic_load(&peer->ended) ||
           clock_ns() >= deadline;
}

/* Says why; the world ends if `peer` is late. Locks are not held. */
static status fail_gone(const struct operation *operation,
                        const struct member *peer)
{
    char name[80];

    if (atomic_load(&peer->world->aborted)) return fail_aborted(operation);
    if (atomic_load(&peer->ended))
        FAIL(ERR_PEER, "%s: rank %d has left",
             operation_name(operation, name), peer->rank);
    return fail_late(operation, peer->rank);
}

static status threads_look(const struct operation *operation)
{
    const struct world *world = operation->group->backend;

    return atomic_load(&world->aborted) ? fail_aborted(operation) : OK;
}

static status threads_post(struct operation *operation, int peer,
                           struct message *message)
{
    struct member *target = member_of(operation, peer);

    message->source = member_of(operation, operation->group->rank)->rank;
    message->target = target->rank;
    message->context = operation->group->context;
    message->tag = operation->tag;
    atomic_store(&message->state, MESSAGE_POSTED);
    operation_sent(operation, peer, block_bytes(&message->block));
    pthread_mutex_lock(&target->mailbox.lock);
    mailbox_append(&target->mailbox, message);
    mailbox_wake(&target->mailbox);
    pthread_mutex_unlock(&target->mailbox.lock);
    return OK;
}

/* Takes an unread message back. A message that is being read cannot be, but
 * its reader waits for nobody. */
static bool message_withdraw(struct world *world, struct message *message)
{
    struct mailbox *box = &world->members[message->target].mailbox;
    bool unread;

    pthread_mutex_lock(&box->lock);
    unread = atomic_load(&message->state) == MESSAGE_POSTED;
    if (unread) mailbox_remove(box, message);
    pthread_mutex_unlock(&box->lock);
    return unread;
}

static bool is_read(struct message *message)
{
    return atomic_load(&message->state) >= MESSAGE_DONE;
}

static status finish(struct operation *operation, struct message *message,
                     bool withdraw)
{
    struct world *world = operation->group->backend;
    struct mailbox *box = &world->members[message->source].mailbox;
    const struct member *target = &world->members[message->target];
    struct wait_chain waiting = wait_chain_for(operation, message->target);
    const int64_t deadline = clock_ns() + operation->group->limit_ns;
    bool gone = false, withdrawn = false;
    status result = OK;
    char name[80];

    if (withdraw && message_withdraw(world, message)) return OK;
    pthread_mutex_lock(&box->lock);
    wait_chain_add(&box->waiting, &waiting);
    for (;;) {
        const uint32_t version = atomic_load(&box->version);

        if (is_read(message)) break;
        pthread_mutex_unlock(&box->lock);
        gone = gone || (!withdraw && is_gone(target, deadline));
        withdrawn = gone && message_withdraw(world, message);
        if (withdrawn) result = fail_gone(operation, target);
        pthread_mutex_lock(&box->lock);
        if (withdrawn) break;
        mailbox_wait(box, version, world->spins, deadline);
    }
    wait_chain_remove(&box->waiting, &waiting);
    pthread_mutex_unlock(&box->lock);
    if (!withdrawn && !withdraw &&
        atomic_load(&message->state) == MESSAGE_REFUSED)
        FAIL(ERR_PEER, "%s: rank %d refused %" PRId64 " bytes from rank %d: it "
             "expects another size", operation_name(operation, name),
             message->target, block_bytes(&message->block),
             message->source);
    return result;
}

static const struct meter_what wait_to_be_read = {
    .kind = METER_IDLE, .name = "wait until it is read"};
static const struct meter_what wait_for_message = {
    .kind = METER_IDLE, .name = "wait for a message"};

static status threads_finish(struct operation *operation,
                             struct message *message, bool withdraw)
{
    struct meter_track *track = meter_begin();
    const status result = finish(operation, message, withdraw);

    meter_end(track, &wait_to_be_read);
    return result;
}

/* Tells the sender. The message is not ours any more afterwards. */
static void message_end(struct world *world, struct message *message,
                        enum message_state state)
{
    struct mailbox *box = &world->members[message->source].mailbox;

    pthread_mutex_lock(&box->lock);
    atomic_store(&message->state, (int)state);
    mailbox_wake(box);
    pthread_mutex_unlock(&box->lock);
}

/* Takes the oldest message that fits out of this rank's mailbox. */
static status message_take(struct operation *operation, int peer,
                           struct message **out)
{
    struct member *self = member_of(operation, operation->group->rank);
    struct mailbox *box = &self->mailbox;
    const struct member *source = member_of(operation, peer);
    struct wait_chain waiting = wait_chain_for(operation, source->rank);
    const int64_t deadline = clock_ns() + operation->group->limit_ns;
    bool gone = false;
    status result = OK;

    *out = NULL;
    pthread_mutex_lock(&box->lock);
    wait_chain_add(&box->waiting, &waiting);
    while (result == OK) {
        const uint32_t version = atomic_load(&box->version);

        *out = mailbox_find(box, operation->group->context, operation->tag,
                            source->rank);
        if (*out != NULL) break;
        pthread_mutex_unlock(&box->lock);
        if (gone) result = fail_gone(operation, source);
        else gone = is_gone(source, deadline);
        pthread_mutex_lock(&box->lock);
        if (!gone) mailbox_wait(box, version, self->world->spins, deadline);
    }
    if (*out != NULL) {
        mailbox_remove(box, *out);
        atomic_store(&(*out)->state, MESSAGE_TAKEN);
    }
    wait_chain_remove(&box->waiting, &waiting);
    pthread_mutex_unlock(&box->lock);
    return result;
}

static status threads_borrow(struct operation *operation, int peer,
                             struct parcel *parcel)
{
    const int64_t expected = block_bytes(&parcel->block);
    struct world *world = operation->group->backend;
    struct message *message;
    int64_t found;
    char name[80];

    struct meter_track *track = meter_begin();
    const status taken = message_take(operation, peer, &message);

    meter_end(track, &wait_for_message);
    TRY(taken);
    found = block_bytes(&message->block);
    if (found != expected) {
        const int source = message->source;

        message_end(world, message, MESSAGE_REFUSED);
        FAIL(ERR_PEER, "%s: expected %" PRId64 " bytes from rank %d, found %"
             PRId64, operation_name(operation, name), expected, source, found);
    }
    *parcel = (struct parcel){message->block, message};
    return OK;
}

static void threads_give_back(struct operation *operation,
                              struct parcel *parcel)
{
    if (parcel->message == NULL) return;
    message_end(operation->group->backend, parcel->message, MESSAGE_DONE);
    parcel->message = NULL;
}

static const struct comm_ops threads_ops = {
    .name = "threads", .borrows = true, .post = threads_post,
    .finish = threads_finish, .borrow = threads_borrow,
    .give_back = threads_give_back, .abort = world_abort,
    .look = threads_look,
};

status ranks_imagine(struct group *world, int count, int rank)
{
    static _Thread_local struct comm_rank nobody = {.imagined = true};

    TRY(group_build_world(world, &threads_ops, NULL, &nobody, rank, count));
    return OK;
}

/* Wakes everybody, for this rank will send nothing more. */
static void member_leave(struct member *member)
{
    struct world *world = member->world;

    atomic_store(&member->ended, true);
    for (int i = 0; i < world->count; i++) {
        struct mailbox *box = &world->members[i].mailbox;

        pthread_mutex_lock(&box->lock);
        mailbox_wake(box);
        pthread_mutex_unlock(&box->lock);
    }
}

static status member_run(struct member *member, struct group *group)
{
    struct world *world = member->world;

    TRY(threads_check_rounding());
    TRY(group_build_world(group, &threads_ops, world, &member->self,
                          member->rank, world->count));
    TRY(world->body(world->argument, group));
    return OK;
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct group group = {0};

    member->result = member_run(member, &group);
    if (member->result != OK) {
        snprintf(member->reason, sizeof member->reason, "%s",
                 status_message());
        snprintf(member->hint, sizeof member->hint, "%s", status_hint_text());
        if (!member->self.agreed)
            world_abort(member->world, member->rank, member->reason);
    }
    member_leave(member);
    group_free(&group);
    return NULL;
}

/* A rank that failed by itself explains those that failed for its sake. */
static status world_result(struct world *world)
{
    const struct member *cause = NULL;

    for (int i = 0; i < world->count; i++) {
        const struct member *m = &world->members[i];

        if (m->result == OK) continue;
        if (cause == NULL || (cause->result == ERR_PEER &&
                              m->result != ERR_PEER))
            cause = m;
    }
    if (cause == NULL) return OK;
    if (cause->result == ERR_PEER && atomic_load(&world->aborted) &&
        world->members[world->aborter].result != OK)
        cause = &world->members[world->aborter];
    if (world->count > 1 && comm_names_rank(cause->result, cause->rank))
        FAIL(cause->result, "rank %d: %s", cause->rank, cause->reason);
    status_fail(cause->result, __FILE__, __LINE__, "%s", cause->reason);
    if (cause->hint[0] == '\0') return cause->result;
    return status_hint(cause->result, "%s", cause->hint);
}

static status world_start(struct world *world, int *created)
{
    for (; *created < world->count; ++*created) {
        struct member *member = &world->members[*created];
        const int error = pthread_create(&member->thread, NULL, member_main,
                                         member);

        if (error != 0)
            FAIL(ERR_MEMORY,
                 "rank %d of %d cannot be created (error %d): ask for fewer",
                 *created, world->count, error);
    }
    return OK;
}

status ranks_run(int count, status (*body)(void *argument,
                                           struct group *world),
                 void *argument)
{
    struct world world = {.count = count, .body = body, .argument = argument};
    int created = 0;
    status result;

    if (count < 1 || count > RANKS_MAX)
        FAIL(ERR_CONFIG, "%d ranks: expected 1 to %d", count, RANKS_MAX);
    TRY(memory_take((size_t)count, sizeof *world.members,
                    (void **)&world.members));
    pthread_mutex_init(&world.lock, NULL);
    world.spins = count <= threads_cores();
    for (int i = 0; i < count; i++) {
        struct member *member = &world.members[i];

        *member = (struct member){.world = &world, .rank = i};
        mailbox_init(&member->mailbox);
        comm_rank_init(&member->self);
    }
    result = world_start(&world, &created);
    if (result != OK) world_abort(&world, created, status_message());
    for (int i = 0; i < created; i++)
        pthread_join(world.members[i].thread, NULL);
    if (result == OK) result = world_result(&world);
    for (int i = 0; i < count; i++) {
        comm_rank_free(&world.members[i].self);
        mailbox_free(&world.members[i].mailbox);
    }
    pthread_mutex_destroy(&world.lock);
    memory_free(world.members);
    return result;
}
