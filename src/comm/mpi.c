/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - messages of ranks that are processes under MPI.
 *
 * No call that waits is ever made (patience.h). Calls are made one at a time,
 * under a lock, because the background threads make them too. The tags of
 * messages are hashes of the group and of the number of the call in it. */
#include <limits.h>
#include <time.h>
#include "base/lent.h"
#include "comm/patience.h"

/* From TAG_FIRST to the largest tag, alike on both sides. */
static int tag_of(const struct operation *op)
{
    const struct world *world = op->group->backend;
    uint64_t mixed = (op->group->context ^ op->tag * 0x9e3779b97f4a7c15u) *
                     0xd6e8feb86659fd93u;

    mixed ^= mixed >> 32;
    return TAG_FIRST +
           (int)(mixed % (uint64_t)(world->tag_most - TAG_FIRST + 1));
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
    struct patience patience = patience_begin(op, peer);
    status result = OK;

    for (;;) {
        int done = 0;

        result = request_look(op->group->backend, request, &done);
        if (result != OK || done) break;
        result = patience_wait(&patience);
        if (result != OK) break;
    }
    patience_end(&patience);
    return result;
}

static status mpi_post(struct operation *op, int peer, struct message *message)
{
    struct world *world = op->group->backend;
    const struct comm_block block = block_simplify(&message->block);
    int error;

    message->source = peer; /* of the group: whom finish waits for */
    pthread_mutex_lock(&world->lock);
    error = world->mpi->send(&block, op->group->members[peer], tag_of(op),
                             &message->request);
    pthread_mutex_unlock(&world->lock);
    TRY(world_check(world, "send", error));
    lent_add(1); /* until it is done, even if nobody waits for it */
    op->messages++;
    op->bytes += block_bytes(&block);
    return OK;
}

/* A message cannot be taken back: after an error the world ends anyhow, and
 * its memory stays (base/lent.h). */
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
    error = world->mpi->find(op->group->members[peer], tag_of(op),
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
    struct patience patience = patience_begin(op, peer);
    status result;

    do result = arrival_look(op, peer, block, a);
    while (result == OK && !a->found &&
           (result = patience_wait(&patience)) == OK);
    patience_end(&patience);
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
    .name = "mpi", .borrows = false, .post = mpi_post, .finish = mpi_finish,
    .borrow = mpi_borrow, .give_back = mpi_give_back, .abort = mpi_abort,
    .native_sum = mpi_native_sum,
};
