/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_wait.h - how a rank waits under MPI: it looks again and again, more and
 * more rarely, sees when others give up, and gives up at its deadline.
 *
 * Some tags are kept from messages:
 *   farewell   a rank has given up, and why
 *   question   for whom do you wait? (wait_chain.h)
 *   answer     the rank, or nobody
 *   leaving    this process ends
 * A rank that waits answers; one that does not come is silent. */
#ifndef LOCKSTEP_COMM_MPI_WAIT_H
#define LOCKSTEP_COMM_MPI_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include "base/meter.h"
#include "comm/mpi/plugin.h"
#include "comm/rank.h"
#include "comm/wait_chain.h"

enum { TAG_FAREWELL, TAG_QUESTION, TAG_ANSWER, TAG_LEAVING, TAG_FIRST };
enum { ANSWERS_MOST = 16 };

/* For a rank that asked; under way until MPI has it. */
struct answer {
    int32_t peer; /* of the world; -1: for nobody */
    bool busy;
    void *request;
};

struct world {
    const struct mpi_plugin *mpi;
    void *library; /* owned */
    int rank, size, tag_most;
    pthread_mutex_t lock;  /* MPI is called, what follows is read, with it */
    struct wait_chain *waiting;
    struct answer answers[ANSWERS_MOST];
    bool asks;             /* one thread asks for all */
    _Atomic bool aborted;
    int aborter;
    char reason[COMM_REASON_BYTES];
    const struct group *opening; /* whose ranks meet before it has a
                            * communicator; NULL: none */
    struct comm_rank self;
};

struct mpi_wait {
    const struct operation *operation;
    int64_t deadline, pause_ns;
    int looks;
    bool listed;
    struct wait_chain waiting;
    struct meter_track *track;
};

/* Waiting for a rank of the group; mpi_wait_end in every case. */
struct mpi_wait mpi_wait_begin(const struct operation *operation, int peer);
void mpi_wait_end(struct mpi_wait *patience);
/* After every look in vain. ERR_PEER: another rank has given up, or the limit
 * is over: then the world is told which rank is missing. */
status mpi_wait_wait(struct mpi_wait *patience);

/* ERR_PEER with MPI's own words, if there is an error. */
status world_check(const struct world *world, const char *what, int error);
/* ERR_PEER: another rank has told that it gives up. */
status world_look(const struct operation *operation);
/* Tells all ranks, and gives the messages a moment to leave. */
void world_abort(struct world *world, int rank, const char *reason);
/* From now on MPI is not called: whatever is asked of it fails. Lock held. */
void world_silence(struct world *world);
/* Waits, but not for long, until all others leave too; whether they do. */
bool world_leave(struct world *world);

/* comm/mpi.c; the back end is the struct world. */
extern const struct comm_ops mpi_ops;

#endif
