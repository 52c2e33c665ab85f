/* SPDX-License-Identifier: Apache-2.0 */
/* lease.h - the right of a rank of an agent to live, and to write into the
 * run's directory (docs/decisions/0026).
 *
 *   agent       report, with the time t ──>   supervisor
 *   agent  <──  beat, with the same t and a length L         supervisor
 *   ranks of the agent may live until t + L, by their own clock
 *
 * The supervisor heard the report at t or later. So L after it last heard of a
 * machine no rank there lives, whatever happened to its answers; it waits
 * NODE_MARGIN_MS longer before it begins another generation. A connection that
 * is refused says that no supervisor is there: that renews a lease by
 * NODE_LEASE_MS, too, because a new supervisor waits as long before it
 * rebuilds. L is NODE_LEASE_MS, and more over slow round trips or as
 * comm.silence says (comm/patience.h). The journal has the longest one before
 * it is given, so that a supervisor that takes over waits for it. */
#ifndef LOCKSTEP_CONTROL_LEASE_H
#define LOCKSTEP_CONTROL_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum {
    NODE_LEASE_MS = 4000,
    NODE_LEASE_MOST_MS = 1024000,
    NODE_MARGIN_MS = 1000, /* for a lease that ends while it is looked at */
    LEASE_LOOK_MS = 150    /* that an agent has to find a renewal that came
                            * while it, or the machine, stood still */
};

struct board;

/* The lease of the machine's ranks ends then, or later if it did before. */
void lease_renew(struct board *board, int64_t end_ns);
/* Whether it has ended; false if there never was one. */
bool lease_is_over(const struct board *board, int64_t now_ns);

/* RUN/control/generation: none before this number may write any more. */
status lease_announce(const char *run, uint64_t generation);

/* Asked by ranks before they write into the run's directory. ERR_PEER: the
 * lease has ended, or the run has a newer generation. `now`: the file is read
 * in any case; else once a second. Ranks without an agent need no lease. */
status lease_holds(const char *run, bool now);

#endif
