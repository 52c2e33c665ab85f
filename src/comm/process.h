/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - ranks as processes that are connected by the program itself: by
 * TCP, and on one machine also by shared memory.
 *
 * The process that starts the ranks (comm/crew.h) holds a meeting
 * (comm/meeting.h): every rank goes there with the token of the job, says where
 * it listens, and learns where the others do. Then every two ranks have one
 * connection, each end of which has proved that it knows the token
 * (comm/handshake.h).
 *
 * A generation is one meeting. It is in every message; a message of another
 * generation ends the connection. After a loss the ranks that are left close
 * their world and open one of the next generation in the same process, with a
 * new rank in the place of the lost one. */
#ifndef LOCKSTEP_COMM_PROCESS_H
#define LOCKSTEP_COMM_PROCESS_H

#include "comm/comm.h"
#include "comm/handshake.h"

enum { PROCESSES_MOST = 1024 };

/* The rank of this process, told in the environment by the one that started
 * it:
 *   LOCKSTEP_RANK, LOCKSTEP_RANKS, LOCKSTEP_GENERATION, LOCKSTEP_JOB
 *   LOCKSTEP_MEET    HOST:PORT of the meeting
 *   LOCKSTEP_TOKEN   file of the token
 *   LOCKSTEP_SHARED  file of the memory that all ranks share; or not set */
struct process_identity {
    int rank, size;
    uint64_t generation, job;
    char meet[DOOR_ADDRESS_BYTES];
    struct token token;
    char shared[64];      /* path; "": none */
};

/* Whether this process was started as a rank. */
bool process_is_rank(void);
/* ERR_CONFIG: a variable is missing or makes no sense. */
status process_identity_read(struct process_identity *out);

struct process_world;

/* Meets, connects and shares memory. limit_ms: for the others to come. */
status process_world_open(struct process_world **out,
                          const struct process_identity *identity,
                          int64_t limit_ms);
/* The group of all ranks; lives as long as the world. */
status process_world_group(struct process_world *world, struct group *group);
/* Tells the others and waits, for at most wait_ms, until they leave too. */
void process_world_close(struct process_world *world, int64_t wait_ms);

/* Runs body(argument, world) as the rank that the environment says. count: of
 * ranks that there must be; 0: any. */
status process_ranks_run(int count, int64_t limit_ms,
                         status (*body)(void *argument, struct group *world),
                         void *argument);

#endif
