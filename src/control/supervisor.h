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

enum { LAYOUT_WORDS_BYTES = 8192 };
struct order;
struct token;

struct supervision {
    int ranks;
    const char *run;      /* its directory; need not be there yet */
    int64_t limit_ms;     /* for anything that is not a step */
    /* Ranks of agents (control/agent.h); NULL: ranks are children. */
    const char *listen;   /* HOST:PORT */
    const struct token *token;
    int replicas;         /* machines with copies of a rank, its own included */
    /* The command line of a rank into order->text and ->words. layout: settings
     * of the mesh, separated by spaces. */
    status (*words)(void *argument, bool again, const char *layout,
                    struct order *order);
    /* The largest layout of at most that many ranks that trains the same bits;
     * *ranks 0: there is none. */
    status (*layout)(void *argument, int most, char layout[LAYOUT_WORDS_BYTES],
                     int *ranks);
    /* The supervisor listens there: an agent of this machine may be started.
     * NULL: agents come by themselves. */
    status (*listens)(void *argument, const char *address);
    void *argument;       /* of all three */
    bool (*saved)(const char *run); /* it has a checkpoint to go on from */
    bool again;           /* the run is there, and goes on */
    const char *local;    /* option checkpoint.local; NULL or "": none */
};

/* Returns twice: in each rank at once, with *rank true and the first
 * generation's or later ones' *again (the run has begun already); in the
 * supervisor when the run has ended, with its result. */
status supervise(const struct supervision *how, bool *rank, bool *again);
/* With agents: returns once, when the run has ended. */
status supervise_agents(const struct supervision *how);

/* The end of a rank. One that failed because of another waits to be fenced, so
 * that its memory stays, and the one that died first is known. */
void supervised_end(status result);

#endif
