/* SPDX-License-Identifier: Apache-2.0 */
/* stated.h - background messages of a step are those that its list states.
 *
 * The plan, the list's verifier and `plan --time` read an instruction's
 * messages; the executor makes a call of the buffers that it has. Here, and
 * nowhere else, both meet: group, operation and bytes are compared, in
 * every build, before the call begins. A difference is a programming
 * mistake. */
#ifndef LOCKSTEP_STEP_STATED_H
#define LOCKSTEP_STEP_STATED_H

#include "list/list.h"

/* comm_start of the one call of an instruction. */
status stated_start(const struct pipeline *pipeline,
                    const struct instruction *instruction,
                    struct group *group, const struct comm_call *call,
                    struct comm_handle *handle);

#endif
