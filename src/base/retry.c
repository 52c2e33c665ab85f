/* SPDX-License-Identifier: Apache-2.0 */
/* retry.c - waiting for what a machine refuses for a moment. */
#include "base/retry.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

enum { TRIES = 5 };

int64_t retry_wait_ms(int tries, uint64_t seed)
{
    const int64_t longest = 100 << tries;
    const struct random_key key = random_key_make(seed, "retry");

    return longest - (int64_t)random_below(key, (uint64_t)tries,
                                           (uint64_t)longest / 2 + 1);
}

bool retry_again(struct retry *retry, status result)
{
    struct timespec wait;
    int64_t wait_ms;

    if (result != ERR_IO || ++retry->tries == TRIES) return false;
    if (retry->seed == 0)
        retry->seed = (uint64_t)clock_ns() ^ (uint64_t)getpid() << 40;
    wait_ms = retry_wait_ms(retry->tries, retry->seed);
    LOG(WARNING, "files", "%s; the next attempt is in %g s", status_message(),
        1e-3 * (double)wait_ms);
    status_clear();
    wait = (struct timespec){.tv_sec = (time_t)(wait_ms / 1000),
                             .tv_nsec = (long)(wait_ms % 1000) * 1000000};
    nanosleep(&wait, NULL);
    return true;
}
