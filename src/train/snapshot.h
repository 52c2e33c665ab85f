/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.h - a copy of what a checkpoint keeps of this rank, so that it can
 * be written while training changes the original.
 *
 * The copy lies in MEMORY_SNAPSHOT of each stage, which the plan lists: the
 * rows of stage_saves, one after the other. The parts of a checkpoint point
 * there as they point into the rows, so the same bytes are written. */
#ifndef LOCKSTEP_TRAIN_SNAPSHOT_H
#define LOCKSTEP_TRAIN_SNAPSHOT_H

#include "inference/session_parts.h"
#include "plan/stage.h"

struct snapshot {
    const struct stage *stages; /* borrowed, open */
    int count;
    struct saved_part *parts;   /* owned, in the order of the session's */
    struct arena arena;
};

/* parts: of the stages, which outlive the snapshot. */
status snapshot_build(struct snapshot *snapshot, const struct stage *stages,
                      int count, const struct session_parts *parts);
void snapshot_free(struct snapshot *snapshot);
/* Copies the rows as they are now, on the stages' threads. Returns bytes. */
size_t snapshot_take(const struct snapshot *snapshot);

#endif
