/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - ranks as processes under MPI. */
#ifndef LOCKSTEP_COMM_MPI_H
#define LOCKSTEP_COMM_MPI_H

#include "comm/comm.h"

struct mpi_launch {
    const char *name;     /* of the plug-in: "openmpi" or "mpich" */
    int count;            /* ranks that there must be; 0: any number */
    const char *variable; /* in which the launcher gives the rank */
    int rank, size;       /* by the launcher; size 0: it does not say */
    int64_t limit_ms;     /* for MPI to begin; 0: 600 s */
};

/* Opens the plug-in beside the program (or in the directory LOCKSTEP_PLUGINS),
 * joins the launcher's world, runs body(argument, world) and leaves it. */
status mpi_ranks_run(const struct mpi_launch *launch,
                     status (*body)(void *argument, struct group *world),
                     void *argument);

/* Whether the plug-in can be opened. ERR_DEVICE says why not. */
status mpi_check(const char *name);

#endif
