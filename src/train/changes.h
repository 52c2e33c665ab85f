/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h - options whose values differ from those before a run was resumed:
 * they are written into the run's log book, which the report shows beside the
 * curves. */
#ifndef LOCKSTEP_TRAIN_CHANGES_H
#define LOCKSTEP_TRAIN_CHANGES_H

#include "base/options.h"

/* `config`: the file that the run had so far. Nothing where that cannot be
 * read, and where nothing changed: a run goes on without its log book. */
void changes_note(const char *run, const char *config,
                  const struct options_set *now, int64_t step);

#endif
