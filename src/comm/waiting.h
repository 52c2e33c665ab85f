/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h - for whom the threads of a rank wait.
 *
 * A rank that is late keeps others, who keep others. Whoever loses patience
 * asks the rank that it waits for whether that one waits itself, and so on: the
 * end of the chain is the rank that is missing. */
#ifndef LOCKSTEP_COMM_WAITING_H
#define LOCKSTEP_COMM_WAITING_H

#include "comm/message.h"

struct waiting {
    uint64_t context, tag;
    enum channel channel;
    int peer;              /* of the world */
    struct waiting *next;  /* in the list of the rank */
};

/* peer: of the world. */
struct waiting waiting_for(const struct operation *operation, int peer);
/* The list belongs to the rank; its lock must be held. */
void waiting_add(struct waiting **list, struct waiting *waiting);
void waiting_remove(struct waiting **list, const struct waiting *waiting);
/* For whom a rank with this list waits in the same operation as `asker`, or
 * else outside the background; -1: for nobody. */
int waiting_peer(const struct waiting *list, const struct waiting *asker);

/* For whom `peer` waits in the asker's operation; -1: for nobody, or it is
 * silent. */
typedef int waiting_ask(void *argument, const struct waiting *asker, int peer);
/* The end of the chain that begins with the asker's peer, of `size` ranks. `me`
 * is not asked; -1: all are. */
int waiting_missing(const struct waiting *asker, int size, int me,
                    waiting_ask *ask, void *argument);

#endif
