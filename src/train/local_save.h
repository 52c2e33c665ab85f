/* SPDX-License-Identifier: Apache-2.0 */
/* local_save.h - a checkpoint of which each machine writes the shards of its
 * own ranks, and back. */
#ifndef LOCKSTEP_TRAIN_LOCAL_SAVE_H
#define LOCKSTEP_TRAIN_LOCAL_SAVE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"
#include "train/local_run.h"

/* plan: as for a directory that all ranks see; its run, and what is stored
 * beside, are set here. group: of all ranks; NULL: alone. No old step is
 * removed before the new one has its name on every machine. Collective. */
status local_save(const struct local_run *local, struct group *group,
                  struct checkpoint_plan *plan);

/* The newest step that is whole and undamaged, read by all ranks, each a share
 * of its blocks. notice: a sentence for each step that is not. ERR_MISSING:
 * there is none. Collective; `checkpoint` is closed before `source`. */
status local_open_newest(const struct local_run *local, struct group *group,
                         struct threads *threads, struct local_source *source,
                         struct checkpoint *checkpoint, struct text *notice);

#endif
