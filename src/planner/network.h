/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - where the ranks of a group lie, and what its messages cost. */
#ifndef LOCKSTEP_PLANNER_NETWORK_H
#define LOCKSTEP_PLANNER_NETWORK_H

#include "planner/cost.h"

/* The part of a port, or the ports, that each of `talking` ranks of a node has
 * when they all send to other nodes at once: ports are divided by max-min
 * fairness, and a rank uses no more than those of its device. */
double node_ports(const struct machine *machine, int talking);
/* Members of the group on one node. */
int group_on_node(const struct layout *layout, struct group_shape group);
/* The ranks that divide the experts of a block (layout_experts). */
struct group_shape expert_group(const struct layout *layout);
/* Ranks at one position of the pipe: rank numbers follow each other. */
int pipe_team(const struct layout *layout);
/* Whether messages between two positions leave a node. */
bool pipe_leaves(const struct layout *layout, int from, int to);
/* Seconds of a message of a micro-batch between two positions. */
double cost_transfer(const struct cost *cost, bool leaves, double *guessed);

#endif
