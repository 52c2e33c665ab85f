/* SPDX-License-Identifier: Apache-2.0 */
/* cores.h - the cores of a rank: those of its process, shared with the ranks
 * that may use exactly these too. */
#ifndef LOCKSTEP_SETUP_CORES_H
#define LOCKSTEP_SETUP_CORES_H

#include "comm/comm.h"

/* Threads of this rank: `wanted`, or if that is 0 an equal share of the cores
 * of its process, at least 1. Threads of one process share its cores; so do
 * processes of one machine that no launcher has bound to cores of their own,
 * and each of these is given other ones to pin its threads to. world: NULL for
 * a rank alone. Collective. */
status cores_share(struct group *world, int wanted, int *threads);

#endif
