/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.h - checksums of what a rank holds, compared with those of the ranks
 * that must hold the same.
 *
 * An entry is one kind of numbers (weight, state, the copy that kernels read)
 * of one parameter. A rank has a CRC-32C of each entry, over all that it holds
 * of it. Ranks that differ only in one axis hold the same of an entry unless
 * that axis divides it (inventory.h), so every axis of the mesh is asked once:
 * the largest and the smallest checksum of its ranks must be equal.
 *
 *   data 2 x tensor 2, zero1     rank 0    1    2    3
 *   weight of a matrix              [a   |b   |a   |b  ]  data: 0 = 2, 1 = 3
 *   weight of a norm                [c   |c   |c   |c  ]  data and tensor
 *   state of a matrix               [d   |e   |f   |g  ]  no replicas
 *
 * Nothing is allocated after replicas_build but the room of replicas_vote. */
#ifndef LOCKSTEP_STEP_REPLICAS_H
#define LOCKSTEP_STEP_REPLICAS_H

#include "step/inventory.h"

struct replicas {
    const struct inventory *inventory; /* borrowed */
    const struct stage *stages;        /* borrowed, [stage_count] */
    struct team *team;                 /* borrowed */
    int stage_count;
    int entries;               /* parameters of the model x kinds */
    struct replica_entry *held; /* owned, [entries] */
    double *extremes;        /* owned, [2 * entries] */
    void *scratch;           /* owned: of the messages */
    size_t scratch_bytes;
    uint32_t *gradients[3];  /* owned, [parameters]: of repeated steps */
};

/* The part of one entry that this rank holds. */
struct replica_entry {
    int64_t digest;   /* CRC-32C; -1: nothing */
    axis_set divided; /* axes whose ranks hold other elements */
    uint32_t place;   /* a hash: which elements */
    bool whole;       /* all that one place of the other axes has, once */
};

/* The inventory, its stages and their team outlive it. */
status replicas_build(struct replicas *replicas,
                      const struct inventory *inventory,
                      const struct inventory_of *of);
void replicas_free(struct replicas *replicas); /* zeroed: allowed */

/* Between two steps. *entry: the first that differs anywhere; -1: none does.
 * Collective over the team's world; the same on all ranks. */
status replicas_compare(struct replicas *replicas, int *entry);
/* "weight of model.norm" */
void replicas_name(const struct replicas *replicas, int entry,
                   char out[PARAM_NAME_BYTES + 32]);

/* One rank's say about an entry; digest -1: it holds nothing of it. */
struct replica_vote { double place, digest; };
/* votes [ranks of the team's world]: all ranks' say. Collective. */
status votes_gather(struct team *team, struct replica_vote mine,
                    struct replica_vote *votes);
/* votes [ranks of the world]. Collective. */
status replicas_vote(struct replicas *replicas, int entry,
                     struct replica_vote *votes);
/* Whether most of the ranks that hold what `rank` holds have another checksum
 * than it. *sure: some checksum has most of them. */
bool replicas_outvoted(const struct replica_vote *votes, int ranks, int rank,
                       bool *sure);

/* Checksums of this rank's gradients, after they are summed and before the
 * update, as those of pass 0, 1 or 2 over the step. */
void replicas_gradients(struct replicas *replicas, int pass);
/* Whether this rank's own differ between two passes. */
bool replicas_own_differ(const struct replicas *replicas, int a, int b);
/* The first parameter whose gradients of two passes differ on some rank; -1:
 * none. Collective. */
status replicas_passes(struct replicas *replicas, int a, int b, int *order);

/* Drills: one bit of what this rank trains, and of its gradients. */
void replicas_flip(struct replicas *replicas);
void replicas_flip_gradient(struct replicas *replicas, int bit);

#endif
