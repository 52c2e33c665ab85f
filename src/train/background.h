/* SPDX-License-Identifier: Apache-2.0 */
/* background.h - a checkpoint that is written while training goes on.
 *
 *   step     14 ████ 15 █ copy █ 16 ████ 17 ████ 18 ████ 19 ████
 *   beside                      └ write, sync, read back, rename, prune ┘
 *
 * Training waits for the copy (snapshot.h) only. A thread of each rank does
 * the rest, as a save at once does it, over a group of its own. Its result is
 * the same on all ranks, which take it up where they agree anyway. */
#ifndef LOCKSTEP_TRAIN_BACKGROUND_H
#define LOCKSTEP_TRAIN_BACKGROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include "train/run_state.h"
#include "train/snapshot.h"

struct background {
    struct keeper *keeper;  /* borrowed; NULL: saves are made at once */
    struct group group;     /* owned; size 0: alone */
    struct snapshot snapshot;
    struct keeper_job job;
    pthread_t thread;
    bool runs;              /* a save is under way, or is not yet taken up */
    _Atomic bool done;      /* its thread has nothing left to do */
    status result;          /* of the save; then: */
    char why[512];
    double seconds;         /* that it took */
    /* In this process: */
    int64_t saves, copied_bytes;
    double stall_s;         /* that training waited, for copies and for the
                             * end of saves */
};

/* Once for a run; all ranks. Collective. */
status background_open(struct background *background, struct group *world);
/* Saves are made by the keeper that there is now; then no longer, before
 * keeper_free and when no save is under way. */
status background_use(struct background *background, struct keeper *keeper);
void background_leave(struct background *background);
void background_close(struct background *background); /* zeroed: allowed */

/* The state of now, which the caller may change at once. No save is under
 * way. Its failure is one of this rank: say so with team_agree, then
 * background_go on all, or background_drop. */
status background_copy(struct background *background,
                       const struct counters *counters);
status background_go(struct background *background);
void background_drop(struct background *background);
/* Whether there is one whose thread still works. */
bool background_works(const struct background *background);
/* Waits for the save that is under way and takes it up: *step it was of, -1:
 * there was none. The result is its own. */
status background_settle(struct background *background, int64_t *step);

#endif
