/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - messages of ranks that are processes under MPI.
 *
 * No call that waits for long is ever made (mpi_wait.h). Calls are made one at
 * a time, under a lock, because the background threads make them too. Each
 * group has a communicator of its own, so a tag only says which call of the
 * group a message belongs to. */
#include <limits.h>
#include <time.h>
#include "base/lent_memory.h"
#include "comm/mpi_wait.h"

/* Kinds of tags, beside those that mpi_wait.h keeps in the world. */
enum { TAG_CALL, TAG_BACKGROUND, TAG_STRAIGHT, TAG_OPENING, TAG_KINDS };

/* From TAG_FIRST to the largest tag, alike on both sides. A number that is too
 * large begins again at 0: so many calls are never under way. */
static int tag_at(const struct world *world, int kind, bool result,
                  uint64_t number)
{
    const uint64_t numbers =
        (uint64_t)(world->tag_most - TAG_FIRST + 1) / (2 * TAG_KINDS);

    return TAG_FIRST + (int)(((uint64_t)kind * 2 + result) * numbers +
                             number % numbers);
}

static int tag_of(const struct operation *op)
{
    const uint64_t number = op->tag & (((uint64_t)1 << 60) - 1);
    const bool result = op->tag & TAG_RESULT;
    const int kind = op->tag >> 62 & 1   ? TAG_STRAIGHT
                     : op->tag >> 61 & 1 ? TAG_BACKGROUND : TAG_CALL;

    const struct world *world = op->group->backend;

    if (op->group == world->opening)
        return tag_at(world, TAG_OPENING, false, op->group->context >> 8);
    return tag_at(world, kind, result, number);
}

/* The rank of a peer in the communicator. */
static int peer_of(const struct operation *op, int peer)
{
    return op->group->link != NULL ? peer : op->group->members[peer];
}

/* ---- groups ---- */

/* The ranks meet first, in a way that sees a rank which does not come or has
 * given up; then nobody waits long for the others in MPI. */
static status mpi_open(struct group *group)
{
    struct world *world = group->backend;
    const int tag = (int)(group->context % 32768);
    int error;

    if (group->size == 1) return OK;
    world->opening = group;
    const status met = comm_agree(group, OK);

    world->opening = NULL;
    TRY(met);
    pthread_mutex_lock(&world->lock);
    error = world->mpi->open(group->members, group->size, tag, &group->link);
    pthread_mutex_unlock(&world->lock);
    return world_check(world, "open a group", error);
}

static void mpi_close(struct group *group)
{
    struct world *world = group->backend;

    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) world->mpi->close(group->link);
    pthread_mutex_unlock(&world->lock);
    group->link = NULL;
}

/* ---- messages ---- */

/* One look at a request. */
static status request_look(struct world *world, void **request, int *done)
{
    int error;

    pthread_mutex_lock(&world->lock);
    error = world->mpi->test(request, done);
    pthread_mutex_unlock(&world->lock);
    TRY(world_check(world, "finish a message", error));
    if (*done) lent_add(-1);
    return OK;
}

static status request_wait(struct operation *op, int peer, void **request)
{
    struct mpi_wait patience = mpi_wait_begin(op, peer);
    status result = OK;

    for (;;) {
        int done = 0;

        result = request_look(op->group->backend, request, &done);
        if (result != OK || done) break;
        result = mpi_wait_wait(&patience);
        if (result != OK) break;
    }
    mpi_wait_end(&patience);
    return result;
}

static status mpi_post(struct operation *op, int peer, struct message *message)
{
    struct world *world = op->group->backend;
    const struct comm_block block = block_simplify(&message->block);
    int error;

    message->source = peer; /* of the group: whom finish waits for */
    pthread_mutex_lock(&world->lock);
    error = world->mpi->send(op->group->link, &block, peer_of(op, peer),
                             tag_of(op), &message->request);
    pthread_mutex_unlock(&world->lock);
    TRY(world_check(world, "send", error));
    lent_add(1); /* until it is done, even if nobody waits for it */
    operation_sent(op, peer, block_bytes(&block));
    return OK;
}

