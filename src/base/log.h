/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - one line per event: what happens, for the operator.
 *
 *   LOG(WARNING, "checkpoint", "kept 3 of 5, oldest step %d", step);
 *
 * Lower case, values after a space, no final newline. Rank 0 prints to stderr
 * from the level shown on; every rank (a thread or a process) writes all
 * levels to its own file, if it has one, with the time (UTC) and its number.
 * Errors are not logged: they are statuses. */
#ifndef LOCKSTEP_BASE_LOG_H
#define LOCKSTEP_BASE_LOG_H

#include "base/status.h"

enum log_level { LEVEL_DEBUG, LEVEL_INFO, LEVEL_WARNING };

/* Before log_start, rank 0 without a file. The level shown is LEVEL_INFO or
 * what LOCKSTEP_LOG says (debug, info, warning); ERR_CONFIG if that is none of
 * them. `path`: appended to; NULL: no file. */
status log_start(int rank, const char *path);
void log_stop(void);
void log_write(enum log_level level, const char *subsystem,
               const char *format, ...) __attribute__((format(printf, 3, 4)));

#define LOG(level, subsystem, ...) \
    log_write(LEVEL_##level, (subsystem), __VA_ARGS__)

#endif
