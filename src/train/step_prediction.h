/* SPDX-License-Identifier: Apache-2.0 */
/* step_prediction.h - the predicted step beside the measured one, while a run
 * goes on: of rank 0, where the run has a machine (option `machine`, or its own
 * copy, RUN/machine.json).
 *
 * An instruction of the executor's list and an item of the clock's list have
 * the same number. Of those that follow each other on the rank's own thread,
 * both take from the end of the one before to their own end, waiting included:
 * so the differences add up to that of the step. */
#ifndef LOCKSTEP_TRAIN_STEP_PREDICTION_H
#define LOCKSTEP_TRAIN_STEP_PREDICTION_H

#include "report/report.h"
#include "schedule/timeline.h"
#include "setup/setup.h"
#include "step/step.h"
#include "train/forecast.h"

enum { PREDICTED_RECENT = 128 };

struct step_prediction {
    bool there;
    char machine[MACHINE_NAME_BYTES];
    double step_s, guessed_share;
    int64_t batch;          /* of the step that was predicted */
    struct steps steps;     /* owned; with the times of every item */
    bool numbered;          /* its items are the executor's instructions */
    struct timeline timeline; /* owned: F, B and W of rank 0's pipeline */
    int64_t *marks;         /* owned, [count + 1] ns: when each began */
    double *seconds;        /* owned, [count]: sums of the measured steps */
    const struct step_list *list; /* borrowed */
    int count;              /* instructions of rank 0 */
    int64_t *planned_ns;    /* owned, on every rank of a supervised run: of its
                             * own instructions; NULL: they are not planned */
    int64_t measured;       /* steps; the first of the process is left out */
    double measured_s;      /* their sum */
    double recent[PREDICTED_RECENT]; /* the last ones, in turn */
    struct moments moments; /* in which the machine was measured */
    double exchange_s;      /* the longest between cores of this rank */
};

/* On rank 0, before there is a run. ERR_CONFIG, ERR_FORMAT, ERR_MISSING: the
 * machine cannot be read. A step that cannot be predicted is one notice. */
status step_prediction_open(struct step_prediction *predicted,
                            const struct setup *setup, int ranks);
/* Keeps the machine in the run. */
status step_prediction_store(const struct options *options, const char *run);
/* The executor marks its instructions from the next step on, if its step is
 * the one that was predicted. */
status step_prediction_watch(struct step_prediction *predicted,
                             struct executor *executor, int64_t batch);
/* Every rank's executor learns what its instructions are planned to take, from
 * rank 0; where the step is another, or nobody watches, that they are not
 * planned. Collective over the world. */
status step_prediction_share(struct step_prediction *predicted,
                             struct executor *executor, struct team *team,
                             int64_t batch);
/* After a step of `seconds`; *ms: its prediction, NaN without one. */
void step_prediction_note(struct step_prediction *predicted, int64_t batch,
                          double seconds, double *ms);
/* After a step, now and then: whether the cores of the rank are as near each
 * other as when the machine was measured. */
void step_prediction_watch_cores(struct step_prediction *predicted,
                                 struct threads *threads);
/* The largest differences, in order; and by cause, where the rank has a
 * profile. */
void step_prediction_compare(const struct step_prediction *predicted,
                             const struct profile *profile,
                             struct report_prediction *out);
void step_prediction_free(struct step_prediction *predicted);

#endif
