/* SPDX-License-Identifier: Apache-2.0 */
/* residency.h - when a unit's gathered weights, or its unreduced gradients, are
 * in memory, and where: known before the first step, so planned like any other
 * memory.
 *
 *   weights    a unit is gathered some units ahead of its first use in a pass
 *              and given back after its last
 *   gradients  a unit's room is taken when B first writes to it; its reduction
 *              starts after the last write and is waited for two units later
 *
 * Each pass is followed on its own: passes of different micro-batches never run
 * at once. */
#ifndef LOCKSTEP_PLAN_RESIDENCY_H
#define LOCKSTEP_PLAN_RESIDENCY_H

#include "mesh/shard.h"
#include "nn/frame.h"
#include "nn/gradient.h"

struct residence {
    int unit;        /* of the shards */
    int use;      /* the gradient of a second use; -1: the unit's own */
    int begin;       /* event before which its room is taken */
    int first, last; /* events that use it */
    int end;         /* event before which its room is free again */
    int64_t offset;  /* elements */
    struct use_range joined; /* gradients: from the first to the last use
                      * whose vectors are joined over the ranks that hold parts
                      * of the same sequences; empty: none is */
};

struct residency {
    struct residence *items; /* owned, in the order of their first events */
    int count, capacity;
    int64_t elements;        /* room of all */
    bool gradients;          /* else weights */
};

/* How many units are gathered ahead, and how many elements are under way at
 * once, at most; limit 0: any. One unit is, whatever its size. */
struct ahead { int units; int64_t limit; };
status residency_weights(struct residency *residency,
                         const struct program *program,
                         const struct frame_plan *frame,
                         const struct shards *shards, struct ahead ahead);
/* beside: a unit is reduced as soon as it is complete, beside B (W is fused);
 * else at the end of the round, and rooms stay until then. */
status residency_gradients(struct residency *residency,
                           const struct program *program,
                           const struct frame_plan *frame,
                           const struct shards *shards, bool beside);
void residency_free(struct residency *residency);

/* Whether an item is there for the F of the loss alone, which does nothing in
 * training. */
bool residency_is_idle(const struct residence *item,
                       const struct program *program,
                       const struct frame_plan *frame);

#endif
