/* SPDX-License-Identifier: Apache-2.0 */
/* addends.h - how the leaves of a step lie in its micro-batches. */
#ifndef LOCKSTEP_MESH_ADDENDS_H
#define LOCKSTEP_MESH_ADDENDS_H

#include "mesh/grid.h"

/* Whether some leaf of the step lies in more than one addend. */
bool cut_leaves_lie_apart(const struct cut *cut);
/* Adds of one buffer to another for each micro-batch, in the mean of a step;
 * `takes`: of a use whose products begin with the sibling where they can. */
double cut_adds_each(const struct cut *cut, bool takes);

#endif
