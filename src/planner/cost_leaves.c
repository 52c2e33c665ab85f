/* SPDX-License-Identifier: Apache-2.0 */
/* cost_leaves.c - sums of gradients over micro-batches that no product makes
 * itself, as list_leaves.c and list_clock.c count them of the executor's
 * lists. */
#include "mesh/addends.h"
#include "planner/cost.h"
#include "planner/memory.h"

/* How often a micro-batch adds an element to another one, in the mean. */
struct adds {
    double taken, waiting; /* of products that begin with the sibling; others */
    double rounds;         /* sums of rounds, of each element that is owned */
};

static void count_adds(const struct layout *l, const struct shape *s,
                       struct adds *out)
{
    const int rounds = memory_rounds(l, s);
    const double bytes = s->integer_sums ? 8 : 4;
    struct cut cut;

    *out = (struct adds){
        .rounds = rounds > 1 ? bytes / 4 * (1 - 1.0 / rounds) : 0};
    if (s->integer_sums) return; /* each leaf is added as it comes */
    memory_cut(l, s, &cut);
    out->taken = cut_adds_each(&cut, true);
    out->waiting = cut_adds_each(&cut, false);
}

static void add(const struct cost *cost, double elements, struct passes *out)
{
    if (elements > 0)
        cost_moved(cost, 3 * 4 * elements, &out->pass[COST_W]);
}

void cost_leaves(const struct cost *cost, struct passes *block,
                 struct passes *embedding, struct passes *head)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const struct block_learns learns = layout_block_learns(l, s);
    const double owners = layout_division(l, 2);
    struct layout copies = *l;
    struct adds n;

    if (l->as != AS_LOCKSTEP) return;
    copies.expert = 1; /* other ranks of that axis have other experts */
    count_adds(l, s, &n);
    add(cost, n.taken * (learns.dense + learns.experts) +
                  n.rounds * (learns.dense / owners +
                              learns.experts / layout_division(&copies, 2)),
        block);
    if (s->lora.all > 0) return; /* table and head are frozen */
    add(cost, (n.waiting + n.rounds / owners) * s->outside.embedding /
                  l->tensor, embedding);
    add(cost, (n.taken + n.rounds / owners) * (double)s->width *
                  (double)s->vocab / l->tensor, head);
}
