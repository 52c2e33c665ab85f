/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - the ranks of one run. Data parallelism: each rank works on its own
 * leaves of the global batch, and the roots of their subtrees are combined in
 * the order of the grid's tree, so that the number of ranks does not show in a
 * bit (docs/numerics.md, section 1).
 *
 * A zeroed team is one rank alone; every call then does nothing. All calls are
 * collective over the team. */
#ifndef LOCKSTEP_TRAIN_TEAM_H
#define LOCKSTEP_TRAIN_TEAM_H

#include "comm/comm.h"
#include "nn/gradient.h"

struct team {
    struct group *world;  /* borrowed, with team_scratch_bytes of scratch once
                           * a step runs; NULL: alone */
};

int team_rank(const struct team *team);
int team_size(const struct team *team);
/* Scratch for the collectives of a step, and for joining up to `values`
 * numbers, bytes. */
size_t team_scratch_bytes(const struct team *team,
                          const struct gradients *gradients, int64_t values);
void team_use_scratch(const struct team *team, void *scratch, size_t bytes);
/* The roots of every stream, over all ranks. */
status team_gradients(const struct team *team, struct gradients *gradients);
/* Roots of the loss combined by the tree, targets added. */
status team_loss(const struct team *team, double *root, int64_t *targets);
/* values [count] where each rank has set its own and the others are 0. */
status team_join(const struct team *team, double *values, int64_t count);
/* The largest of all ranks' values. */
status team_most(const struct team *team, int *value);
/* Ends a phase in which one rank can fail alone. */
status team_agree(const struct team *team, status mine);

#endif
