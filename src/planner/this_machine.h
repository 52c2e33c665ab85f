/* SPDX-License-Identifier: Apache-2.0 */
/* this_machine.h - the name by which a profile knows the machine it was
 * measured on: processor and cores that this process may use. */
#ifndef LOCKSTEP_PLANNER_THIS_MACHINE_H
#define LOCKSTEP_PLANNER_THIS_MACHINE_H

#include "planner/machine.h"

void this_machine_key(char key[MACHINE_KEY_BYTES]);

#endif
