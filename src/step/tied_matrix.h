/* SPDX-License-Identifier: Apache-2.0 */
/* tied_matrix.h - a matrix that two stages use: the table of the embedding,
 * which is the head's weight, or is looked up by modules for later tokens, too.
 *
 * Each stage holds a copy and sums the gradient of its own uses. Once both are
 * summed over the batch they are added, later uses and lookup, on both sides;
 * equal gradients and equal weights stay equal. */
#ifndef LOCKSTEP_STEP_TIED_MATRIX_H
#define LOCKSTEP_STEP_TIED_MATRIX_H

#include "step/team.h"

struct tied {
    struct pipeline *pipeline; /* borrowed */
    struct team *team;         /* borrowed */
    void *room;                /* borrowed: a part of the other's gradient */
};

/* The pipeline is open. */
void tied_build(struct tied *tied, struct pipeline *pipeline,
                struct team *team);
/* Adds both gradients of the parameter that a chunk shares (DO_TIE). Collective
 * over the two ranks of the pipe. */
status tied_add(struct tied *tied, int chunk);

#endif
