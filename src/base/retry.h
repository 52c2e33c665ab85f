/* SPDX-License-Identifier: Apache-2.0 */
/* retry.h - retries of calls that the system refuses for a moment, because too
 * many files are open or a network file system reconnects. */
#ifndef LOCKSTEP_BASE_RETRY_H
#define LOCKSTEP_BASE_RETRY_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

/* Zeroed before the first call; a test says the seed. */
struct retry {
    int tries;     /* so far */
    uint64_t seed; /* of the waits; 0: one of this process and moment */
};

/* Before attempt `tries` + 1, in milliseconds: 200, 400, 800, 1600, less up to
 * half of it, so that ranks and runs that failed at once do not come back at
 * once (Brooker 2015, "Exponential backoff and jitter"). */
int64_t retry_wait_ms(int tries, uint64_t seed);

/* After ERR_IO, for three seconds at most: says why, forgets the error, waits
 * and returns true: try again. False: `result` stands. */
bool retry_again(struct retry *retry, status result);

#endif
