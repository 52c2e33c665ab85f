/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - which ranks are on one machine. */
#ifndef LOCKSTEP_SETUP_HOSTS_H
#define LOCKSTEP_SETUP_HOSTS_H

#include "comm/comm.h"

enum { HOST_BYTES = 256 };

/* As a rank knows its machine. */
struct host {
    char node[HOST_BYTES]; /* its agent's name, SLURMD_NODENAME or the host
                            * name: agents of one machine are several nodes */
    char machine[HOST_BYTES]; /* the host name: they share its GPUs */
};

struct hosts_found {
    int node;       /* so many consecutive ranks of the world are on each node;
                     * 0: all are on one, or not equally many follow each
                     * other on each */
    int local_rank; /* of the ranks of this machine; GPUs are chosen by it */
};

/* world: NULL for a rank alone. Collective. */
status hosts_find(struct group *world, struct hosts_found *out);
/* Where the hosts of all `ranks` are known. */
struct hosts_found hosts_of(const struct host *hosts, int ranks, int rank);

#endif
