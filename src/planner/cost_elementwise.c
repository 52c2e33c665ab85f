/* SPDX-License-Identifier: Apache-2.0 */
/* cost_elementwise.c - seconds of what a block does beside products, attention
 * and messages: norms, rotations, gates, sums, copies of weights. */
#include "planner/cost_parts.h"

/* Elements of a token's rows that are read and written again, in places of
 * their experts: when they have come to a rank with several, and before they
 * leave it. Lockstep's products take them where they lie. */
static double sorted_rows(const struct cost *cost)
{
    const struct shape *s = cost->shape;
    const struct expert_ranks e = layout_experts(cost->layout);

    if (cost->layout->as == AS_LOCKSTEP || e.ranks == 1 ||
        s->experts <= e.places)
        return 0;
    return s->expert_blocks * 4.0 * s->choices * (double)s->width;
}

/* Elements that a pass over a token moves. */
static double elements_of(const struct cost *cost, int pass)
{
    const struct shape *s = cost->shape;
    const struct layout *l = cost->layout;
    const struct habits *h = &habits_of[l->as];
    const struct moved_elements *moved = h->eager ? &s->eager[pass]
                                                  : &s->moved;
    const double extra = h->eager ? 1
                                  : (pass == COST_F ? 1 : 1.7) * h->moved *
                                        /* dropout, biases: */
                                        (cost_writes_scores(cost) ? 1.4 : 1);

    return extra * ((moved->whole + sorted_rows(cost)) /
                        (l->sequence_parallel ? l->tensor : 1) +
                    moved->split / l->tensor);
}

void cost_elementwise(const struct cost *cost, struct passes *out)
{
    const struct shape *s = cost->shape;
    const struct layout *l = cost->layout;
    const double *v = cost->machine->value;
    const double relayouts = l->tensor > 1 ? 2 * s->joins : 0;
    const double beside = l->as == AS_LOCKSTEP
                              ? s->block.instructions + relayouts -
                                    s->block.product_kinds
                              : s->block.instructions - 2.0 * s->product_count;
    const double rate = v[M_MEMORY_RATE] * v[M_MEMORY];
    const double floor_s = v[M_LAUNCH] * (beside > 1 ? beside : 1);

    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double seconds = cost_tokens(cost) * elements_of(cost, pass) *
                               cost_element_bytes(cost) / rate;

        out->pass[pass].seconds[CAUSE_MEMORY] += seconds;
        out->pass[pass].seconds[CAUSE_LAUNCH] +=
            seconds < floor_s ? floor_s - seconds : 0;
    }
}

/* FSDP of single parameters copies gathered weights to where each of them is,
 * in F and in B, and gradients to where they are summed, in the type of the
 * sums (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py), with every
 * micro-batch or with the last. The device does nothing else meanwhile. */
void cost_copies(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const struct block_learns learns = layout_block_learns(l, s);
    const double here = l->expert > 1 ? 0 : 1; /* others keep their experts */
    const double weights = layout_block_dense(l, s) +
                           here * layout_block_experts(l, s);

    if (!habits_of[l->as].copies || layout_division(l, 3) < 2) return;
    cost_moved(cost, 2 * cost_element_bytes(cost) * weights,
               &out->pass[COST_F]);
    cost_moved(cost, 2 * cost_element_bytes(cost) * weights,
               &out->pass[COST_B]);
    cost_moved(cost, (cost_element_bytes(cost) + habits_sent(l->as)) *
                         (learns.dense + here * learns.experts) /
                         (layout_sums_once(l) ? l->microbatches : 1),
               &out->pass[COST_W]);
}

/* Products of latents, and what becomes queries, keys and values of them. */
void cost_latents(const struct cost *cost, struct spent *out)
{
    const struct shape *s = cost->shape;
    struct passes again = {0};

    for (int i = 0; i < s->product_count; i++)
        if (s->products[i].latent > 0)
            cost_products(cost, &s->products[i], s->products[i].latent,
                          &again);
    spent_add(out, &again.pass[COST_F], 1);
    cost_moved(cost, cost_tokens(cost) * s->latent_moved /
                         cost->layout->tensor * cost_element_bytes(cost), out);
}
