/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h - the messages of data parallelism, and what the ranks divide: one
 * mechanism for plain data parallelism and every stage of ZeRO and FSDP
 * (struct division).
 *
 *   nothing divided   gradients: all-reduce of each unit
 *   states            gradients: reduce-scatter, each rank updates its shard;
 *                     weights: all-gather
 *   hsdp              as divided, then an all-reduce of each shard over the
 *                     ranks that hold copies of it
 *
 * All sums are ordered by the grid's tree, so no layout shows in a bit. One
 * object for each stage; calls are collective over the ranks that share it. */
#ifndef LOCKSTEP_TRAIN_ZERO_H
#define LOCKSTEP_TRAIN_ZERO_H

#include "optimizer/update.h"
#include "plan/stage.h"
#include "train/team.h"

struct zero {
    struct stage *stage;      /* borrowed, open */
    struct group *shard;      /* that divide; NULL: nothing is divided */
    struct group *copies;     /* that sum the same shard; NULL: none */
};

void zero_build(struct zero *zero, struct stage *stage, struct team *team);
/* Scratch of its calls. The stage need not be open. */
size_t zero_scratch_bytes(struct stage *stage, struct team *team);

/* The gradients of all ranks, from the roots of this one: in this rank's shard
 * of the gradient arena, second uses added. */
status zero_gradients(struct zero *zero);
/* The others' blocks of the norm. */
status zero_blocks(struct zero *zero, double *blocks);
/* After the update: everybody's weights, where a rank holds them all. */
status zero_weights(struct zero *zero);
/* A whole arena, laid out as the table, on every rank; `full` [elements]. */
status zero_collect(struct zero *zero, const struct update_arena *arena,
                    void *full);

#endif
