/* SPDX-License-Identifier: Apache-2.0 */
/* expert_products.h - the layers of the two products of experts, whose rows lie
 * expert after expert (experts.c). */
#ifndef LOCKSTEP_NN_EXPERT_PRODUCTS_H
#define LOCKSTEP_NN_EXPERT_PRODUCTS_H

#include "nn/program.h"

/* Rows of tokens to gate and up; rows of their product to rows. */
extern const struct layer layer_experts_up, layer_experts_down;
/* Both with low-rank adapters beside the matrices. */
extern const struct layer layer_experts_up_adapted, layer_experts_down_adapted;

#endif
