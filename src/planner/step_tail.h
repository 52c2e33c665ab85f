/* SPDX-License-Identifier: Apache-2.0 */
/* step_tail.h - the end of a step: what is reduced, updated and gathered after
 * the last backward pass. */
#ifndef LOCKSTEP_PLANNER_STEP_TAIL_H
#define LOCKSTEP_PLANNER_STEP_TAIL_H

#include "planner/steps.h"

/* Ranks that hold the same weights and see other tokens. */
struct group_shape data_group(const struct layout *layout);
/* Ranks that divide what hsdp divides. Other programs count context ranks among
 * them (torch flattens dp_shard and cp into one axis). */
struct group_shape shard_group(const struct layout *layout);
/* Ranks that hold the same experts. */
struct group_shape expert_data_group(const struct layout *layout);
/* A collective over the weights or gradients of a rank: those of its experts
 * over fewer ranks. */
double cost_weights(const struct cost *cost, enum collective op,
                    double dense_bytes, double expert_bytes, double *guessed);
/* Gradients of a rank, to the ranks that update them. */
double cost_reduction(const struct cost *cost, double dense_bytes,
                      double expert_bytes, double *guessed);
/* Gathers and sums of gradients of a step, which one resource carries: of a
 * mean pipe rank. */
double cost_messages(const struct cost *cost);
/* A new kind of items: their span. */
status steps_kind(struct steps *steps, const struct spent *span,
                  enum step_item item, int *kind);
/* Appends the tail to the list of every pipe position. `reduced`: gradients
 * were reduced beside the backward pass. */
status tail_add(struct steps *steps, const struct cost *cost, bool reduced);
/* Parameters that a rank of this position holds before ZeRO divides them. */
double tail_parameters(const struct cost *cost, int position);
/* The parameters among them that are in experts. */
double tail_experts(const struct cost *cost, int position);

/* Parameters whose states it holds. */
double tail_states(const struct cost *cost, int position);

#endif
