/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h - calls whose ranks read each other's memory of GPUs, without copies
 * in host memory (comm.library=ipc): all-gathers, all-to-alls, exchanges, sums,
 * which one kernel adds by the grid's tree, and messages of pipelines. All else
 * is done as by comm.library=own.
 *
 * A collective has three parts (messages: peer_messages.c). Each rank marks
 * with an event what its GPU has done, and tells the others where they find
 * what they need. Each reads, in its stream of messages, behind the events.
 * Each tells the others that it has read. */
#ifndef LOCKSTEP_COMM_PEERS_H
#define LOCKSTEP_COMM_PEERS_H

#include "comm/message.h"
#include "device/peers.h"

/* The ranks of a world, as this one reads them. */
struct peers;

/* All ranks of the world build it, with their device. ERR_MEMORY, ERR_PEER. */
status peers_build(struct peers **out, struct group *world,
                   struct device *device);
/* Why this rank cannot read another one; "": it reads all. */
const char *peers_why(const struct peers *peers);
/* All ranks of the world: nobody reads any more, and each may give back its
 * memory. Not after a failure. */
status peers_part(struct peers *peers);
void peers_free(struct peers *peers); /* NULL allowed */

/* Ranks of a group that this one reads, and that read it. With PEERS_SOME, as
 * on several machines, bytes from and to the others go through host memory, and
 * so do all sums. */
enum peers_use { PEERS_NONE, PEERS_SOME, PEERS_ALL };
/* From now on, as long as the peers are there. number: of the group in this
 * rank. */
status group_use_peers(struct group *group, struct peers *peers, int number,
                       enum peers_use *out);
void group_leave_peers(struct group *group);

/* Whether the call is one of them: on all ranks, or, with PEERS_SOME, on those
 * that read another one. Tensors are those that messages see. */
bool peers_take(const struct group *group, const struct comm_call *call);
/* ... and the ranks await each other's devices by events. */
bool peers_follow(const struct group *group, const struct comm_call *call);
status peers_run(struct operation *operation);

/* A sender tells its receiver where the message lies. */
struct peer_told {
    struct peer_place from;
    int64_t bytes;
    int64_t event;            /* number of the sender's: then the message is
                               * there; -1: it is */
};
/* Posts a message of memory that kernels given so far may still write. Both are
 * the operation's until peers_finish. */
status peers_post(struct operation *operation, struct message *message,
                  struct peer_told *told);
/* Until it has been read. The message is the caller's again whatever the
 * status. */
status peers_finish(struct operation *operation, struct message *message);

#endif
