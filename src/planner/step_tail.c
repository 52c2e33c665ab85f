/* SPDX-License-Identifier: Apache-2.0 */
/* step_tail.c - the end of a step. */
#include "planner/step_tail.h"

#include "planner/memory.h"
#include "planner/network.h"

struct group_shape data_group(const struct layout *l)
{
    if (l->as == AS_LOCKSTEP) /* context ranks have added up before */
        return (struct group_shape){
            layout_sharing(l),
            group_of(l, l->expert > 1 ? CAUSE_EXPERT : CAUSE_SHARD).stride};
    return (struct group_shape){l->context * layout_sharing(l),
                                group_of(l, CAUSE_EXPERT).stride};
}

struct group_shape shard_group(const struct layout *l)
{
    const enum cause inner = l->as == AS_LOCKSTEP ? CAUSE_SHARD
                                                  : CAUSE_CONTEXT;

    return (struct group_shape){layout_shards(l), group_of(l, inner).stride};
}

struct group_shape expert_data_group(const struct layout *l)
{
    /* Context ranks that divide the experts hold others. */
    if (l->expert_context || l->as == AS_LOCKSTEP)
        return (struct group_shape){l->data * l->shard,
                                    group_of(l, CAUSE_SHARD).stride};
    return (struct group_shape){l->context * l->data * l->shard,
                                group_of(l, CAUSE_CONTEXT).stride};
}

double cost_weights(const struct cost *cost, enum collective op,
                    double dense_bytes, double expert_bytes, double *guessed)
{
    const struct layout *l = cost->layout;
    const bool shards = l->whole_shards;
    double seconds = 0;

    if (dense_bytes > 0)
        seconds += cost_collective(cost, op,
                                   shards ? shard_group(l) : data_group(l),
                                   dense_bytes, guessed);
    if (expert_bytes > 0)
        seconds += cost_collective(cost, op,
                                   !shards ? expert_data_group(l)
                                   : l->expert_context
                                       ? group_of(l, CAUSE_SHARD)
                                       : shard_group(l),
                                   expert_bytes, guessed);
    return seconds;
}

/* The seconds of a collective between the ranks that hold copies of a shard, if
 * any do. Bytes of all shards together: context ranks that divide the experts
 * have no shards of each other's. */
static double cost_between_copies(const struct cost *cost, enum collective op,
                                  double dense_bytes, double expert_bytes,
                                  double *guessed)
{
    const struct layout *l = cost->layout;
    const int shards = layout_shards(l);

    if (!l->whole_shards) return 0;
    return cost_collective(cost, op, group_of(l, CAUSE_DATA),
                           dense_bytes / shards +
                               expert_bytes / (l->expert_context ? l->shard
                                                                 : shards),
                           guessed);
}

double cost_reduction(const struct cost *cost, double dense_bytes,
                      double expert_bytes, double *guessed)
{
    const struct layout *l = cost->layout;
    const enum collective op = l->zero > 0 ? COLLECTIVE_REDUCE_SCATTER
                                           : COLLECTIVE_ALL_REDUCE;
    struct layout one = *l;
    const struct cost whole = {cost->machine, cost->shape, &one};

    one.whole_shards = false;
    if (habits_of[l->as].sums_whole)
        return cost_weights(&whole, COLLECTIVE_ALL_REDUCE, dense_bytes,
                            expert_bytes, guessed);
    return cost_weights(cost, op, dense_bytes, expert_bytes, guessed) +
           cost_between_copies(cost, l->parts[1] ? COLLECTIVE_REDUCE_SCATTER
                                                 : COLLECTIVE_ALL_REDUCE,
                               dense_bytes, expert_bytes, guessed);
}

double cost_messages(const struct cost *cost)
{
    const struct layout *l = cost->layout;
    const struct shape *s = cost->shape;
    const struct group_shape group = data_group(l);
    const double blocks = (double)s->layers / l->pipe;
    const double dense = layout_block_dense(l, s) * blocks;
    const double experts = layout_block_experts(l, s) * blocks;
    const struct block_learns learns = layout_block_learns(l, s);
    const double each = l->bits == 32 ? 4 : 2;
    double guessed = 0, gather, reduce;

    if (group.ranks < 2) return 0;
    gather = cost_weights(cost, COLLECTIVE_ALL_GATHER, dense * each,
                          experts * each, &guessed);
    reduce = cost_weights(
        cost, COLLECTIVE_REDUCE_SCATTER,
        blocks * learns.dense * habits_sent(l->as),
        blocks * learns.experts * habits_sent(l->as), &guessed);
    if (l->zero == 3)
        return l->microbatches * 2 * gather +
               memory_reductions(l, s) * reduce;
    return l->zero > 0 ? gather + reduce : 2 * reduce;
}

