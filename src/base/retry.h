/* SPDX-License-Identifier: Apache-2.0 */
/* retry.h - retries of calls that the system refuses for a moment, because too
 * many files are open or a network file system reconnects. */
#ifndef LOCKSTEP_BASE_RETRY_H
#define LOCKSTEP_BASE_RETRY_H

#include <stdbool.h>
#include "base/status.h"

struct retry { int tries; /* so far; 0 in a zeroed one */ };

/* After ERR_IO, for three seconds in all: says why, forgets the error, waits
 * and returns true: try again. False: `result` stands. */
bool retry_again(struct retry *retry, status result);

#endif