/* A message cannot be taken back: after an error the world ends anyhow, and
 * its memory stays (base/lent_memory.h). */
static status mpi_finish(struct operation *op, struct message *message,
                         bool withdraw)
{
    if (!withdraw) TRY(request_wait(op, message->source, &message->request));
    return OK;
}

/* A message that has come. */
struct arrival {
    void *message, *request;
    int64_t size;
    int found;
};

/* One look; begins to receive a message of the right size. */
static status arrival_look(struct operation *op, int peer,
                           const struct comm_block *block, struct arrival *a)
{
    struct world *world = op->group->backend;
    int error;

    pthread_mutex_lock(&world->lock);
    error = world->mpi->find(op->group->link, peer_of(op, peer), tag_of(op),
                             &a->message, &a->size, &a->found);
    if (error == 0 && a->found && a->size == block_bytes(block))
        error = world->mpi->receive(block, &a->message, &a->request);
    pthread_mutex_unlock(&world->lock);
    TRY(world_check(world, "receive", error));
    if (a->found && a->size == block_bytes(block)) lent_add(1);
    return OK;
}

static status arrival_wait(struct operation *op, int peer,
                           const struct comm_block *block, struct arrival *a)
{
    struct mpi_wait patience = mpi_wait_begin(op, peer);
    status result;

    do result = arrival_look(op, peer, block, a);
    while (result == OK && !a->found &&
           (result = mpi_wait_wait(&patience)) == OK);
    mpi_wait_end(&patience);
    return result;
}

/* After an error. The block may lie on a stack, which cannot be kept: what is
 * on its way has a moment to come; if it does not, MPI is not called again, and
 * so cannot write it. */
static void receive_end(struct world *world, void **request)
{
    const struct timespec pause = {0, 1000000};
    int done = 0;

    for (int i = 0; i < 500 && !done; i++) {
        pthread_mutex_lock(&world->lock);
        if (world->mpi->test(request, &done) != 0) i = 500;
        pthread_mutex_unlock(&world->lock);
        if (!done) nanosleep(&pause, NULL);
    }
    if (done) lent_add(-1);
    if (done) return;
    pthread_mutex_lock(&world->lock);
    world_silence(world);
    pthread_mutex_unlock(&world->lock);
}

/* Into the block, in whatever arrangement the sender had the bytes. */
static status mpi_borrow(struct operation *op, int peer, struct parcel *parcel)
{
    const struct comm_block block = block_simplify(&parcel->block);
    struct arrival a = {0};
    char name[80];

    TRY(arrival_wait(op, peer, &block, &a));
    if (a.size != block_bytes(&block))
        FAIL(ERR_PEER, "%s: expected %lld bytes from rank %d, found %lld",
             operation_name(op, name), (long long)block_bytes(&block),
             op->group->members[peer], (long long)a.size);
    const status result = request_wait(op, peer, &a.request);

    if (result != OK) receive_end(op->group->backend, &a.request);
    return result;
}

static void mpi_abort(void *backend, int rank, const char *reason)
{
    world_abort(backend, rank, reason);
}

static void mpi_give_back(struct operation *op, struct parcel *parcel)
{
    (void)op, (void)parcel;
}

static status mpi_native_sum(struct group *group, float *out, const float *in,
                             int64_t count)
{
    struct world *world = group->backend;
    int error;

    CHECK(count <= INT_MAX && group->size == world->size);
    pthread_mutex_lock(&world->lock);
    error = world->mpi->all_reduce(in, out, (int)count);
    pthread_mutex_unlock(&world->lock);
    return world_check(world, "reduce", error);
}

const struct comm_ops mpi_ops = {
    .name = "mpi", .borrows = false, .open = mpi_open, .close = mpi_close,
    .post = mpi_post, .finish = mpi_finish,
    .borrow = mpi_borrow, .give_back = mpi_give_back, .abort = mpi_abort,
    .look = world_look,
    .native_sum = mpi_native_sum,
};
