/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - one optimizer step: the schedule (execute.h), the sums over the
 * ranks, and the update. */
#ifndef LOCKSTEP_STEP_STEP_H
#define LOCKSTEP_STEP_STEP_H

#include "optimizer/whole_tensors.h"
#include "step/delayed_scales.h"
#include "step/execute.h"
#include "step/loss_scale.h"
#include "step/qk_clip.h"
#include "step/routing.h"
#include "step/tied_matrix.h"
#include "step/zero.h"

struct step_result {
    double loss;              /* mean over the unmasked targets */
    double z_loss;            /* likewise, what it adds; NaN: there is none */
    double later[MTP_MOST];   /* mean losses of modules that predict later
                               * tokens; NaN: there is none */
    double norm, factor;
    int64_t targets;
    double loss_scale;        /* 1 where there is none */
    double max_score;         /* of all heads, with QK-clip; else NaN */
    struct routing_result routing; /* of a mixture of experts */
    bool skipped;             /* the gradients were not finite: no update */
    int asked;                /* largest answer of all ranks to train_step.asks;
                               * 0 where the step was refused */
    bool refused;             /* by the guard: nothing has changed */
};

/* Asked before each update, with loss and norm, on every rank: all must answer
 * alike. Zeroed: every update is made. */
struct step_guard {
    bool (*accepts)(void *argument, const struct step_result *result);
    void *argument;
    bool takes_nan;           /* what is not finite is its to judge, and no
                               * error */
};

/* Called on every rank between the norm and the update, and after it. */
struct step_watch {
    status (*gradients)(void *argument);
    status (*updated)(void *argument);
    void *argument;
};

/* The step under way. */
struct step_now {
    const struct sample_source *source;
    double lr;
    int64_t t;
    struct step_result *out;
    struct update_result norm;
    bool updates;             /* decided: the weights change */
};

struct train_step {
    struct pipeline *pipeline; /* borrowed, open; planned for this rank's share
                                * of the batch and of the data leaves */
    struct team *team;         /* borrowed; `alone` unless joined */
    struct team alone;
    struct executor executor;
    struct update update;      /* rates and betas; the rest: of each chunk */
    struct zero *zero;         /* owned, [chunks]: what the ranks that share
                                * the batch send */
    struct whole_work *whole;  /* owned, [chunks] */
    double *bad;               /* owned, [2 * ranks that share the batch]:
                                * micro-batches whose loss is not finite */
    struct tied tied;
    struct qk_clip clip;
    struct delayed delayed;
    struct routing routing;
    struct rate_sum rates;     /* of the steps so far: schedule-free */
    struct loss_scale scaling; /* the caller's to fill, like the rates */
    struct step_guard guard;   /* the caller's to fill */
    int (*asks)(void *argument); /* what this rank has to say, as signals;
                                  * NULL: 0 */
    void *asks_argument;
    struct step_now now;
    bool probes;               /* the step under way changes nothing */
    double data_s;             /* of the last step: making batches, and
                                * waiting for them (execute.h) */
    struct sample_source next; /* of the step after the one that runs, which is
                                * read meanwhile: the caller's to fill; its
                                * content 0: none */
    uint64_t evaluations;      /* so far; each has a content of its own */
    const struct step_watch *watch; /* borrowed; NULL: nobody looks */
    struct {                   /* called when weights are to change, before
                                * they do; NULL: nobody is */
        status (*act)(void *argument);
        void (*ready)(void *argument); /* before the reduction of the norm, so
                                * that no weights change anywhere until all
                                * ranks have returned from it */
        void *argument;
    } turn;
};

/* The update's rates and betas are the caller's to fill afterwards. team: the
 * ranks that it runs with; NULL: alone. ERR_CONFIG: the ranks follow different
 * schedules. */
status train_step_build(struct train_step *step, struct pipeline *pipeline,
                        struct team *team);
void train_step_free(struct train_step *step);

/* Gradients of the whole batch (mean loss) in the root arenas, then norm, clip,
 * and the update t (counted from 1). Loss and norm are those of the whole, on
 * every rank. ERR_NUMERIC names the layer whose output is not finite. */
status train_step_run(struct train_step *step,
                      const struct sample_source *source, double lr,
                      int64_t t, struct step_result *out);

/* One chunk's update, as a step makes it. */
struct update train_step_update(const struct train_step *step, int chunk);

/* Before each step, number `step` counted from 0, and what is measured before
 * it: whether its products are those of the recipe. */
void train_step_begin(struct train_step *step, int64_t number);

/* After the weights of step 0 were set: the optimizer's states. */
status train_step_start(struct train_step *step);

/* train_step_run without the update: loss, targets and norm of the mean
 * gradient, not finite or without any target as they may be. */
status train_step_probe(struct train_step *step,
                        const struct sample_source *source,
                        struct step_result *out);

/* Weights and their moving averages change places: before an evaluation, and
 * again after it. Collective. */
status train_step_swap(struct train_step *step);
/* Where the optimizer keeps an average, it takes the place of the weights,
 * until train_step_return: for validation, and while a checkpoint is written or
 * read. Collective. */
status train_step_average(struct train_step *step);
bool train_step_averages(const struct train_step *step); /* it keeps one */
status train_step_return(struct train_step *step);
/* After weights were loaded or set: what kernels read follows, and, where the
 * own ones come from a slot, those that other ranks update. Collective. */
status train_step_refresh(struct train_step *step);

/* Room for the messages of a step and for joining up to `values` numbers;
 * before the pipeline is open. */
void train_step_reserve(struct pipeline *pipeline, struct team *team,
                        int64_t values);
/* Whether this rank speaks for its share of the sequences: it has the last
 * stage, others have the same sequences. */
bool train_step_speaks(const struct train_step *step);

/* Sums of the losses of sequences [0, count) without gradients: float64 sums
 * of per-sequence losses in sequence order. The ranks of a team share the
 * sequences; sums [count] is room for one each. If the content of the source is
 * not 0, micro-batches are read ahead (read_ahead.h). */
struct evaluation {
    double *sums;    /* borrowed */
    double sum;
    int64_t targets; /* of all ranks */
};
status train_evaluate(struct train_step *step,
                      const struct sample_source *source, int64_t count,
                      struct evaluation *out);

#endif
