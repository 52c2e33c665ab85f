/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - bytes of a rank of each pipe position, in closed form: for a
 * search, and for the steps of other programs. What Lockstep itself would take
 * is planned to the byte (plan/pipeline.h); here it is estimated from the
 * layout's frames. */
#ifndef LOCKSTEP_PLANNER_MEMORY_H
#define LOCKSTEP_PLANNER_MEMORY_H

#include "planner/layout.h"

struct memory {
    double weights, gradients, states, activations, logits, gathered, foreign;
    double offloaded;      /* in host memory or on disk; not in the sum */
};

/* Rounds of a step of Lockstep, each of which reduces its gradients: its
 * micro-batches; 0: they are reduced once, at its end (docs/zero.md). */
int memory_rounds(const struct layout *layout, const struct shape *shape);
/* The leaves of a round of a rank of Lockstep, and its micro-batches. */
void memory_cut(const struct layout *layout, const struct shape *shape,
                struct cut *out);
/* How often a step sums divided gradients over ranks: with each micro-batch, or
 * once. */
int memory_reductions(const struct layout *layout, const struct shape *shape);
/* Activations that one micro-batch keeps in one block until its backward
 * pass. */
double memory_block_activations(const struct layout *layout,
                                const struct shape *shape);
/* The bytes of the rank at `position` of the pipe. */
void memory_of(const struct layout *layout, const struct shape *shape,
               int position, struct memory *out);
/* Parameters of a position's experts, before ZeRO divides them. */
double memory_experts(const struct layout *layout, const struct shape *shape,
                      int position);
/* Without what is offloaded. */
double memory_sum(const struct memory *memory);
/* The largest over the pipe; *at is where. */
double memory_largest(const struct layout *layout, const struct shape *shape,
                      int *at);
/* The largest rank, of which `whole` bytes were planned without offloading:
 * less by those that the closed forms put away. */
double memory_left(const struct layout *layout, const struct shape *shape,
                   double whole);
/* No more than the largest, and found sooner: of the first and the last rank,
 * of Lockstep without what its frames take. `known` (zeroed at first) is kept
 * from one layout to the next. */
struct known_sums { struct cut cut; double sums; };
double memory_least(const struct layout *layout, const struct shape *shape,
                    struct known_sums known[2]);
/* Counts the blocks of the first and the last pipe rank once, for a layout
 * whose pipe and schedule stay. */
void memory_count_ends(struct layout *layout, const struct shape *shape);

#endif
