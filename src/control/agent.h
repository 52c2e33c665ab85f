/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h - one for each node: starts, watches and ends its ranks, and owns
 * the memory that outlives them. */
#ifndef LOCKSTEP_CONTROL_AGENT_H
#define LOCKSTEP_CONTROL_AGENT_H

#include "base/status.h"

struct agent_how {
    const char *join;     /* HOST:PORT of the supervisor */
    const char *token;    /* file */
    const char *name;     /* of the node; NULL: the machine's */
    int slots;            /* ranks at a time */
    /* Runs the command line of a rank in this process. */
    status (*work)(int argc, char **argv);
};

/* Until the run is over. OK: as it should; ERR_STOPPED: on a signal. A
 * supervisor that is gone is waited for. ERR_PEER: refused. ERR_CONFIG. */
status agent_run(const struct agent_how *how);

#endif
