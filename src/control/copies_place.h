/* SPDX-License-Identifier: Apache-2.0 */
/* copies_place.h - which nodes keep copies of which ranks' state: the choice of
 * a supervisor that has all nodes from the beginning. */
#ifndef LOCKSTEP_CONTROL_COPIES_PLACE_H
#define LOCKSTEP_CONTROL_COPIES_PLACE_H

#include "control/place.h"

/* partners [nodes]: of each, -1: none; at most NODES_MOST. replicas: nodes with
 * a copy, its own included. survives: as fleet_survives says it. */
void copies_place(int nodes, int replicas, int partners[][PARTNERS_MOST],
                  char survives[256]);

#endif
