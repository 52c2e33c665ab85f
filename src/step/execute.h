/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - performs the schedule of a step: F, B and W of this rank's
 * stages and the transfers between them.
 *
 * It switches on kinds of actions and knows no schedule: whatever the lists
 * say is done, in their order. Transfers are posted in the background; only
 * the action that needs the data waits. Each micro-batch in flight has a frame
 * of its stage; which one is decided once, from the lists. */
#ifndef LOCKSTEP_STEP_EXECUTE_H
#define LOCKSTEP_STEP_EXECUTE_H

#include "plan/pipeline.h"
#include "schedule/timeline.h"
#include "step/loss.h"
#include "step/team.h"

/* Where sequences come from. Fills arrays of [length]: token ids, targets (-1:
 * none), positions and documents (where each one's begins) of sequence `index`
 * of the global batch. */
struct sample_source {
    status (*fill)(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents);
    void *argument;
    int64_t first; /* number of sequence 0 among all that the run reads */
};

struct flight;

/* A chunk's micro-batches in flight. */
struct lane {
    struct flight *flights;      /* owned, [frames] */
    struct comm_handle *returns; /* owned, [returns] */
    int *frame;                  /* owned, [micro-batches]: of each */
    int *return_of;              /* owned, [micro-batches]: buffer of each */
    bool *early;                 /* owned, [micro-batches]: its frame is free
                                  * when its receive is posted */
};

struct executor {
    struct pipeline *pipeline;   /* borrowed, open */
    struct team *team;           /* borrowed */
    struct lane *lanes;          /* owned, [chunks] */
    struct loss_sum loss, z_loss; /* of the last step */
    struct timeline *timeline;   /* of every action from now on; NULL: none */
    int64_t began_ns;            /* when the timeline is at 0 */
    double data_s;               /* of the last step, making batches */
    int round;                   /* of a step: the caller's to set */
    const struct sample_source *source;
};

status executor_build(struct executor *executor, struct pipeline *pipeline,
                      struct team *team);
void executor_free(struct executor *executor);

/* All actions of this rank, of one round; the first begins the loss. The
 * gradients of each chunk are its trees' roots
 * afterwards, the loss of a last stage lies in executor->loss, which is not
 * joined over the ranks yet. After an error nothing is under way any more, and
 * the ranks' world is aborted. */
status executor_run(struct executor *executor,
                    const struct sample_source *source);

/* F of one micro-batch through all stages, without gradients: sequences
 * `first` and up of the source. After it the losses of the last stage lie in
 * its run. `number` counts the calls, from 0. */
status executor_forward(struct executor *executor,
                        const struct sample_source *source, int64_t first,
                        int64_t number);
/* Ends what executor_forward left under way. */
status executor_settle(struct executor *executor);

/* Which layer made the loss of this pipeline's micro-batch `index` not finite:
 * collective over the pipe. ERR_NUMERIC on the rank that has it, OK on others.
 */
status executor_find_bad(struct executor *executor,
                         const struct sample_source *source, int index);

/* The chunk that ends the model, or -1; of forward-only runs. */
int executor_last(const struct executor *executor);
#endif
