/* SPDX-License-Identifier: Apache-2.0 */
/* list_offload.h - a queue of copies beside the executor's lists, for what a
 * plan keeps in the memory of the host or on disk. The executor cannot do it
 * yet.
 *
 *   activations  leave after F, and come back before B
 *   weights      come before each F and each B
 *   states       come before the update, and go back after it
 *
 * The queue makes one copy after the other, one pass ahead of the work. Its
 * items follow those of the list, whose numbers stay. */
#ifndef LOCKSTEP_PLANNER_LIST_OFFLOAD_H
#define LOCKSTEP_PLANNER_LIST_OFFLOAD_H

#include "list/list.h"
#include "planner/steps.h"

/* Adds the queue to the list of the pipe rank, whose items are those of `list`;
 * nothing where the layout keeps all in device memory. */
status list_offload(struct steps *steps, const struct cost *cost,
                    const struct step_list *list, int rank);

#endif
