/* SPDX-License-Identifier: Apache-2.0 */
/* lease_run.c - ranks ask whether they may write into the run's directory. */
#include <time.h>
#include "base/clock.h"
#include "control/board.h"
#include "control/lease.h"
#include "control/run_number.h"

enum { WAIT_MS = 500, READ_AGAIN_MS = 1000 };

static const char file_name[] = "generation";

status lease_announce(const char *run, uint64_t generation)
{
    return run_number_write(run, file_name, generation);
}

/* The agent may be about to renew it. */
static bool ended_for_good(const struct board *board)
{
    const int64_t end = clock_ns() + (int64_t)WAIT_MS * 1000000;
    const struct timespec pause = {0, 10000000};

    while (lease_is_over(board, clock_ns())) {
        if (clock_ns() > end) return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

status lease_holds(const char *run, bool now)
{
    static _Atomic int64_t read_ns;
    const struct board *board = board_mine();
    uint64_t newest;

    if (!board_has_agent()) return OK;
    if (ended_for_good(board))
        FAIL(ERR_PEER, "the lease of this machine has ended: its agent has "
             "not heard from the supervisor for %.1f s, and other ranks may "
             "write now", 1e-9 * (double)(clock_ns() -
                                          atomic_load(&board->lease_ns)) +
                              1e-3 * NODE_LEASE_MS);
    if (!now && clock_ns() - atomic_load(&read_ns) <
                    (int64_t)READ_AGAIN_MS * 1000000)
        return OK;
    atomic_store(&read_ns, clock_ns());
    newest = run_number_read(run, file_name); /* a disk that fails replaces
                                               * nobody */
    if (newest <= board_generation()) return OK;
    FAIL(ERR_PEER, "generation %llu has been replaced by generation %llu",
         (unsigned long long)board_generation(), (unsigned long long)newest);
}
