/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.h - keeps the ranks of a run alive.
 *
 *     start a generation ── watch ──┬── all finished, stopped, or failed alike
 *            ^                      │
 *            │                  an incident: a rank died, hangs, or lost its
 *            │                  connections
 *            │                      │
 *            └── back off <── fence: kill all, wait until all are dead
 *
 * The supervisor forks the ranks: a rank is a child that returns from
 * supervise(). It opens no data and holds no weights, so what hurts a rank does
 * not hurt it. A generation begins only when nobody of the last one lives. */
#ifndef LOCKSTEP_CONTROL_SUPERVISOR_H
#define LOCKSTEP_CONTROL_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

struct supervision {
    int ranks;
    const char *run;      /* its directory; need not be there yet */
    int64_t limit_ms;     /* for anything that is not a step */
};

/* Returns twice: in each rank at once, with *rank true and the first
 * generation's or later ones' *again (the run has begun already); in the
 * supervisor when the run has ended, with its result. */
status supervise(const struct supervision *how, bool *rank, bool *again);

/* The end of a rank. One that failed because of another waits to be fenced, so
 * that its memory stays, and the one that died first is known. */
void supervised_end(status result);

#endif
