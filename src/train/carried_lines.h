/* SPDX-License-Identifier: Apache-2.0 */
/* carried_lines.h - lines of rank 0's files since the newest checkpoint, which
 * copies in memory take along with checkpoint.local: the machine with the files
 * may be lost, and the run goes on from the copies.
 *
 *   the state of a copy   JSON, NUL, then for each file
 *                         "NAME MISSING LENGTH\n" and its lines */
#ifndef LOCKSTEP_TRAIN_CARRIED_LINES_H
#define LOCKSTEP_TRAIN_CARRIED_LINES_H

#include "base/lines.h"
#include "base/text.h"

enum carried_file { CARRIED_CONSUMED, CARRIED_METRICS, CARRIED_SAMPLES,
                    CARRIED_LAYERS, CARRIED_FILES };
enum { CARRIED_MOST = 3 << 20 }; /* bytes of all; some 5,000 steps */

struct carried {
    struct text lines[CARRIED_FILES]; /* owned; steps ascend */
    int64_t missing[CARRIED_FILES];   /* newest step whose lines found no room;
                                       * 0: none */
};

void carried_free(struct carried *carried);
/* Lines that are put into the file go along from now on, if it is open. */
void carried_follow(struct carried *carried, enum carried_file file,
                    struct lines *lines);
/* Lines up to `saved` lie in a checkpoint, those beyond `step` were undone; of
 * the rest, only what there is room for stays: the first files before the
 * last. */
void carried_keep(struct carried *carried, int64_t saved, int64_t step);
/* Appends them to a state, and reads them from one. ERR_FORMAT: they are
 * none. */
status carried_write(const struct carried *carried, struct text *state);
status carried_read(struct carried *carried, const char *state,
                    size_t length);
/* The files of RUN have all lines up to `step` then. */
status carried_store(const struct carried *carried, const char *run,
                     int64_t step);

#endif
