/* SPDX-License-Identifier: Apache-2.0 */
/* muster.h - agents come to a command that starts no ranks, and let it read
 * what their machines keep of a run. */
#ifndef LOCKSTEP_CONTROL_MUSTER_H
#define LOCKSTEP_CONTROL_MUSTER_H

#include "base/local_stores.h"
#include "comm/handshake.h"

struct muster {
    const char *listen;       /* HOST:PORT */
    const struct token *token;
    const struct stores *stores; /* what they let be read */
    int nodes;                /* agents that are waited for, */
    int64_t seconds;          /* for so long */
    /* In a thread of its own, while agents are answered. lines: "NAME
     * ADDRESS\n" of each that came (far_files.h). */
    status (*work)(void *argument, const char *lines);
    void *argument;
};

/* Then agents are told that the run is over. */
status muster(const struct muster *how);

#endif
