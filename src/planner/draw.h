/* SPDX-License-Identifier: Apache-2.0 */
/* draw.h - the predicted step as a picture: a row for each resource of each
 * pipe rank. */
#ifndef LOCKSTEP_PLANNER_DRAW_H
#define LOCKSTEP_PLANNER_DRAW_H

#include "planner/predict.h"

status draw_steps(const struct steps *steps, const struct prediction *p,
                  const char *path);

#endif