double tail_experts(const struct cost *cost, int position)
{
    return memory_experts(cost->layout, cost->shape, position);
}

double tail_parameters(const struct cost *cost, int position)
{
    struct layout whole = *cost->layout;
    struct memory memory;

    whole.zero = 0;
    whole.offload = 0;
    whole.as = AS_MEGATRON; /* gradients of 4 bytes, not divided */
    memory_of(&whole, cost->shape, position, &memory);
    return memory.gradients / 4;
}

struct tail {
    struct steps *steps;
    const struct cost *cost;
    int32_t *reduced;      /* owned, [ranks]: last item before the norm */
};

struct tail_item {
    enum step_item item;
    enum clock_resource resource;
    enum cause cause;
    double seconds, guessed;
    uint8_t ports;
};

/* After the item that was added before it. */
static status add(struct tail *t, int rank, const struct tail_item *what)
{
    struct timed_list *list = &t->steps->lists.lists[rank];
    struct spent span = {.guessed = what->guessed};
    struct timed item = {.resource = (uint8_t)what->resource,
                         .ports = what->ports,
                         .cause = (int16_t)what->cause,
                         .stage = -1,
                         .microbatch = -1,
                         .number = -1,
                         .seconds = what->seconds};
    const int32_t before = list->count - 1;
    int32_t at;

    span.seconds[what->cause] = what->seconds;
    TRY(steps_kind(t->steps, &span, what->item, &item.kind));
    TRY(timed_add(list, &item, &at));
    return before >= 0 ? timed_need(list, rank, before) : OK;
}

/* Bytes of gradients that leave the rank after the backward pass. */
static status add_reduction(struct tail *t, int rank, bool reduced)
{
    const struct cost *cost = t->cost;
    const struct layout *l = cost->layout;
    const struct group_shape group = data_group(l);
    double guessed = 0;
    struct tail_item item = {ITEM_REDUCE, CLOCK_DATA, CAUSE_DATA, 0, 0, 0};

    if (group.ranks < 2) return OK;
    if (reduced) { /* the embedding, which is last; the head was first */
        const double rest = rank > 0 || cost->shape->lora.all > 0
                                ? 0 : cost->shape->outside.embedding /
                                          l->tensor;

        item.seconds = cost_collective(cost, COLLECTIVE_REDUCE_SCATTER, group,
                                       habits_sent(l->as) * rest,
                                       &guessed);
    } else {
        const double experts = tail_experts(cost, rank);
        const double each = habits_sent(l->as);
        struct cost whole = *cost;
        struct layout all = *l;

        all.whole_shards = l->whole_shards && l->zero < 3;
        whole.layout = &all;
        item.seconds = cost_reduction(
            &whole, each * (tail_parameters(cost, rank) - experts),
            each * experts, &guessed);
    }
    item.guessed = guessed;
    item.ports = group_on_node(l, group) >= group.ranks ? 1 : 2;
    return add(t, rank, &item);
}

/* Everyone waits for everyone: gradients have one norm. */
static status add_norm(struct tail *t, int rank)
{
    const struct layout *l = t->cost->layout;
    const int ranks = layout_ranks(l);
    double guessed = 0;
    struct tail_item item = {ITEM_NORM, CLOCK_HOST, CAUSE_DATA, 0, 0, 0};

    item.seconds = cost_collective(t->cost, COLLECTIVE_ALL_REDUCE,
                                   (struct group_shape){ranks, 1}, 8,
                                   &guessed);
    item.guessed = guessed;
    TRY(add(t, rank, &item));
    for (int other = 0; other < l->pipe; other++)
        if (other != rank)
            TRY(timed_need(&t->steps->lists.lists[rank], other,
                           t->reduced[other]));
    return OK;
}

double tail_states(const struct cost *cost, int position)
{
    const struct layout *l = cost->layout;
    const double experts = tail_experts(cost, position);
    struct layout copies = *l;

    copies.expert = 1;
    if (l->expert_context) copies.context = 1;
    return (tail_parameters(cost, position) - experts) /
               layout_division(l, 1) +
           experts / layout_division(&copies, 1);
}

