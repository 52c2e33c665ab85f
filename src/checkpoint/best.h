/* SPDX-License-Identifier: Apache-2.0 */
/* best.h - the checkpoint of a run with the lowest validation loss.
 *
 * With checkpoint.keep_best the state.json of a step that was validated has its
 * loss ("valid_loss"), and each later one the best so far ("best_step",
 * "best_loss"). There is no pointer that could be wrong: which checkpoint is
 * the best follows from those that are there. */
#ifndef LOCKSTEP_CHECKPOINT_BEST_H
#define LOCKSTEP_CHECKPOINT_BEST_H

#include "base/file.h"
#include "base/status.h"

/* Which of the checkpoints up to the newest counts as the best: `known` where
 * it is there, else that with the lowest loss in its state.json, the earliest
 * of equal ones. *best -1: none has a loss. */
status checkpoint_best_step(const char *run, int64_t known, int64_t *best);
/* Directory and step of the best by what the newest checkpoint knows.
 * ERR_MISSING: no loss was recorded, or the best is not there; the sentence
 * then names the best that is. */
status checkpoint_find_best(const char *run, char out[PATH_BYTES],
                            int64_t *step);
/* The best step so far by the state.json of a checkpoint; 0: none. */
status checkpoint_best_known(const char *directory, int64_t *step);

#endif
