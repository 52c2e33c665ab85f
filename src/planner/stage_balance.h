/* SPDX-License-Identifier: Apache-2.0 */
/* stage_balance.h - how a search divides blocks among the stages of a pipe: the
 * last one also has the head, so it may get fewer of them. */
#ifndef LOCKSTEP_PLANNER_STAGE_BALANCE_H
#define LOCKSTEP_PLANNER_STAGE_BALANCE_H

#include "planner/layout.h"

/* The layout's `head_blocks` with which the busiest rank of its pipe has the
 * least work: 0, as even as can be, unless another one saves a hundredth.
 * Negative: there is no division, as a stage would have no block. */
int stage_balance(const struct layout *layout, const struct shape *shape);

#endif
