/* SPDX-License-Identifier: Apache-2.0 */
/* small_run.h - a small model with its pipeline and step of training, for tests
 * of what a step does. */
#ifndef LOCKSTEP_TESTS_TRAIN_SMALL_RUN_H
#define LOCKSTEP_TESTS_TRAIN_SMALL_RUN_H

#include "tests/test.h"
#include "step/step.h"

struct training {
    struct model model;
    struct pipeline pipeline;
    struct train_step step;
};

/* The model is set. prepare, which may be NULL: before weights are drawn. */
static inline void training_open(struct training *t,
                                 const struct pipeline_request *request,
                                 void (*prepare)(struct stage *stage))
{
    IS_OK(pipeline_plan(&t->pipeline, request));
    IS_OK(pipeline_open(&t->pipeline));
    if (prepare != NULL) prepare(&t->pipeline.stages[0]);
    IS_OK(stage_init_weights(&t->pipeline.stages[0], &t->model, 11));
    IS_OK(train_step_build(&t->step, &t->pipeline, NULL));
    t->step.update.beta1 = 0.9;
    t->step.update.beta2 = 0.95;
    t->step.update.epsilon = 1e-8;
}

static inline void training_end(struct training *t)
{
    train_step_free(&t->step);
    pipeline_free(&t->pipeline);
}

#endif
