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
#include "optimizer/update.h"
#include "plan/stage.h"
#include "step/team.h"

/* The reduction of one unit, or of a second use. */
struct zero_sum {
    struct comm_handle scatter, sum;
    bool started, scattered;
};

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
    bool overlaps;            /* units are reduced while B goes on */
    struct zero_sum *sums;    /* owned, [stage->reduced.count] */
    struct comm_handle *gathers; /* owned, [stage->gathered.count] */
    bool *resident;           /* owned, [units]: gathered, and kept */
    void **placed;            /* owned, [parameters] */
    struct run_watch watch;
    int passes, micro_batches; /* of the round: B begun; in all */
    int round, level;         /* of the step: done; sums that wait */
};

/* Watches the stage's run from now on. */
status zero_build(struct zero *zero, struct stage *stage, struct team *team);
/* Ends what is under way; after an error that aborts the world. */
void zero_free(struct zero *zero);
/* Scratch of its calls; the stage need not be open. */
void zero_scratch(struct stage *stage, struct team *team, size_t *bytes,
                  size_t *background);
/* The bytes for the sums of vectors over `tensor` alone. */
size_t zero_join_bytes(const struct stage *stage, const struct group *tensor);

/* Before the passes over `micro_batches` micro-batches whose gradients are
 * reduced together; `first`: of a step. */
void zero_round_begin(struct zero *zero, int micro_batches, bool first);
/* After them: joins the vectors that are not yet, so that every root of this
 * rank is complete. */
status zero_join(struct zero *zero);
/* Then ends what is reduced of the round. */
status zero_round_end(struct zero *zero);
/* After the last round: the gradients of the whole batch in this rank's shards
 * of the gradient arena, second uses added. */
status zero_gradients(struct zero *zero);
/* The others' blocks of the norm. */
status zero_blocks(struct zero *zero, double *blocks);
/* After the update, or other new weights. */
status zero_weights(struct zero *zero);

#endif
