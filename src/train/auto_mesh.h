/* SPDX-License-Identifier: Apache-2.0 */
/* auto_mesh.h - `mesh: auto`: the best layout that search finds for a machine,
 * written into the options. The numerics grid stays as it is, so the bits of
 * the run do not depend on what is found. */
#ifndef LOCKSTEP_TRAIN_AUTO_MESH_H
#define LOCKSTEP_TRAIN_AUTO_MESH_H

#include "base/options.h"
#include "comm/comm.h"
#include "planner/machine.h"

/* Chooses for so many ranks; axes, zero, train.micro_batch, train.recompute and
 * schedule.name that somebody set stay. `machine` NULL: that of the run, or
 * the preset `cpu`. mesh.layout is "chosen" then. ERR_FIT: no layout. */
struct auto_mesh {
    struct options_set *set;
    const struct machine *machine; /* borrowed, or NULL */
    int ranks, nodes;              /* nodes 0: as many as the machine needs */
    double max_memory;             /* bytes; 0: train.memory or the machine */
    bool quiet;                    /* says nothing on stderr */
};
status auto_mesh_choose(const struct auto_mesh *request);
/* Like auto_mesh_choose, among processes: rank 0 chooses, all ranks take it.
 * Collective. */
status auto_mesh_agree(struct options_set *set, struct group *world);

#endif
