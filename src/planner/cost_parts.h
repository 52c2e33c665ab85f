/* SPDX-License-Identifier: Apache-2.0 */
/* cost_parts.h - parts of the cost of a block, for the files that make it. */
#ifndef LOCKSTEP_PLANNER_COST_PARTS_H
#define LOCKSTEP_PLANNER_COST_PARTS_H

#include "planner/cost.h"

int cost_threads(const struct cost *cost); /* of a rank, 1 or more */
/* FLOP/s of a rank's products of so many bits, at most. */
double cost_peak(const struct cost *cost, int bits);
/* Attention of a block in F, `passes` times. */
void cost_attention(const struct cost *cost, double passes, struct spent *out);
bool cost_writes_scores(const struct cost *cost);
/* Seconds of a block beside products, attention and messages. */
void cost_elementwise(const struct cost *cost, struct passes *out);
/* Copies of weights and gradients that FSDP makes beside their messages. */
void cost_copies(const struct cost *cost, struct passes *out);
/* Context ranks of torch need this in a block beside attention itself. */
void cost_ring(const struct cost *cost, struct passes *out);
/* Keys and values of so many bytes travel in F, and twice as many in B, to all
 * context ranks, of whose attention in F and in B they may lie beside. */
void cost_keys(const struct cost *cost, double bytes, const double attends[2],
               struct passes *out);
/* Products of latents that are made again, and what becomes queries, keys and
 * values of them. */
void cost_latents(const struct cost *cost, struct spent *out);
/* Bytes of an element of an activation. */
double cost_element_bytes(const struct cost *cost);
/* Tokens of a micro-batch on a rank. */
double cost_tokens(const struct cost *cost);
/* `times` products by such a matrix in F, B and W. */
void cost_products(const struct cost *cost, const struct shape_product *p,
                   double times, struct passes *out);
/* The roundings of Lockstep's recipe beside `times` of such products of the
 * sizes in F, B and W, of which some have it. */
struct recipe_products {
    const struct shape_product *product;
    const struct product_size *sizes;
    double times;
};
void cost_recipe(const struct cost *cost, const struct recipe_products *of,
                 struct passes *out);
/* Inputs of SwiGLU that Lockstep's recipe keeps for B as codes. */
void cost_glu(const struct cost *cost, struct passes *out);
/* Exchanges of a block's rows in F and B; its products are in `out` already. */
void cost_experts(const struct cost *cost, struct passes *out);

#endif
