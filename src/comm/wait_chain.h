/* SPDX-License-Identifier: Apache-2.0 */
/* wait_chain.h - for whom the threads of a rank wait.
 *
 * A rank that is late makes other ranks wait, and these make others wait. A
 * rank whose limit is over asks the rank that it waits for whether that one
 * waits for another, and so on: the end of the chain is the missing rank. */
#ifndef LOCKSTEP_COMM_WAIT_CHAIN_H
#define LOCKSTEP_COMM_WAIT_CHAIN_H

#include "comm/message.h"

struct wait_chain {
    uint64_t context, tag;
    enum channel channel;
    int peer;              /* of the world */
    struct wait_chain *next;  /* in the list of the rank */
};

/* peer: of the world. */
struct wait_chain wait_chain_for(const struct operation *operation, int peer);
/* The list belongs to the rank; its lock must be held. */
void wait_chain_add(struct wait_chain **list, struct wait_chain *waiting);
void wait_chain_remove(struct wait_chain **list,
                       const struct wait_chain *waiting);
/* For whom a rank with this list waits in the same operation as `asker`, or
 * else outside the background; -1: for nobody. */
int wait_chain_peer(const struct wait_chain *list,
                    const struct wait_chain *asker);

/* For whom `peer` waits in the asker's operation; -1: for nobody, or it is
 * silent. */
typedef int wait_chain_ask(void *argument, const struct wait_chain *asker,
                           int peer);
/* The end of the chain that begins with the asker's peer, of `size` ranks. `me`
 * is not asked; -1: all are. */
int wait_chain_missing(const struct wait_chain *asker, int size, int me,
                       wait_chain_ask *ask, void *argument);

#endif
