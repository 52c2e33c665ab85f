/* SPDX-License-Identifier: Apache-2.0 */
/* cost_context.c - the ring by which torch divides attention over context ranks
 * (torch/distributed/tensor/experimental/_attention.py of 2024-12).
 *
 * Both halves of the causal mask are balanced. torchtitan repeats keys and
 * values for all query heads before the ring (repeat_kv). They are gathered
 * whole (rotate method "allgather") in F and again in B; gradients go round
 * rank by rank, once to each, in float32. Nothing of it lies beside work where
 * a block is compiled: functional collectives wait at once while they are
 * traced, and Inductor moves no wait (reorder_for_compute_comm_overlap is off).
 * Each step but the first merges its output in float32; in B each adds to three
 * gradients. */
#include "planner/cost_parts.h"

#include "planner/network.h"

/* Seconds that a pass waits for keys and values of other context ranks: all
 * that they travel, or what is longer than attention to those before them. */
static double shown(const struct cost *cost, double seconds, double attends)
{
    const double ranks = cost->layout->context;
    const double beside = attends * (ranks - 1) / ranks;

    if (!habits_of[cost->layout->as].context_beside) return seconds;
    return seconds > beside ? seconds - beside : 0;
}

void cost_keys(const struct cost *cost, double bytes, const double attends[2],
               struct passes *out)
{
    double guessed = 0;
    const double once = cost_collective(
        cost, COLLECTIVE_ALL_GATHER, group_of(cost->layout, CAUSE_CONTEXT),
        bytes, &guessed);

    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double waits = shown(cost, (pass == COST_F ? 1 : 2) * once,
                                   attends[pass]);

        out->pass[pass].seconds[CAUSE_CONTEXT] += waits;
        if (guessed > 0) out->pass[pass].guessed += waits;
    }
}

void cost_ring(const struct cost *cost, struct passes *out)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const double ranks = l->context, bytes = cost_element_bytes(cost);
    const double rows = cost_tokens(cost) * (double)s->heads / l->tensor;
    const double queries = rows * (double)s->head_width;
    const double both = rows * (double)(s->head_width + s->value_width);
    const struct group_shape group = group_of(l, CAUSE_CONTEXT);
    struct spent *f = &out->pass[COST_F], *b = &out->pass[COST_B];
    double guessed = 0;
    const double gathered = cost_collective(
        cost, COLLECTIVE_ALL_GATHER, group, ranks * both * bytes, &guessed);
    const double sent = cost_collective(cost, COLLECTIVE_SEND, group, 4 * both,
                                        &guessed);

    f->seconds[CAUSE_CONTEXT] += gathered;
    b->seconds[CAUSE_CONTEXT] += gathered + ranks * sent;
    if (guessed > 0) {
        f->guessed += gathered;
        b->guessed += gathered + ranks * sent;
    }
    /* keys and values are written for all heads, then one after the other */
    cost_moved(cost, 3 * bytes * both, f);
    cost_moved(cost, (ranks - 1) * (8 + bytes) * rows * (double)s->value_width,
               f);
    cost_moved(cost, 2 * bytes * both, b);
    cost_moved(cost, ranks * (8 + bytes) * (queries + both), b);
}
