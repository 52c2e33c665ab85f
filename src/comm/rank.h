/* SPDX-License-Identifier: Apache-2.0 */
/* rank.h - the counters that a rank has once, whatever groups it is in. A back
 * end builds one for each of its ranks. */
#ifndef LOCKSTEP_COMM_RANK_H
#define LOCKSTEP_COMM_RANK_H

#include "comm/message.h"
#include "comm/traffic.h"
#include "device/point.h"

struct call_sums;

/* Groups that a rank has built. */
struct built { uint64_t context; int count; };

struct comm_rank {
    struct traffic traffic;
    struct built *built; /* owned */
    int built_count, built_capacity;
    int world_size;
    int node; /* consecutive ranks of the world on one node; 0: all */
    bool imagined; /* of a world that only plans see: counts no groups */
    /* For lifetime_check.h: since when a call of its thread goes on; since when
     * its device waits for one; 0: none does */
    _Atomic int64_t waits_ns, holds_ns;
    comm_watcher *watcher; /* of the calls that its thread makes, or NULL */
    void *watches; /* the watcher's argument */
    struct call_sums *sums; /* of the step under way, or NULL (call_sums.h) */
    bool agreed; /* the last call was an agreement of all to fail: then nobody
                  * needs to be told, or kept from hearing of it, by an abort */
};

void comm_rank_init(struct comm_rank *self);
void comm_rank_free(struct comm_rank *self);

/* The group of all ranks of a back end's world. */
status group_build_world(struct group *world, const struct comm_ops *ops,
                         void *backend, struct comm_rank *self, int rank,
                         int size);

/* Runs the call in this thread. tag: the number of the call in its channel. */
status call_run(struct group *group, const struct comm_call *call,
                enum channel channel, uint64_t tag);
/* The call is about to begin: it is checked, and the rank's watcher told.
 * ERR_CONFIG: sizes or types do not fit. */
status call_begin(const struct group *group, const struct comm_call *call);
/* *out = the call as messages make it: they find memory of a device where its
 * copies do. */
void call_see(const struct comm_call *call, struct comm_call *out);
/* The device is done with what is sent and received. */
status call_settle(const struct group *group, const struct comm_call *call);
/* Where messages see copies of a device's memory: of what the call, as
 * call_see has it, reads, before; back to the device what it wrote, after. */
status call_fetch(const struct group *group, const struct comm_call *call);
status call_store(const struct group *group, const struct comm_call *call);
/* Both of a block, as messages see it. */
status block_bring(const struct comm_block *block, bool fetches);
/* Something else moves its bytes, between devices. */
bool call_is_taken(const struct group *group, const struct comm_call *call);
/* The point in the work of a device after which the call may begin. */
struct device_point call_point(const struct group *group,
                               const struct comm_call *call);
/* Counts an operation that is over. */
void operation_count(const struct operation *operation);

#endif
