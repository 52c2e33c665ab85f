/* SPDX-License-Identifier: Apache-2.0 */
/* plan_ramp.h - `plan --explain ramp`: what each batch of train.batch_ramp
 * needs, and which of them another view shows. */
#ifndef LOCKSTEP_CLI_PLAN_RAMP_H
#define LOCKSTEP_CLI_PLAN_RAMP_H

#include "cli/table.h"
#include "train/draft.h"

/* A row for each part of the run with one batch, of rank `rank`; without a
 * ramp that is the whole run. The setup plans for the same batch after it. */
status plan_ramp(struct setup *setup, int rank, struct table *table);
/* Plans for the batch of a step, counted from 1; 0: the last one. */
status plan_ramp_choose(struct setup *setup, int64_t step);
/* A line that names the batch that is planned for; nothing without a ramp. */
void plan_ramp_note(const struct setup *setup);

#endif
