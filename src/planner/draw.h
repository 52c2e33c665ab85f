/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - the predicted step as a picture: a row for each resource of each
 * pipe rank. */
#ifndef LOCKSTEP_PLANNER_DRAW_H
#define LOCKSTEP_PLANNER_DRAW_H

#include "planner/predict.h"
#include "planner/state_copies.h"

/* copies: of the state, a row more for each pipe rank that has some. */
status draw_steps(const struct steps *steps, const struct prediction *p,
                  const struct state_copies *copies, const char *path);

#endif
