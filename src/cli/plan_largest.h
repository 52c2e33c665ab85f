/* SPDX-License-Identifier: Apache-2.0 */
/* plan_largest.h - the rank of a plan that needs the most memory. */
#ifndef LOCKSTEP_CLI_PLAN_LARGEST_H
#define LOCKSTEP_CLI_PLAN_LARGEST_H

#include "setup/setup.h"

/* Compares the ranks of every place on the pipe, of the first and the last
 * place on the tensor axis, and of those that share the batch the first and the
 * ones with the largest shards; and `rank`, which needs `bytes`. Of up to 64
 * ranks all, where shards of weights do not tell what a rank needs. The setup,
 * whose place is changed, is put back to that rank. */
struct largest { int rank; size_t bytes; };
status plan_largest(struct setup *setup, int rank, size_t bytes,
                    struct largest *out);

#endif
