/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - the ranks of one run: where this one stands in the mesh, and the
 * groups that it belongs to.
 *
 * Ranks of the group `batch` share the batch: each works on its own leaves of
 * it, and the roots of their subtrees are combined in the order of the grid's
 * tree, so that the number of ranks does not show in a bit (docs/numerics.md,
 * section 1). Ranks of the other axes work together on the same sequences.
 *
 * A zeroed team is one rank alone; every call then does nothing. Calls are
 * collective over the group that they name. */
#ifndef LOCKSTEP_STEP_TEAM_H
#define LOCKSTEP_STEP_TEAM_H

#include "mesh/group.h"
#include "plan/pipeline.h"

/* Groups of more than one axis, beside the group of each axis. */
enum {
    TEAM_BATCH = AXIS_COUNT, /* data x shard x expert, in the order of their
                              * leaves */
    TEAM_DATA_SHARD,   /* that hold copies of the same experts; likewise */
    TEAM_SHARD_EXPERT, /* that divide what is not cut, under hsdp; likewise */
    TEAM_EXPERTS, /* that divide the experts, where these are more than those
                   * of the expert axis (struct mesh) */
    TEAM_STAGE,   /* all that have the stages of this one (mesh/matrices.h);
                   * only where an optimizer sees whole tensors */
    TEAM_GROUPS
};

struct device;

struct team {
    struct group *world;  /* borrowed; NULL: alone */
    struct mesh mesh;
    struct mesh_order order;
    struct place place;
    struct group groups[TEAM_GROUPS]; /* owned, of each axis, then of several;
                                       * size 0: of one rank */
    struct peers *peers;  /* owned: of comm.library=ipc; NULL: none */
    struct group *copies; /* owned, [chunks]: the ranks of the pipe with the
                           * same stage; size 0: this one alone */
    int chunks;
};

/* The groups of this rank; no message is sent. limit_s: longest wait for a
 * message, seconds; 0: as long as the world's. */
status team_build(struct team *team, struct group *world,
                  const struct mesh *mesh, const struct mesh_order *order,
                  int64_t limit_s);
/* Groups for stages that lie on two ranks of the pipe, and for tensors that an
 * optimizer sees as wholes. */
status team_add_chunks(struct team *team, const struct pipeline *pipeline);
/* Its groups use the library of this name (comm.library) for memory of the
 * device, from now until team_leave_library; own, or NULL: nothing to do. Where
 * ipc cannot be, the log says why. ERR_DEVICE, on all ranks: nccl cannot be
 * opened. */
status team_use_library(struct team *team, const char *name,
                        struct device *device);
void team_leave_library(struct team *team);
/* All ranks, when nothing has failed: before any of them gives back memory that
 * others have opened. */
status team_part(struct team *team);
void team_free(struct team *team);

int team_rank(const struct team *team); /* in the world; 0 alone */
int team_size(const struct team *team); /* ranks of the world; 1 alone */
/* which: an axis, or one of the above. NULL: a group of this rank alone. */
struct group *team_group(struct team *team, int which);
/* The group of an axis inside the program: of the expert axis all that divide
 * the experts. */
struct group *team_axis_group(struct team *team, enum axis axis);
/* The group along some of the axes that share the batch, as classes of
 * parameters have them (mesh/shard.h). */
struct group *team_over(struct team *team, axis_set axes);
/* Among the ranks that share the batch. */
int team_batch_rank(const struct team *team);
int team_batch_size(const struct team *team);

/* NULL: no other rank of the pipe has this chunk's stage. Those who do, in the
 * order of their leaves. */
struct group *team_copies(struct team *team, int chunk);

/* Scratch for joining up to `values` numbers, bytes. */
size_t team_scratch_bytes(struct team *team, int64_t values);
void team_use_scratch(struct team *team, void *scratch, size_t bytes);
/* context: values [count], a subtree's sum of each rank, become the sums of the
 * tree over its ranks; targets are added. */
status team_context_leaves(struct team *team, double *values, int64_t count,
                           int64_t *targets);
/* world: values [count] of which each was set by one rank at most and is 0 on
 * the others. */
status team_join(struct team *team, double *values, int64_t count);
/* world: each becomes the largest of all ranks'. */
status team_largest(struct team *team, double *values, int64_t count);
/* world: the largest of all ranks' values. */
status team_most(struct team *team, int *value);
/* world: ends a phase in which one rank can fail alone. */
status team_agree(struct team *team, status mine);

#endif
