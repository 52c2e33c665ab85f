/* SPDX-License-Identifier: Apache-2.0 */
/* retry.c - waiting for what a machine refuses for a moment. */
#include "base/retry.h"

#include <stdint.h>
#include <time.h>

#include "base/log.h"

enum { TRIES = 5 };

bool retry_again(struct retry *retry, status result)
{
    const int64_t wait_ms = 200 << retry->tries;
    const struct timespec wait = {.tv_sec = (time_t)(wait_ms / 1000),
                                  .tv_nsec = (long)(wait_ms % 1000) * 1000000};

    if (result != ERR_IO || ++retry->tries == TRIES) return false;
    LOG(WARNING, "files", "%s; the next attempt is in %g s", status_message(),
        1e-3 * (double)wait_ms);
    status_clear();
    nanosleep(&wait, NULL);
    return true;
}
