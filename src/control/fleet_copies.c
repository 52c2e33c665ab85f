/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_copies.c - which node keeps copies of which. */
#include "control/fleet.h"

void fleet_pair(struct fleet *fleet)
{
    (void)fleet;
}

void fleet_move(struct fleet *fleet)
{
    (void)fleet;
}
