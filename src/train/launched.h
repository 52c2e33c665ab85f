/* SPDX-License-Identifier: Apache-2.0 */
/* launched.h - how a run was started last: RUN/launch.json. A run that goes on
 * takes as many ranks, and a run that stops says how to go on. */
#ifndef LOCKSTEP_TRAIN_LAUNCHED_H
#define LOCKSTEP_TRAIN_LAUNCHED_H

#include "base/options.h"

enum { MAKER_BYTES = 160 };

/* maker: who makes products (device_maker), or "". */
status launched_write(const char *run, int ranks, const char *maker);
/* Warns where others made products when the run was started last, so that its
 * bits may differ from here on. */
void launched_compare_maker(const char *run, const char *maker);
/* Ranks for a run that goes on: what its mesh says, or else as many as last
 * time; 0: unknown. */
status launched_ranks(const char *run, const struct options *options,
                      int *ranks);
/* The whole command that goes on with a run: under the launcher of this
 * process, or with its number of threads. Cut to `size`. */
void launched_resume(char *out, size_t size, const char *run, int ranks);

#endif
