/* SPDX-License-Identifier: Apache-2.0 */
/* list_recipes.h - kernels of a recipe in events of the executor's lists. */
#ifndef LOCKSTEP_PLANNER_LIST_RECIPES_H
#define LOCKSTEP_PLANNER_LIST_RECIPES_H

#include "list/list.h"
#include "planner/cost.h"

/* `times` products with such a matrix. */
struct rounded_product {
    const struct program *program;
    const struct param *weight;
    enum pass pass;
    struct product_size size;
    double times;
};
/* Their recipe rounds their operands, and may turn gradients of weights back
 * when leaves of the batch are complete. */
void list_round_operands(const struct cost *cost,
                         const struct rounded_product *of, struct spent *out);

/* Straight recipes: x before a product, and its gradient after it, are a layer
 * of their own. */
bool list_is_rounding(const struct step *step);
void list_round_layer(const struct cost *cost, const struct step *step,
                      const struct program *p, enum pass pass,
                      struct spent *out);

/* Inputs of SwiGLU that wait for B as codes: of a layer of its own, or a part
 * of the experts that ranks divide. */
void list_keep_gate(const struct cost *cost, const struct step *step,
                    const struct program *p, enum pass pass,
                    struct spent *out);
void list_keep_experts(const struct cost *cost, const struct step *step,
                       const struct program *p, enum pass pass,
                       struct spent *out);

#endif
