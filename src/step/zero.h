/* SPDX-License-Identifier: Apache-2.0 */
/* zero.h - the messages of data parallelism, and what the ranks divide: one
 * mechanism for plain data parallelism and every stage of ZeRO and FSDP
 * (struct division).
 *
 *   gradients  nothing divided: each unit is all-reduced. Else reduce-scattered
 *              to its owners, and, where others hold copies of the same shards
 *              (hsdp), those are all-reduced over them. In the background, as
 *              soon as a unit is complete in the last pass over it.
 *   update     each rank, its shards
 *   weights    not divided: all-gathered after the update. Divided: gathered
 *              when a pass needs them, a few units ahead (plan/residency.h).
 *
 * Each unit follows the class of its parameters (mesh/shard.h): which ranks
 * divide it, and which hold copies. All sums are ordered by the grid's tree, so
 * no layout shows in a bit. One object for each stage; calls are collective
 * over the ranks that share it. */
#ifndef LOCKSTEP_STEP_ZERO_H
#define LOCKSTEP_STEP_ZERO_H

#include "comm/progress.h"
#include "list/instruction.h"
#include "optimizer/update.h"
#include "plan/stage.h"
#include "step/team.h"

/* The ranks of a class of parameters. */
struct zero_class {
    struct group *shard;      /* that divide; NULL: nothing is divided */
    struct group *copies;     /* that sum the same shard; NULL: none */
    void *scratch[2];         /* of background calls of shard, of copies */
    size_t scratch_bytes[2];
};

struct zero {
    struct stage *stage;      /* borrowed, open */
    struct zero_class classes[SHARD_CLASSES_MAX]; /* of stage->shards */
    struct group *tensor;     /* that hold parts of its vectors; NULL: none */
    bool *resident;           /* owned, [units]: gathered, and kept */
    void **placed;            /* owned, [parameters] */
    const void **scales;      /* owned, [parameters]: of those placed as
                               * codes; NULL: none is */
    int round, level;         /* of the step: done; sums that wait */
};

status zero_build(struct zero *zero, struct stage *stage, struct team *team);
void zero_free(struct zero *zero);
/* Scratch of its calls; the stage need not be open. */
void zero_scratch(struct stage *stage, struct team *team, size_t *bytes,
                  size_t *background);
/* The bytes for the sums of vectors over `tensor` alone. */
size_t zero_join_bytes(const struct stage *stage, const struct group *tensor);

/* Performs an instruction about units: from DO_ROUND over DO_GATHER, DO_REDUCE
 * and their like to DO_REGATHER. One in the background is started; the handle
 * is its. */
status zero_act(struct zero *zero, const struct instruction *instruction,
                struct comm_handle *handle);
/* The others' blocks of the norm, of units that are divided as that of the
 * instruction is. */
status zero_share(struct zero *zero, const struct instruction *instruction,
                  double *blocks);
/* Weights that were kept are not to be read again. */
void zero_forget(struct zero *zero);
/* After the update, or other new weights. */
status zero_weights(struct zero *zero);

#endif
