/* SPDX-License-Identifier: Apache-2.0 */
/* list_offload.h - a queue of copies beside the lists of a step, for what a
 * plan keeps in the memory of the host or on disk. The executor cannot do it
 * yet.
 *
 *   activations  leave block by block during F, and come back during B
 *   weights      come block by block during each F and each B
 *   states       come before the update, and go back after it
 *
 * The first block of a pass comes while the pass before is computed, the last
 * one leaves after its pass. No more than two blocks wait in device memory, so
 * a pass takes at least as long as the copies of its other blocks. The queue
 * makes one copy after the other. Its items follow those of the list, whose
 * numbers stay. */
#ifndef LOCKSTEP_PLANNER_LIST_OFFLOAD_H
#define LOCKSTEP_PLANNER_LIST_OFFLOAD_H

#include "planner/steps.h"

/* Adds the queue to the list of each pipe rank; nothing where the layout keeps
 * all in device memory. */
status list_offload(struct steps *steps, const struct cost *cost);

#endif
