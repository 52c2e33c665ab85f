/* SPDX-License-Identifier: Apache-2.0 */
/* largest_rank.h - the rank of a layout that needs the most memory. */
#ifndef LOCKSTEP_TRAIN_LARGEST_RANK_H
#define LOCKSTEP_TRAIN_LARGEST_RANK_H

#include "setup/setup.h"

/* Plans some ranks, and compares them with `rank`, which needs `bytes`. Which:
 *   pipe              every place
 *   tensor            the first and the last
 *   sharing the batch the first, those with the largest shards, and, where
 *                     these do not tell what a rank needs, the one with the
 *                     most bytes of shards and states
 * Where shards of weights do not tell what a rank needs, it plans all ranks
 * that share the batch, if they are at most LARGEST_TRIED. Planning changes the
 * place of `setup`; it is put back to `rank`. */
enum { LARGEST_TRIED = 64 };
struct largest { int rank; size_t bytes; };
status largest_rank(struct setup *setup, int rank, size_t bytes,
                    struct largest *out);
/* About how many bytes more than the planned rank at `place` the largest of
 * those needs that share its batch; 0 where weights tell. */
double largest_more(const struct setup *setup, const struct pipeline *pipeline,
                    const struct place *place);
/* Compares the ranks at one place on the pipe; of those that share the batch
 * all, where weights do not tell and they are `tried` or fewer. The setup's
 * place is changed. */
status largest_at(struct setup *setup, int pipe, int tried,
                  struct largest *out);

#endif
