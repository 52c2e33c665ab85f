/* SPDX-License-Identifier: Apache-2.0 */
/* plan_precision.h - `plan --explain precision`: the numbers that each product
 * of a linear layer reads and writes. */
#ifndef LOCKSTEP_CLI_PLAN_PRECISION_H
#define LOCKSTEP_CLI_PLAN_PRECISION_H

#include "cli/table.h"
#include "plan/pipeline.h"

/* A row for each operand of each product of the rank's stages; blocks with
 * equal products share their rows. */
status plan_precision(const struct pipeline *pipeline, struct table *table);
/* The recipe with its source, or that there is none. */
void plan_precision_note(const struct pipeline *pipeline);

#endif
