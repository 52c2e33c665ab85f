/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - ranks from wherever they come: threads, or a launcher of MPI. */
#ifndef LOCKSTEP_COMM_LAUNCH_H
#define LOCKSTEP_COMM_LAUNCH_H

#include "comm/comm.h"

/* This process's rank among those that a launcher started, by its environment
 * (Open MPI's and MPICH's mpirun, Slurm's srun with PMIx or PMI); -1: started
 * by hand. */
int launch_rank(void);

/* Under a launcher: body on this process's rank, with all of the launcher's
 * ranks in the world; otherwise ranks_run. count: how many there must be, 0:
 * as many as were launched, or 1. ERR_CONFIG: another number was launched.
 * ERR_DEVICE: no plug-in for the launcher's MPI works. */
status launch_run(int count, status (*body)(void *argument,
                                            struct group *world),
                  void *argument);

#endif
