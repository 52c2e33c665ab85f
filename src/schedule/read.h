/* SPDX-License-Identifier: Apache-2.0 */
/* read.h - a schedule from its text form. */
#ifndef LOCKSTEP_SCHEDULE_READ_H
#define LOCKSTEP_SCHEDULE_READ_H

#include "schedule/schedule.h"

/* The grammar, as schedule_write writes it (docs/schedules.md):
 *
 *   file    = { line "\n" }          a line without actions is no rank
 *   line    = { action | " " | "+" } [ "#" anything ]
 *   action  = kind stage "." microbatch [ "<" ]
 *   kind    = "F" | "B" | "W" | "SF" | "RF" | "SB" | "RB"
 *
 * The n-th line with actions is rank n, which so has the stages it names.
 * Numbers have no leading zeros. `source` names the text in errors.
 * ERR_FORMAT names line, what was found and the nearest; ERR_CONFIG: what
 * schedule_verify says, or a stage on two ranks of one direction. */
status schedule_read(struct schedule *out, const char *text, size_t length,
                     const char *source);
status schedule_read_file(struct schedule *out, const char *path);

#endif
