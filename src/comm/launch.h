/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - ranks from wherever they come: threads, processes that lockstep
 * started (comm/process.h), or a launcher of MPI. */
#ifndef LOCKSTEP_COMM_LAUNCH_H
#define LOCKSTEP_COMM_LAUNCH_H

#include "comm/comm.h"

/* This process's rank among those that a launcher started, by its environment
 * (lockstep's own, Open MPI's and MPICH's mpirun, Slurm's srun); -1: started by
 * hand. */
int launch_rank(void);

/* The command that started it, up to the number of ranks: "mpirun -n", "srun
 * -n" or "lockstep launch --ranks"; NULL: started by hand. */
const char *launch_command(void);
/* Whether this program starts its ranks itself: as threads, or by `lockstep
 * launch`. */
bool launch_is_own(void);

struct launch {
    int ranks;        /* there must be so many; 0: as many as were launched,
                       * or 1 */
    int64_t limit_ms; /* of all groups, and for MPI to begin; 0: 600 s */
};

/* Under a launcher: body on this process's rank, with all of the launcher's
 * ranks in the world; otherwise ranks_run. LOCKSTEP_MPI (openmpi, mpich)
 * chooses the plug-in if the environment misleads. ERR_CONFIG: another number
 * was launched, or MPI does not see what the launcher started. ERR_DEVICE: no
 * plug-in for the launcher's MPI works. ERR_PEER: a rank is missing. */
status launch_run(const struct launch *launch,
                  status (*body)(void *argument, struct group *world),
                  void *argument);

#endif
