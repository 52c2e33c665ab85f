/* SPDX-License-Identifier: Apache-2.0 */
/* lists_agree.h - checks before the first step that the lists of all ranks fit
 * each other.
 *
 * Each rank made its list alone (list/list.h) and verified it. Ranks of a group
 * compare a number of the calls that they make in it; ranks of a pipe tell each
 * other their lists and walk through all of them together. So no rank
 * relies on assumptions about the lists of others. */
#ifndef LOCKSTEP_STEP_LISTS_AGREE_H
#define LOCKSTEP_STEP_LISTS_AGREE_H

#include "list/list.h"
#include "step/team.h"

/* Collective over the world. ERR_CONFIG: the ranks of a group make other calls
 * or make them in another order; ERR_VERIFY: a message of the pipe has no other
 * side, or a rank would wait forever: on all ranks. All comparisons are made
 * then, because others wait in them. A rank that fails by itself (ERR_MEMORY)
 * returns at once, and the others notice that it leaves. */
status lists_agree(const struct step_list *list,
                   const struct pipeline *pipeline, struct team *team);

#endif
