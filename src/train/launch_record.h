/* SPDX-License-Identifier: Apache-2.0 */
/* launch_record.h - how a run was started last: RUN/launch.json. A run that
 * goes on takes as many ranks, and a run that stops says how to go on. */
#ifndef LOCKSTEP_TRAIN_LAUNCH_RECORD_H
#define LOCKSTEP_TRAIN_LAUNCH_RECORD_H

#include "base/options.h"

enum { MAKER_BYTES = 160 };

/* maker: who makes products (device_maker), or "". */
status launch_record_write(const char *run, int ranks, const char *maker);
/* Warns where others made products when the run was started last, so that its
 * bits may differ from here on. */
void launch_record_compare_maker(const char *run, const char *maker);
/* Ranks for a run that goes on: what its mesh says, or else as many as last
 * time; 0: unknown. */
status launch_record_ranks(const char *run, const struct options *options,
                           int *ranks);
/* The whole command that goes on with a run: under the launcher of this
 * process, or with its number of threads. Cut to `size`. */
void launch_record_resume(char *out, size_t size, const char *run, int ranks);

#endif
