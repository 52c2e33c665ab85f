/* SPDX-License-Identifier: Apache-2.0 */
/* process_world.h - the world of a rank that is a process. Private to
 * process*.c.
 *
 * One thread reads and writes all connections; a rank that waits sleeps on a
 * condition until that thread has news. Threads that post a message write as
 * much of it as they can at once. */
#ifndef LOCKSTEP_COMM_PROCESS_WORLD_H
#define LOCKSTEP_COMM_PROCESS_WORLD_H

#include <pthread.h>
#include "comm/link.h"
#include "comm/process.h"
#include "comm/rank.h"
#include "comm/wait_chain.h"

/* A rank's part of the memory that all share: a ring of bytes of its messages,
 * given back in any order, reclaimed from the oldest on. */
enum { RING_BYTES = 8 << 20, RING_MESSAGES = 1024 };
struct ring {
    char *data;               /* [RING_BYTES]; NULL: no shared memory */
    struct ring_entry { uint64_t id; int64_t first, bytes; bool read; }
        entries[RING_MESSAGES];
    int oldest, count;
    int64_t head;             /* where the next one would begin */
};
/* Where `bytes` fit; -1: nowhere now. */
int64_t ring_take(struct ring *ring, uint64_t id, int64_t bytes);
void ring_give_back(struct ring *ring, uint64_t id);

struct process_world {
    struct process_identity identity;
    struct link *links;       /* owned, [size]; its own is never open */
    struct link_stock stock;
    struct ring ring;
    char *shared;             /* mapped: every rank's ring, in order */
    size_t shared_bytes;
    struct sending *sendings; /* that wait in the caller's memory */
    uint64_t last_id;
    pthread_mutex_t lock;     /* of everything here */
    pthread_cond_t change;
    pthread_t thread;         /* of the connections */
    bool runs, quits;
    int64_t told_ns;          /* when the connections' patience was told */
    int wake[2];              /* a pipe: the thread has something new */
    struct wait_chain *waiting;
    bool asks;                /* one thread asks for all */
    struct { uint64_t id; bool came; int peer; } answer;
    bool aborted;
    int aborter;
    char reason[COMM_REASON_BYTES];
    struct comm_rank self;
};

extern const struct comm_ops process_ops;

/* process_io.c. Lock held, but for begin and end. */
status process_io_begin(struct process_world *world);
void process_io_end(struct process_world *world);
void process_send(struct process_world *world, int peer,
                  struct outgoing *outgoing);
/* A frame without bytes; no memory for it ends the world. */
void process_tell(struct process_world *world, int peer, struct frame frame);
/* A message to the peer that waits in the caller's memory; NULL: none. */
struct sending *process_sending(struct process_world *world, int peer,
                                uint64_t id);
void process_lose(struct process_world *world, struct link *link);
/* All threads stop waiting; the other ranks are told. */
void process_abort(struct process_world *world, int rank, const char *reason);

/* process_connect.c */
status process_connect(struct process_world *world, int64_t limit_ms);

#endif
