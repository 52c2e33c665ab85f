/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_wait.c - how a rank waits under MPI. */
#include "comm/mpi_wait.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"

enum {
    LOOKS_EAGER = 2000,      /* then the core is given to others in between */
    LOOKS_NEWS = 64,         /* between two looks for what others tell */
    PAUSE_NS_MOST = 200000,
    FAREWELL_NS = 1000000000, /* for telling others of an abort */
    ANSWER_NS = 300000000     /* a rank that waits answers sooner */
};

struct farewell {
    int32_t rank;
    char reason[COMM_REASON_BYTES];
};

struct question {
    int32_t asker; /* of the world */
    uint64_t context, tag;
};

status world_check(const struct world *world, const char *what, int error)
{
    char text[256];

    if (error == 0) return OK;
    world->mpi->explain(error, text, sizeof text);
    FAIL(ERR_PEER, "MPI cannot %s: %s", what, text);
}

/* ---- silence ---- */

static int no_end(void)
{
    return 1;
}

static int no_send(void *comm, const struct comm_block *block, int peer,
                   int tag, void **request)
{
    (void)comm, (void)block, (void)peer, (void)tag, (void)request;
    return 1;
}

static int no_open(const int *members, int size, int tag, void **comm)
{
    (void)members, (void)size, (void)tag, (void)comm;
    return 1;
}

static int no_close(void *comm)
{
    (void)comm;
    return 1;
}

static int no_find(void *comm, int peer, int tag, void **message,
                   int64_t *bytes, int *found)
{
    (void)comm, (void)peer, (void)tag, (void)message, (void)bytes;
    *found = 0;
    return 1;
}

static int no_receive(const struct comm_block *block, void **message,
                      void **request)
{
    (void)block, (void)message, (void)request;
    return 1;
}

static int no_test(void **request, int *done)
{
    (void)request;
    *done = 0;
    return 1;
}

static int no_sum(const float *in, float *out, int count)
{
    (void)in, (void)out, (void)count;
    return 1;
}

static void no_words(int error, char *text, int bytes)
{
    (void)error;
    snprintf(text, (size_t)bytes, "the rank has given up");
}

void world_silence(struct world *world)
{
    static const struct mpi_plugin silent = {
        .version = MPI_PLUGIN_VERSION, .end = no_end, .open = no_open,
        .close = no_close, .send = no_send,
        .find = no_find, .receive = no_receive, .test = no_test,
        .all_reduce = no_sum, .explain = no_words};

    world->mpi = &silent;
}

/* ---- what others tell ---- */

/* Takes a message of `bytes` with the tag, if one has come. Lock held. */
static bool news_take(struct world *world, int peer, int tag, void *into,
                      int64_t bytes)
{
    const struct comm_block block = block_plain(into, bytes);
    void *message, *request;
    int found = 0, done = 0;
    int64_t size = 0;

    if (world->mpi->find(NULL, peer, tag, &message, &size, &found) != 0 ||
        !found ||
        size != bytes ||
        world->mpi->receive(&block, &message, &request) != 0)
        return false;
    while (!done)
        if (world->mpi->test(&request, &done) != 0) return false;
    return true;
}

static void farewell_look(struct world *world)
{
    struct farewell farewell = {0};

    if (!news_take(world, MPI_PLUGIN_ANY, TAG_FAREWELL, &farewell,
                   sizeof farewell))
        return;
    farewell.reason[COMM_REASON_BYTES - 1] = '\0';
    if (atomic_load(&world->aborted)) return;
    world->aborter = farewell.rank;
    memcpy(world->reason, farewell.reason, sizeof world->reason);
    atomic_store(&world->aborted, true);
}

/* A slot that MPI does not read any more; NULL: there is none. */
static struct answer *answer_slot(struct world *world)
{
    for (int i = 0; i < ANSWERS_MOST; i++) {
        struct answer *a = &world->answers[i];
        int done = 0;

        if (!a->busy) return a;
        if (world->mpi->test(&a->request, &done) != 0) continue;
        a->busy = !done;
        if (done) return a;
    }
    return NULL;
}

static void questions_answer(struct world *world)
{
    struct question q = {0};
    struct answer *a;

    while ((a = answer_slot(world)) != NULL &&
           news_take(world, MPI_PLUGIN_ANY, TAG_QUESTION, &q, sizeof q)) {
        const struct wait_chain asker = {.context = q.context, .tag = q.tag};
        const struct comm_block block = block_plain(&a->peer, sizeof a->peer);

        a->peer = wait_chain_peer(world->waiting, &asker);
        a->busy = world->mpi->send(NULL, &block, q.asker, TAG_ANSWER,
                                   &a->request) == 0;
    }
}

static void news_look(struct world *world)
{
    pthread_mutex_lock(&world->lock);
    farewell_look(world);
    questions_answer(world);
    pthread_mutex_unlock(&world->lock);
}

/* ---- giving up ---- */

void world_abort(struct world *world, int rank, const char *reason)
{
    static struct farewell farewell; /* MPI may read it until the end */
    const struct comm_block block = block_plain(&farewell, sizeof farewell);
    const int64_t end = clock_ns() + FAREWELL_NS;

    pthread_mutex_lock(&world->lock);
    if (!atomic_load(&world->aborted)) {
        world->aborter = farewell.rank = rank;
        snprintf(world->reason, sizeof world->reason, "%s", reason);
        memcpy(farewell.reason, world->reason, sizeof farewell.reason);
        atomic_store(&world->aborted, true);
        for (int i = 0; i < world->size; i++) {
            void *request;
            int done = i == world->rank;

            if (done || world->mpi->send(NULL, &block, i, TAG_FAREWELL,
                                         &request) != 0)
                continue;
            while (!done && clock_ns() < end)
                if (world->mpi->test(&request, &done) != 0) break;
        }
    }
    pthread_mutex_unlock(&world->lock);
}

