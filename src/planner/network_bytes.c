/* SPDX-License-Identifier: Apache-2.0 */
/* network_bytes.c - the messages that costs know, on a machine where nothing
 * takes time but the network, which sends one byte a second: their seconds are
 * bytes. */
#include "planner/network_bytes.h"

#include "planner/memory.h"
#include "planner/network.h"
#include "planner/step_tail.h"

static void wire_of(const struct machine *machine, struct machine *wire)
{
    static const enum constant fast[] = {
        M_PEAK_32, M_PEAK_16, M_PEAK_8, M_PEAK_4, M_MEMORY_RATE, M_LINK_RATE,
        M_HOST_RATE, M_DISK_RATE};
    static const enum constant whole[] = {
        M_GEMM, M_ATTENTION, M_MEMORY, M_LINK, M_LINK_AXES, M_NIC_RATE, M_NIC,
        M_COMPUTE_BESIDE, M_COMM_BESIDE};

    *wire = (struct machine){.name = "wire"};
    wire->value[M_DEVICES] = machine->value[M_DEVICES];
    for (size_t i = 0; i < sizeof fast / sizeof *fast; i++)
        wire->value[fast[i]] = 1e30;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        wire->value[whole[i]] = 1;
    for (int i = 0; i < M_CONSTANTS; i++) wire->mark[i] = MARK_BY_HAND;
}

/* Tensor, context and expert ranks, in the passes of a rank's blocks. */
static double in_blocks(const struct cost *cost)
{
    static const enum cause causes[] = {CAUSE_TENSOR, CAUSE_CONTEXT,
                                        CAUSE_EXPERT};
    struct passes block;
    double sum = 0;

    cost_block(cost, &block);
    for (int pass = 0; pass < COST_PASSES; pass++)
        for (int i = 0; i < 3; i++)
            sum += block.pass[pass].seconds[causes[i]];
    return sum * cost->layout->microbatches * cost->shape->layers /
           cost->layout->pipe;
}

/* The pipe rank that sends the most. */
static double of_pipe(const struct cost *cost)
{
    const struct layout *l = cost->layout;
    int most = 0;

    for (int at = 0; at < l->pipe; at++) {
        const int next = (at + 1) % l->pipe;
        const int before = (at + l->pipe - 1) % l->pipe;
        int sent = 0;

        if (pipe_leaves(l, at, next)) sent += l->chunks - (next == 0);
        if (pipe_leaves(l, at, before)) sent += l->chunks - (at == 0);
        if (sent > most) most = sent;
    }
    return most * (double)l->microbatches * cost_border_bytes(cost);
}

/* Elements of table and head that the first pipe position gathers for a
 * micro-batch. */
static double outside(const struct layout *l, const struct shape *s)
{
    const double head = l->pipe > 1 ? 0 : s->outside.head;

    return (s->outside.embedding + head) / l->tensor;
}

/* Gradients are added up, weights are gathered. */
static double of_weights(const struct cost *cost)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const double blocks = (double)s->layers / l->pipe;
    const double sent = habits_sent(l->as), kept = l->bits == 32 ? 4 : 2;
    const double experts = tail_experts(cost, 0);
    const double dense = tail_parameters(cost, 0) - experts;
    double guessed = 0;
    const double sums = memory_reductions(l, s) *
                        cost_reduction(cost, sent * dense, sent * experts,
                                       &guessed);

    if (l->zero == 0 || layout_sharers(l) * l->context < 2) return sums;
    if (l->zero < 3) /* what the update has changed */
        return sums + cost_weights(cost, COLLECTIVE_ALL_GATHER, kept * dense,
                                   kept * experts, &guessed);
    /* Frozen ones, too: for F and for B; table and head, which other programs
     * keep in between, once. */
    return sums +
           2.0 * l->microbatches *
               cost_weights(cost, COLLECTIVE_ALL_GATHER,
                            kept * blocks * layout_block_dense(l, s),
                            kept * blocks * layout_block_experts(l, s),
                            &guessed) +
           l->microbatches * cost_weights(cost, COLLECTIVE_ALL_GATHER,
                                          kept * outside(l, s), 0, &guessed);
}

double network_bytes(const struct cost *cost)
{
    struct machine wire;
    struct layout bare = *cost->layout;
    const struct cost sent = {&wire, cost->shape, &bare};

    bare.overlap_tensor = false; /* what is hidden is sent, too */
    wire_of(cost->machine, &wire);
    return in_blocks(&sent) + of_pipe(&sent) + of_weights(&sent);
}
