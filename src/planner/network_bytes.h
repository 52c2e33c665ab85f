/* SPDX-License-Identifier: Apache-2.0 */
/* network_bytes.h - bytes that a rank of the first pipe position sends to other
 * nodes in a step. */
#ifndef LOCKSTEP_PLANNER_NETWORK_BYTES_H
#define LOCKSTEP_PLANNER_NETWORK_BYTES_H

#include "planner/cost.h"

/* Messages of blocks, of the pipe, of gradients and of weights. A ring over the
 * ranks of a node leaves it once, each of them sends its part of that. */
double network_bytes(const struct cost *cost);

#endif
