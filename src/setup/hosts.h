/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - which ranks are on one machine. */
#ifndef LOCKSTEP_SETUP_HOSTS_H
#define LOCKSTEP_SETUP_HOSTS_H

#include "comm/comm.h"

/* How many consecutive ranks of the world are on each machine; 0: all are on
 * one, or not equally many follow each other on each. A machine is told by the
 * name of its agent, by SLURMD_NODENAME, or by its host name. world: NULL for a
 * rank alone. Collective. */
status hosts_find(struct group *world, int *node);

#endif
