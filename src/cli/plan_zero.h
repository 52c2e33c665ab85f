/* SPDX-License-Identifier: Apache-2.0 */
/* plan_zero.h - `plan --explain zero`: how often gradients are reduced, and the
 * price of each choice. */
#ifndef LOCKSTEP_CLI_PLAN_ZERO_H
#define LOCKSTEP_CLI_PLAN_ZERO_H

#include "cli/table.h"
#include "train/draft.h"

/* A row for each value of zero_reduce, of rank `rank`: what it keeps and what
 * it sends, really planned, or why it is not possible. The setup plans for the
 * same choice after it. */
status plan_zero(struct setup *setup, int rank, struct table *table);
/* A warning where zero=zero2, zero3 or fsdp leaves gradients whole; nothing
 * where zero_reduce=once asks for that. */
status plan_zero_warn(struct setup *setup, int rank);

#endif
