/* SPDX-License-Identifier: Apache-2.0 */
/* prediction_causes.h - the predicted step and the measured one, cause by
 * cause: products, attention, kernels that move memory, the update, messages
 * with what a rank waits for, and the rest. */
#ifndef LOCKSTEP_TRAIN_PREDICTION_CAUSES_H
#define LOCKSTEP_TRAIN_PREDICTION_CAUSES_H

#include "planner/steps.h"
#include "report/report.h"

/* Fills in `causes` of rank 0. `steps`: with the times of every item; `profile`
 * of its own thread, NULL: there are none. */
void prediction_causes(const struct steps *steps, double step_s,
                       const struct profile *profile,
                       struct report_prediction *out);

#endif
