/* SPDX-License-Identifier: Apache-2.0 */
/* lease.c - the lease of a machine's ranks: renewed, and looked at. */
#include "control/lease.h"

#include "control/board.h"

void lease_renew(struct board *board, int64_t end_ns)
{
    if (end_ns > atomic_load(&board->lease_ns))
        atomic_store(&board->lease_ns, end_ns);
}

bool lease_is_over(const struct board *board, int64_t now_ns)
{
    const int64_t end = atomic_load(&board->lease_ns);

    return end != 0 && now_ns > end;
}
