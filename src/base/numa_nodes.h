/* SPDX-License-Identifier: Apache-2.0 */
/* numa_nodes.h - how many memories this machine has, each near some of its
 * cores. */
#ifndef LOCKSTEP_BASE_NUMA_NODES_H
#define LOCKSTEP_BASE_NUMA_NODES_H

/* Nodes that are online, read from the file system that the kernel describes
 * its devices in; root: where it is mounted (/sys). 1 where nothing is said. */
int nodes_online(const char *root);

#endif
