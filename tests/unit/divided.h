/* SPDX-License-Identifier: Apache-2.0 */
/* divided.h - shards of a table over ranks of the data axis, for tests of what
 * a rank does with its own. */
#ifndef LOCKSTEP_TESTS_DIVIDED_H
#define LOCKSTEP_TESTS_DIVIDED_H

#include "mesh/shard.h"

static inline status divided_build(struct shards *shards,
                                   const struct param_table *table,
                                   const struct holding *holding, int ranks,
                                   int rank)
{
    struct holding divided = *holding;

    divided.mesh.size[AXIS_DATA] = ranks;
    divided.place.at[AXIS_DATA] = rank;
    return shards_build(shards, table, &divided,
                        &(struct division){.states = AXES_BATCH});
}

#endif
