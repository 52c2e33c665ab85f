/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - where the ranks of a group lie, and what its messages cost. */
#ifndef LOCKSTEP_PLANNER_NETWORK_H
#define LOCKSTEP_PLANNER_NETWORK_H

#include "planner/cost.h"

/* Members of the group on one node. */
int group_on_node(const struct layout *layout, struct group_shape group);
/* The ranks that divide the experts of a block (layout_experts). */
struct group_shape expert_group(const struct layout *layout);

#endif
