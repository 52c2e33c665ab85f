/* SPDX-License-Identifier: Apache-2.0 */
/* starts.h - where leaves and pieces of parameters begin among the gradients of
 * a unit.
 *
 *   unit     [ q | k | v |   o   | norm ]
 *   starts   0   a   b   c       d
 *
 * Ranks of the tensor axis that hold copies (norms, biases, heads of keys) have
 * other numbers before and behind them, but the same between two starts. */
#ifndef LOCKSTEP_MESH_STARTS_H
#define LOCKSTEP_MESH_STARTS_H

#include "mesh/shard.h"

struct shard_starts {
    int64_t *items;  /* owned: elements of a unit's gradients, ascending */
    int64_t *first;  /* owned, [units + 1]: the first item of each unit */
};

status shard_starts_build(struct shard_starts *starts,
                          const struct shards *shards,
                          const struct param_table *table,
                          const struct holding *holding);
void shard_starts_free(struct shard_starts *starts);

#endif
