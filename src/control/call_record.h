/* SPDX-License-Identifier: Apache-2.0 */
/* call_record.h - the last calls of all ranks when an incident ended their
 * generation, in a file of that generation, for who asks later.
 *
 *   {"generation": 2, "ranks": 4}
 *   {"rank": 0, "call": 94, "kind": "all-reduce", "group": "world", "size": 4,
 *    "began_us": -2100417, "ended_us": null, "bytes": 0, "peer": null,
 *    "background": false}
 *   ...
 *
 * Times are microseconds after the incident was seen, nearly all below 0. Calls
 * of a rank are in the order in which they began, the newest CALLS_EACH, or
 * fewer: CALLS_MOST of all ranks. Files of the newest CALLS_FILES generations
 * are kept. */
#ifndef LOCKSTEP_CONTROL_CALL_RECORD_H
#define LOCKSTEP_CONTROL_CALL_RECORD_H

#include <inttypes.h>
#include "control/board.h"

enum { CALLS_EACH = 256, CALLS_MOST = 4096, CALLS_FILES = 16,
       CALLS_BYTES = 2 << 20 /* more than a file has */ };

/* In RUN/control. */
#define CALLS_NAME "calls-%" PRIu64 ".jsonl"

/* Keeps calls of the first `ranks` pages. A disk that fails is warned of. Where
 * the run has no folder for it yet nothing is written. */
void call_record_keep(const char *run, const struct board *board, int ranks,
                      uint64_t generation, int64_t seen_ns);

#endif
