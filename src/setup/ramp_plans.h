/* SPDX-License-Identifier: Apache-2.0 */
/* ramp_plans.h - one plan for a run whose batch changes.
 *
 * The batch decides how many micro-batches there are, and so the schedule, the
 * frames in flight, the partial gradients and the lists of who does what. All
 * of that is cheap to make again; the memory is not. So every batch of the ramp
 * is planned before the first step, each row of memory is as large as the
 * largest of them, and at a border the next plan takes over the memory of the
 * one before: weights and states do not move. */
#ifndef LOCKSTEP_SETUP_RAMP_PLANS_H
#define LOCKSTEP_SETUP_RAMP_PLANS_H

#include "setup/setup.h"
#include "step/step.h"

/* Plans setup->batch with room for every batch of the ramp, and for joining up
 * to `values` numbers. The team gains the groups of its chunks. */
status ramp_plan(struct pipeline *pipeline, struct setup *setup,
                 struct team *team, int64_t values);
/* Plans setup->batch with no room for another. */
status ramp_plan_alone(struct pipeline *pipeline, const struct setup *setup,
                       struct team *team, int64_t values);
/* From the batch of the open pipeline to another of the ramp; the step keeps
 * its rates, loss scale, guard and watch. What points into the pipeline's
 * stages is to be made again. Collective. */
status ramp_switch(struct pipeline *pipeline, struct train_step *step,
                   struct setup *setup, int64_t batch);

#endif
