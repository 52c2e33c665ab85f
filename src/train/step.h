/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - one optimizer step: the executor of the schedule, the loss as a
 * tree over the leaves of the grid, and the update. */
#ifndef LOCKSTEP_TRAIN_STEP_H
#define LOCKSTEP_TRAIN_STEP_H

#include "optimizer/update.h"
#include "plan/stage.h"
#include "schedule/schedule.h"
#include "train/loss.h"
#include "train/team.h"
#include "train/zero.h"

/* Where sequences come from. Fills arrays of [length]: token ids, targets (-1:
 * none), positions and documents of sequence `index` of the global batch. */
struct sample_source {
    status (*fill)(void *argument, int64_t index, int32_t *inputs,
                   int32_t *targets, int32_t *positions, int32_t *documents);
    void *argument;
};

struct train_step {
    struct stage *stage;      /* borrowed, open; planned for this rank's share
                               * of the batch and of the data leaves */
    struct team *team;        /* borrowed; `alone` unless set */
    struct team alone;
    struct schedule schedule; /* owned */
    struct update update;
    struct zero zero;         /* what the ranks that share the batch send */
    struct loss_sum loss;
    double data_s;            /* of the last step, making batches */
};

struct step_result {
    double loss;              /* mean over the unmasked targets */
    double norm, factor;
    int64_t targets;
};

/* The update's rates and betas are the caller's to fill afterwards. join: the
 * ranks that it runs with. */
status train_step_build(struct train_step *step, struct stage *stage,
                        const char *schedule);
void train_step_join(struct train_step *step, struct team *team);
/* Scratch for the messages of a step and for joining up to `values` numbers,
 * bytes; before the stage is open. */
size_t train_step_scratch(struct stage *stage, struct team *team,
                          int64_t values);
void train_step_free(struct train_step *step);

/* Gradients of the whole batch (mean loss) in the root arena, then norm, clip,
 * and the update t (counted from 1). ERR_NUMERIC names the layer whose output
 * is not finite. */
status train_step_run(struct train_step *step,
                      const struct sample_source *source, double lr,
                      int64_t t, struct step_result *out);

/* Sums of the losses of sequences [0, count) without gradients: float64 sums
 * of per-sequence losses in sequence order. The ranks of a team share the
 * sequences; sums [count] is room for one each. */
struct evaluation {
    double *sums;    /* borrowed */
    double sum;
    int64_t targets; /* of all ranks */
};
status train_evaluate(struct train_step *step,
                      const struct sample_source *source, int64_t count,
                      struct evaluation *out);

#endif
