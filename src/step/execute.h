/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - performs a step: a loop over the list of this rank.
 *
 * It knows no schedule and no layout: each instruction is performed in turn,
 * after those that it needs. One in the background is started, and the loop
 * goes on. micro_batches.h performs what belongs to micro-batches, zero.h what
 * belongs to units of parameters, and the caller the tail, from the loss on. */
#ifndef LOCKSTEP_STEP_EXECUTE_H
#define LOCKSTEP_STEP_EXECUTE_H

#include "list/list.h"
#include "schedule/timeline.h"
#include "step/later_tokens.h"
#include "step/loss.h"
#include "step/message_check.h"
#include "step/read_ahead.h"
#include "step/team.h"
#include "step/zero.h"

/* Instructions from DO_LOSS on but DO_REGATHER, DO_ENCODE, DO_SECOND and
 * DO_END. */
struct executor_tail {
    status (*act)(void *argument, const struct instruction *instruction);
    void *argument;
};

struct executor {
    struct pipeline *pipeline;   /* borrowed, open */
    struct team *team;           /* borrowed */
    struct zero *zero;           /* borrowed, [chunks] */
    struct executor_tail tail;
    struct message_check stated;        /* messages of the instruction that is
                                  * performed */
    struct step_list step;       /* owned: a step of training */
    struct step_list forward;    /* owned: F alone of `turns` micro-batches */
    int turns;
    struct comm_handle *handles; /* owned, of either list */
    int handle_count;
    int64_t *began;              /* owned, [chunks]: F, B or W, ns */
    struct taken {
        int64_t longest_ns, shortest_ns; /* in the steps so far; 0: in none */
    } *taken;                    /* owned, [step.count]: by each instruction */
    const int64_t *planned_ns;   /* borrowed, [step.count]: of each
                                  * instruction, waiting apart; 0: not planned.
                                  * NULL: none is */
    struct loss_sum loss, z_loss; /* of the last step */
    struct later_tokens later;          /* of modules that predict later
                                         * tokens */
    struct timeline *timeline;   /* of F, B and W from now on; NULL: none */
    int64_t *marks;              /* borrowed, [step.count + 1] ns: when each
                                  * instruction of a step began; NULL: none */
    int64_t began_ns;            /* when the timeline is at 0 */
    double data_s;               /* of the last step, making batches, and
                                  * waiting for them at the end of the step
                                  * before */
    double waited_s;             /* of them: the next step's, so far */
    struct read_ahead *ahead;    /* owned; NULL: no room for a second batch */
    const struct sample_source *source;
    struct sample_source next;   /* of the next step: the caller's to fill
                                  * before each; content 0: none is read */
    int64_t first;               /* F alone: of the sequences */
    int64_t follows;             /* ... and of those of the next call, which
                                  * are read meanwhile if the source's content
                                  * is not 0: the caller's to fill before each;
                                  * -1: none */
    bool step_runs;              /* the list is `step`, else `forward` */
    /* The losses of sequences [first, first + count) entered a step: on one
     * rank for each sequence. The caller's to fill; NULL: nobody asks. */
    void (*used)(void *argument, int64_t first, int64_t count);
    void *used_argument;
};

/* The lists are made and verified here, and the ranks of each group compared
 * (collective over the world). ERR_CONFIG: ranks follow different lists. All
 * ranks fail if one does, so that nobody waits for it. */
status executor_build(struct executor *executor, struct pipeline *pipeline,
                      struct team *team, struct zero *zero,
                      struct executor_tail tail);
void executor_free(struct executor *executor);

/* The whole list. The loss begins with it. After an error nothing is under way
 * any more; one before the loss aborts the ranks' world. */
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

/* Which layer made the loss of this pipeline's micro-batch `index` of the step
 * not finite: collective over the pipe. ERR_NUMERIC on the rank that has it, OK
 * on others. */
status executor_find_bad(struct executor *executor,
                         const struct sample_source *source, int index);

/* The chunk that ends the model, or -1; of forward-only runs. */
int executor_last(const struct executor *executor);
#endif