bool world_leave(struct world *world)
{
    static int32_t word; /* MPI may read it until the end */
    const struct comm_block block = block_plain(&word, sizeof word);
    const struct timespec pause = {0, PAUSE_NS_MOST};
    const int64_t end = clock_ns() + FAREWELL_NS;
    int32_t got;
    void *request;
    int others = 0;

    pthread_mutex_lock(&world->lock);
    for (int i = 0; i < world->size; i++)
        if (i != world->rank)
            world->mpi->send(NULL, &block, i, TAG_LEAVING, &request);
    while (others < world->size - 1 && clock_ns() < end) {
        if (news_take(world, MPI_PLUGIN_ANY, TAG_LEAVING, &got, sizeof got))
            others++;
        else
            nanosleep(&pause, NULL);
    }
    pthread_mutex_unlock(&world->lock);
    return others == world->size - 1;
}

/* Aborter and reason were written before the flag, and stay. */
static status fail_aborted(const struct operation *op)
{
    const struct world *world = op->group->backend;

    return operation_stopped(op, world->aborter, world->reason);
}

status world_look(const struct operation *op)
{
    struct world *world = op->group->backend;

    news_look(world);
    return atomic_load(&world->aborted) ? fail_aborted(op) : OK;
}

/* For whom `peer` waits; -1: for nobody, or it is silent. */
static int ask(void *argument, const struct wait_chain *asker, int peer)
{
    struct world *world = argument;
    /* MPI may read it until the end, if the peer never takes it. */
    static struct question questions[ANSWERS_MOST];
    static int asked;
    struct question *q = &questions[asked++ % ANSWERS_MOST];
    const struct comm_block block = block_plain(q, sizeof *q);
    const int64_t end = clock_ns() + ANSWER_NS;
    int32_t answer = -1;
    bool came = false;
    void *request;
    int error, done;

    *q = (struct question){.asker = world->rank, .context = asker->context,
                           .tag = asker->tag};
    pthread_mutex_lock(&world->lock);
    error = world->mpi->send(NULL, &block, peer, TAG_QUESTION, &request);
    pthread_mutex_unlock(&world->lock);
    while (error == 0 && !came && clock_ns() < end &&
           !atomic_load(&world->aborted)) {
        const struct timespec pause = {0, PAUSE_NS_MOST};

        nanosleep(&pause, NULL);
        news_look(world);
        pthread_mutex_lock(&world->lock);
        error = world->mpi->test(&request, &done);
        came = news_take(world, peer, TAG_ANSWER, &answer, sizeof answer);
        pthread_mutex_unlock(&world->lock);
    }
    return answer;
}

static status fail_late(struct mpi_wait *patience)
{
    const struct operation *op = patience->operation;
    struct world *world = op->group->backend;
    status late;
    bool first;
    int missing;

    pthread_mutex_lock(&world->lock);
    first = !world->asks;
    world->asks = true;
    pthread_mutex_unlock(&world->lock);
    if (!first) return OK; /* soon there is an abort */
    missing = wait_chain_missing(&patience->waiting, world->size, world->rank,
                                 ask, world);
    if (atomic_load(&world->aborted)) return fail_aborted(op);
    late = operation_late(op, missing);
    world_abort(world, world->rank, status_message());
    return late;
}

/* ---- waiting ---- */

struct mpi_wait mpi_wait_begin(const struct operation *op, int peer)
{
    return (struct mpi_wait){
        .operation = op, .deadline = clock_ns() + op->group->limit_ns,
        .track = meter_begin(),
        .waiting = wait_chain_for(op, op->group->members[peer])};
}

void mpi_wait_end(struct mpi_wait *patience)
{
    struct world *world = patience->operation->group->backend;

    meter_end(patience->track, &(struct meter_what){
        .kind = METER_IDLE, .name = "wait for MPI"});
    if (!patience->listed) return;
    pthread_mutex_lock(&world->lock);
    wait_chain_remove(&world->waiting, &patience->waiting);
    pthread_mutex_unlock(&world->lock);
    patience->listed = false;
}

static status patience_news(struct mpi_wait *patience)
{
    struct world *world = patience->operation->group->backend;

    if (!patience->listed) {
        pthread_mutex_lock(&world->lock);
        wait_chain_add(&world->waiting, &patience->waiting);
        pthread_mutex_unlock(&world->lock);
        patience->listed = true;
    }
    news_look(world);
    if (atomic_load(&world->aborted)) return fail_aborted(patience->operation);
    if (clock_ns() >= patience->deadline) return fail_late(patience);
    return OK;
}

status mpi_wait_wait(struct mpi_wait *patience)
{
    if (++patience->looks % LOOKS_NEWS == 0) TRY(patience_news(patience));
    if (patience->looks > LOOKS_EAGER) {
        const struct timespec pause = {0, patience->pause_ns};

        nanosleep(&pause, NULL);
        if (patience->pause_ns < PAUSE_NS_MOST) patience->pause_ns += 1000;
    }
    return OK;
}
