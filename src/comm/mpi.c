/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - ranks as processes under MPI, which only carries messages.
 *
 * No call that waits is ever made: a rank looks again and again, more and more
 * rarely, so that it sees aborts and its own deadline, and does not burn a core
 * that others need. Calls are made one at a time, under a lock, because the
 * background thread makes them too. MPI's tag 0 says that a rank has given up;
 * the others are hashes of the group and of the number of the call in it. */
#include "comm/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/threads.h"
#include "comm/message.h"
#include "comm/mpi/plugin.h"
#include "comm/rank.h"

enum {
    ABORT_TAG = 0,
    LOOKS_EAGER = 2000,     /* then the core is given to others in between */
    LOOKS_ABORT = 64,       /* between two looks for an abort */
    PAUSE_NS_MOST = 200000,
    FAREWELL_NS = 1000000000 /* for telling others of an abort */
};

struct world {
    const struct mpi_plugin *mpi;
    void *library; /* owned */
    int rank, size, tag_most;
    pthread_mutex_t lock;
    _Atomic bool aborted;
    int aborter;                    /* under the lock, as is the reason */
    char reason[COMM_REASON_BYTES];
    struct comm_rank self;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static status check(struct world *world, const char *what, int error)
{
    char text[256];

    if (error == 0) return OK;
    world->mpi->explain(error, text, sizeof text);
    FAIL(ERR_PEER, "MPI cannot %s: %s", what, text);
}

/* A number from 1 to the largest tag, alike on both sides. */
static int tag_of(const struct operation *op)
{
    const struct world *world = op->group->backend;
    uint64_t mixed = (op->group->context ^ op->tag * 0x9e3779b97f4a7c15u) *
                     0xd6e8feb86659fd93u;

    mixed ^= mixed >> 32;
    return 1 + (int)(mixed % (uint64_t)world->tag_most);
}

/* ---- waiting ---- */

struct patience {
    int64_t deadline, pause_ns;
    int looks;
};

static struct patience patience_begin(const struct operation *op)
{
    return (struct patience){.deadline = now_ns() + op->group->limit_ns};
}

/* What an aborting rank sends. */
struct farewell {
    int32_t rank;
    char reason[COMM_REASON_BYTES];
};

/* Takes an abort that has come, if any. */
static void abort_look(struct world *world)
{
    struct farewell farewell = {0};
    void *message, *request;
    const struct comm_block block = block_plain(&farewell, sizeof farewell);
    int found = 0, done = 0;
    int64_t bytes = 0;

    pthread_mutex_lock(&world->lock);
    if (world->mpi->find(MPI_PLUGIN_ANY, ABORT_TAG, &message, &bytes,
                         &found) == 0 && found &&
        bytes == (int64_t)sizeof farewell &&
        world->mpi->receive(&block, &message, &request) == 0) {
        while (!done && world->mpi->test(&request, &done) == 0) continue;
        farewell.reason[COMM_REASON_BYTES - 1] = '\0';
        if (!atomic_load(&world->aborted)) {
            world->aborter = farewell.rank;
            memcpy(world->reason, farewell.reason, sizeof world->reason);
            atomic_store(&world->aborted, true);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static status fail_aborted(const struct operation *op)
{
    struct world *world = op->group->backend;
    char name[80], reason[COMM_REASON_BYTES];
    int rank;

    pthread_mutex_lock(&world->lock);
    rank = world->aborter;
    memcpy(reason, world->reason, sizeof reason);
    pthread_mutex_unlock(&world->lock);
    FAIL(ERR_PEER, "%s: stopped because rank %d gave up: %s",
         operation_name(op, name), rank, reason);
}

/* Tells everybody, and gives the messages a moment to leave. */
static void mpi_abort(void *backend, int rank, const char *reason)
{
    static struct farewell farewell; /* MPI may read it until the end */
    const struct comm_block block = block_plain(&farewell, sizeof farewell);
    struct world *world = backend;
    const int64_t end = now_ns() + FAREWELL_NS;

    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) {
        world->aborter = farewell.rank = rank;
        snprintf(world->reason, sizeof world->reason, "%s", reason);
        memcpy(farewell.reason, world->reason, sizeof farewell.reason);
        atomic_store(&world->aborted, true);
        for (int i = 0; i < world->size; i++) {
            void *request;
            int done = i == world->rank;

            if (done || world->mpi->send(&block, i, ABORT_TAG,
                                         &request) != 0)
                continue;
            while (!done && now_ns() < end)
                if (world->mpi->test(&request, &done) != 0) break;
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static status patience_wait(const struct operation *op, int peer,
                            struct patience *patience)
{
    struct world *world = op->group->backend;
    char name[80];

    if (++patience->looks % LOOKS_ABORT == 0) {
        abort_look(world);
        if (atomic_load(&world->aborted)) return fail_aborted(op);
        if (now_ns() >= patience->deadline) {
            status_fail(ERR_PEER, __FILE__, __LINE__,
                        "%s: rank %d has not come within %.1f s",
                        operation_name(op, name), op->group->members[peer],
                        1e-9 * (double)op->group->limit_ns);
            mpi_abort(world, world->rank, status_message());
            return ERR_PEER;
        }
    }
    if (patience->looks > LOOKS_EAGER) {
        struct timespec pause = {0, patience->pause_ns};

        nanosleep(&pause, NULL);
        if (patience->pause_ns < PAUSE_NS_MOST) patience->pause_ns += 1000;
    }
    return OK;
}

/* ---- messages ---- */

static status request_wait(struct operation *op, int peer, void **request)
{
    struct world *world = op->group->backend;
    struct patience patience = patience_begin(op);

    for (;;) {
        int done = 0, error;

        pthread_mutex_lock(&world->lock);
        error = world->mpi->test(request, &done);
        pthread_mutex_unlock(&world->lock);
        TRY(check(world, "finish a message", error));
        if (done) return OK;
        TRY(patience_wait(op, peer, &patience));
    }
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
    TRY(check(world, "send", error));
    op->messages++;
    op->bytes += block_bytes(&block);
    return OK;
}

/* A message cannot be taken back: after an error the world ends anyhow, and MPI
 * is not called again. */
static status mpi_finish(struct operation *op, struct message *message,
                         bool withdraw)
{
    if (!withdraw) TRY(request_wait(op, message->source, &message->request));
    return OK;
}

/* Into the block, in whatever arrangement the sender had the bytes. */
static status mpi_borrow(struct operation *op, int peer, struct parcel *parcel)
{
    const struct comm_block block = block_simplify(&parcel->block);
    const int64_t bytes = block_bytes(&block);
    struct world *world = op->group->backend;
    struct patience patience = patience_begin(op);
    void *message = NULL, *request = NULL;
    int found = 0, error;
    int64_t size = 0;
    char name[80];

    for (;;) {
        pthread_mutex_lock(&world->lock);
        error = world->mpi->find(op->group->members[peer], tag_of(op),
                                 &message, &size, &found);
        if (error == 0 && found && size == bytes)
            error = world->mpi->receive(&block, &message, &request);
        pthread_mutex_unlock(&world->lock);
        TRY(check(world, "receive", error));
        if (found) break;
        TRY(patience_wait(op, peer, &patience));
    }
    if (size != bytes)
        FAIL(ERR_PEER, "%s: expected %lld bytes from rank %d, found %lld",
             operation_name(op, name), (long long)bytes,
             op->group->members[peer], (long long)size);
    return request_wait(op, peer, &request);
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
    return check(world, "reduce", error);
}

static const struct comm_ops mpi_ops = {
    .name = "mpi", .borrows = false, .post = mpi_post, .finish = mpi_finish,
    .borrow = mpi_borrow, .give_back = mpi_give_back, .abort = mpi_abort,
    .native_sum = mpi_native_sum,
};

/* ---- the world ---- */

static status plugin_path(const char *name, char out[PATH_BYTES])
{
    const char *directory = getenv("LOCKSTEP_PLUGINS");
    char program[PATH_BYTES], file[64];

    snprintf(file, sizeof file, "comm_%s.so", name);
    if (directory == NULL) {
        const ssize_t length = readlink("/proc/self/exe", program,
                                        sizeof program - 1);

        program[length > 0 ? length : 0] = '\0';
        char *slash = strrchr(program, '/');
        if (slash != NULL) *slash = '\0';
        directory = program;
    }
    TRY(path_join(out, PATH_BYTES, directory, file));
    return OK;
}

static status plugin_open(struct world *world, const char *name, int scope)
{
    char path[PATH_BYTES];

    TRY(plugin_path(name, path));
    world->library = dlopen(path, RTLD_NOW | scope);
    if (world->library == NULL)
        FAIL(ERR_DEVICE, "the plug-in for %s cannot be opened: %s", name,
             dlerror());
    world->mpi = dlsym(world->library, "lockstep_mpi_plugin");
    if (world->mpi == NULL || world->mpi->version != MPI_PLUGIN_VERSION)
        FAIL(ERR_DEVICE, "%s belongs to another version of this program",
             path);
    return OK;
}

status mpi_check(const char *name)
{
    struct world world = {0};
    const status result = plugin_open(&world, name, RTLD_LOCAL);

    if (world.library != NULL) dlclose(world.library);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}

static status world_join(struct world *world, const char *name, int count)
{
    int serial_ok = 0;

    /* The library's own plug-ins look for its symbols among the global ones. */
    TRY(plugin_open(world, name, RTLD_GLOBAL));
    TRY(check(world, "begin", world->mpi->begin(
        &world->rank, &world->size, &world->tag_most, &serial_ok)));
    TRY(threads_check_rounding());
    if (!serial_ok)
        FAIL(ERR_DEVICE, "this MPI allows calls from one thread only");
    if (count > 0 && count != world->size)
        FAIL(ERR_CONFIG, "%d ranks were asked for, but the launcher started "
             "%d", count, world->size);
    return OK;
}

status mpi_ranks_run(const char *name, int count,
                     status (*body)(void *argument, struct group *world),
                     void *argument)
{
    static struct world world; /* outlives messages that nobody took */
    struct group group = {0};
    status result;

    pthread_mutex_init(&world.lock, NULL);
    TRY(world_join(&world, name, count));
    comm_rank_init(&world.self);
    result = group_build_world(&group, &mpi_ops, &world, &world.self,
                               world.rank, world.size);
    if (result == OK) result = body(argument, &group);
    if (result == OK) result = comm_agree(&group, OK);
    else mpi_abort(&world, world.rank, status_message());
    group_free(&group);
    comm_rank_free(&world.self);
    if (result == OK) result = check(&world, "end", world.mpi->end());
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
