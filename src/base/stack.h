/* SPDX-License-Identifier: Apache-2.0 */
/* stack.h - room for the stacks of this process, whatever `ulimit -s` says. */
#ifndef LOCKSTEP_BASE_STACK_H
#define LOCKSTEP_BASE_STACK_H

#include "base/status.h"

/* Raises a small limit as far as the system allows, and gives later threads
 * stacks of their own size. Before the first thread. ERR_MEMORY: the first
 * thread has too little, and nobody but the user can change that. */
status stack_make_room(void);

#endif
