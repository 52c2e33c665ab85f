/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - the checkpoints of a run: newest, next best, old ones. */
#ifndef LOCKSTEP_CHECKPOINT_HISTORY_H
#define LOCKSTEP_CHECKPOINT_HISTORY_H

#include "base/text.h"
#include "checkpoint/checkpoint.h"

/* "step-00001000". */
void step_name(char out[32], int64_t step);
/* False when `name` is not of this form. */
bool step_parse(const char *name, int64_t *step);

/* Steps of RUN's checkpoints, ascending; free with memory_free. None: count
 * 0. What is unfinished is not listed. */
status checkpoint_steps(const char *run, int64_t **steps, int *count);
/* Directory and step of the newest: what `latest` names, or, where that is
 * missing or wrong, the highest step. ERR_MISSING: none. */
status checkpoint_find_newest(const char *run, char out[PATH_BYTES],
                              int64_t *step);
/* Whether `latest` names one that is there. A save that was killed before it
 * named its first one leaves none. */
status checkpoint_is_named(const char *run, bool *named);
/* Where it names none: names that step, if there is one. */
status checkpoint_name_newest(const char *run, int64_t step);
/* Opens and verifies (every checksum) the newest, and on damage the one
 * before, and so on. ERR_IO is no damage: it is tried again for seconds, then
 * returned. A sentence for each that was passed over is added to
 * `notice`. ERR_MISSING: there is none; ERR_FORMAT: none is whole. */
status checkpoint_open_newest_valid(struct checkpoint *checkpoint,
                                    const char *run, struct threads *threads,
                                    struct text *notice);
/* Whether the former finds none: all are read. */
bool checkpoint_none_is_whole(const char *run);
/* Removes all but the last keep_last, multiples of keep_every (0: none) and
 * `best` (-1: none), oldest first; never what `latest` names, nor anything
 * newer. */
status checkpoint_prune(const char *run, int64_t keep_last, int64_t keep_every,
                        int64_t best);
/* Like checkpoint_prune, for one that is named; ERR_IO only when it stays so
 * for seconds. */
status checkpoint_open_patient(struct checkpoint *checkpoint,
                               const char *directory,
                               struct threads *threads);
/* The grid of the newest that is whole, as far as can be seen without its
 * tensors. */
status checkpoint_newest_grid(const char *run, struct grid *grid, bool *found);
/* ckpt/.none is there until the first save: only so a run that was killed early
 * differs from one whose checkpoints are gone. */
status checkpoint_announce(const char *run);
void checkpoint_announced(const char *run);
/* *none: there was none yet. */
status checkpoint_count(const char *run, int *count, bool *none);
/* In front of a step's name while another takes it. */
#define CHECKPOINT_ASIDE ".old-"
/* Removes what interrupted saves and removals left behind. */
status checkpoint_clean(const char *run);

#endif