static status add_update(struct tail *t, int rank)
{
    const struct cost *cost = t->cost;
    const struct layout *l = cost->layout;
    const double *v = cost->machine->value;
    const double mine = tail_states(cost, rank);
    /* Lockstep's mean gradients take the place of sums before the norm. */
    const double squared = l->as == AS_LOCKSTEP ? 8 : 0;
    const double seconds = (layout_update_bytes(l) + squared) * mine /
                           (v[M_MEMORY_RATE] * v[M_MEMORY]);
    struct tail_item item = {ITEM_UPDATE, CLOCK_COMPUTE, CAUSE_UPDATE, seconds,
                             cost->machine->mark[M_MEMORY] == MARK_ASSUMED
                                 ? seconds : 0, 0};

    return add(t, rank, &item);
}

/* Seconds of gathers that do not fit beside the F of the next step's first
 * micro-batch: its first block waits for its weights alone. */
static double not_hidden(const struct tail *t, double seconds)
{
    const double blocks = (double)t->cost->shape->layers /
                          t->cost->layout->pipe;
    const double first = seconds / (blocks < 1 ? 1 : blocks);
    const double beside = t->steps->body_work /
                          t->cost->layout->microbatches / 3;

    return seconds - beside > first ? seconds - beside : first;
}

/* Seconds until the first bytes of each owner have passed all ranks, one after
 * the other. */
static double owners_tell(const struct cost *cost, double *guessed)
{
    const struct layout *l = cost->layout;
    const struct group_shape group = l->whole_shards
                                         ? shard_group(l) : data_group(l);
    const double tensors = cost->shape->block.tensors *
                           (double)cost->shape->layers / l->pipe;

    if (!habits_of[l->as].owners || l->zero < 1 || l->zero > 2) return 0;
    return (tensors < group.ranks ? tensors : group.ranks) *
           cost_collective(cost, COLLECTIVE_ALL_GATHER, group, 0, guessed);
}

static status add_regather(struct tail *t, int rank)
{
    const struct cost *cost = t->cost;
    const struct layout *l = cost->layout;
    const struct group_shape group = data_group(l);
    struct tail_item item = {ITEM_REGATHER, CLOCK_DATA, CAUSE_SHARD, 0, 0, 0};
    const double bytes = l->bits == 32 ? 4 : 2;
    const double experts = tail_experts(cost, rank);
    double guessed = 0;

    if (l->zero < 1 || group.ranks < 2 || (l->zero == 3 && !l->parts[1]))
        return OK;
    if (l->zero < 3)
        item.seconds = cost_weights(
            cost, COLLECTIVE_ALL_GATHER,
            bytes * (tail_parameters(cost, rank) - experts), bytes * experts,
            &guessed);
    if (l->parts[1])
        item.seconds += cost_between_copies(
            cost, COLLECTIVE_ALL_GATHER,
            bytes * (tail_parameters(cost, rank) - experts), bytes * experts,
            &guessed);
    item.seconds += owners_tell(cost, &guessed);
    item.guessed = guessed;
    item.ports = group_on_node(l, group) >= group.ranks ? 1 : 2;
    if (habits_of[l->as].gathers_beside)
        item.seconds = not_hidden(t, item.seconds);
    return add(t, rank, &item);
}

static status fill(struct tail *t, bool reduced)
{
    const int ranks = t->steps->lists.ranks;
    /* Lockstep's lists have all that a step does. */
    const double step = t->cost->layout->as == AS_LOCKSTEP
                            ? 0 : t->cost->machine->value[M_STEP];
    const struct tail_item host = {
        ITEM_HOST, CLOCK_COMPUTE, CAUSE_HOST, step,
        t->cost->machine->mark[M_STEP] == MARK_ASSUMED ? step : 0, 0};

    for (int rank = 0; rank < ranks; rank++) {
        TRY(add_reduction(t, rank, reduced));
        t->reduced[rank] = t->steps->lists.lists[rank].count - 1;
    }
    for (int rank = 0; rank < ranks; rank++) {
        TRY(add_norm(t, rank));
        TRY(add_update(t, rank));
        TRY(add_regather(t, rank));
        TRY(add(t, rank, &host));
    }
    return OK;
}

status tail_add(struct steps *steps, const struct cost *cost, bool reduced)
{
    struct tail t = {.steps = steps, .cost = cost};
    void *memory = NULL;
    status result;

    TRY(memory_take((size_t)steps->lists.ranks, sizeof *t.reduced, &memory));
    t.reduced = memory;
    result = fill(&t, reduced);
    memory_free(t.reduced);
    return result;
}
