/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h - ranks as processes under MPI. */
#ifndef LOCKSTEP_COMM_MPI_H
#define LOCKSTEP_COMM_MPI_H

#include "comm/comm.h"

/* Opens the plug-in "openmpi" or "mpich" beside the program (or in the
 * directory LOCKSTEP_PLUGINS), joins the launcher's world, runs body(argument,
 * world) and leaves it. count: as in launch_run. */
status mpi_ranks_run(const char *name, int count,
                     status (*body)(void *argument, struct group *world),
                     void *argument);

/* Whether the plug-in can be opened. ERR_DEVICE says why not. */
status mpi_check(const char *name);

#endif
