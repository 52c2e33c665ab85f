/* SPDX-License-Identifier: Apache-2.0 */
/* largest_rank.h - the rank of a layout that needs the most memory. */
#ifndef LOCKSTEP_TRAIN_LARGEST_RANK_H
#define LOCKSTEP_TRAIN_LARGEST_RANK_H

#include "setup/setup.h"

/* Compares the ranks of every place on the pipe, of the first and the last
 * place on the tensor axis, and of those that share the batch the first and the
 * ones with the largest shards; and `rank`, which needs `bytes`. Of up to 64
 * ranks all, where shards of weights do not tell what a rank needs. The setup,
 * whose place is changed, is put back to that rank. */
enum { LARGEST_TRIED = 64 };
struct largest { int rank; size_t bytes; };
status largest_rank(struct setup *setup, int rank, size_t bytes,
                    struct largest *out);
/* Compares the ranks at one place on the pipe; of those that share the batch
 * all, where weights do not tell and they are `tried` or fewer. The setup's
 * place is changed. */
status largest_at(struct setup *setup, int pipe, int tried,
                  struct largest *out);

#endif
