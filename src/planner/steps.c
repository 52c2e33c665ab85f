/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c - from a schedule and costs to timed lists. */
#include "planner/steps.h"

#include <string.h>

#include "planner/memory.h"
#include "planner/list_offload.h"
#include "planner/network.h"
#include "planner/step_tail.h"
#include "schedule/build.h"

const char *const step_item_names[STEP_ITEMS] = {
    "F", "B", "W", "BW", "transfer", "gather", "reduce", "norm", "update",
    "regather", "offload", "host"};

/* More micro-batches than these have passes of two parts; of Lockstep, more
 * passes of stages. */
enum { PARTS_MOST = 8, WHOLE_UNITS = 64, OWN_UNITS = 1 << 16 };

struct maker {
    struct steps *steps;
    const struct cost *cost;
    struct passes block, embedding, head;
    int *kinds;            /* owned, [stages * 4]: span of a whole item */
    int *blocks;           /* behind them, [stages] */
    int32_t *index;        /* owned, [stages * microbatches * 3]: of the last
                            * compute item of an action */
    int transfer_kind[2];  /* inside the node; out of it */
    int gather_kind, reduce_kind; /* of one block; -1: there are none */
    double gather_s, reduce_s;    /* of one block */
    uint8_t data_ports;
    double transfer_s[2];
    bool reduces_each;     /* a step sums gradients with each micro-batch */
};

status steps_kind(struct steps *steps, const struct spent *span,
                  enum step_item item, int *kind)
{
    if (steps->span_count == steps->span_capacity) {
        const int room = steps->span_capacity > 0 ? 2 * steps->span_capacity
                                                  : 32;
        void *spans = steps->spans, *items = steps->items;

        TRY(memory_grow(&spans, (size_t)room, sizeof *steps->spans));
        steps->spans = spans;
        TRY(memory_grow(&items, (size_t)room, sizeof *steps->items));
        steps->items = items;
        steps->span_capacity = room;
    }
    steps->spans[steps->span_count] = *span;
    steps->items[steps->span_count] = item;
    *kind = steps->span_count++;
    return OK;
}

/* ---- what is gathered and reduced beside the work ---- */

static bool gathers(const struct layout *l)
{
    return layout_division(l, 3) > 1;
}

/* Some reduce after the last micro-batch; the others beside it. */
static bool reduces_beside(const struct layout *l)
{
    return layout_sharers(l) > 1 && habits_of[l->as].beside;
}

static bool is_coarse(const struct layout *l)
{
    if (l->fine) return false;
    return l->as == AS_LOCKSTEP
               ? (double)l->microbatches * l->pipe * l->chunks > OWN_UNITS
               : l->microbatches > WHOLE_UNITS;
}

static int parts_of(const struct maker *m, int stage, bool reduce)
{
    const struct layout *l = m->cost->layout;
    const int blocks = m->blocks[stage];
    const int most = is_coarse(l) ? 2 : PARTS_MOST;

    if (!gathers(l) && !reduce) return 1;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

static bool is_reduced(const struct maker *m, struct action a, bool with_w)
{
    const struct layout *l = m->cost->layout;

    if (!reduces_beside(l) || (a.kind != ACTION_BACKWARD_WEIGHT && !with_w))
        return false;
    return m->reduces_each || a.microbatch == l->microbatches - 1;
}

/* ---- the spans ---- */

static void span_of(const struct maker *m, int stage, int pass,
                    struct spent *out)
{
    const struct layout *l = m->cost->layout;

    *out = (struct spent){0};
    spent_add(out, &m->block.pass[pass], m->blocks[stage]);
    if (stage == 0) spent_add(out, &m->embedding.pass[pass], 1);
    if (stage != l->pipe * l->chunks - 1) return;
    spent_add(out, &m->block.pass[pass], m->cost->shape->mtp.blocks);
    spent_add(out, &m->head.pass[pass], 1 + m->cost->shape->mtp.depth);
}

/* Whether the rank of a stage has a neighbour on another node. */
static bool is_at_border(const struct maker *m, int stage)
{
    const struct layout *l = m->cost->layout;
    const int rank = schedule_rank(&m->steps->schedule, stage, 0);

    return (rank > 0 && pipe_leaves(l, rank - 1, rank)) ||
           (rank + 1 < l->pipe && pipe_leaves(l, rank, rank + 1));
}

/* Some ranks wait for each message between two passes. What tensor ranks sent
 * in parts, the receivers put together. */
static double waits_for_message(const struct maker *m, int stage)
{
    const struct layout *l = m->cost->layout;
    const double waits = habits_of[l->as].waits *
                         m->transfer_s[is_at_border(m, stage)];
    double guessed = 0;

    if (waits <= 0 || l->pipe == 1 ||
        schedule_is(l->schedule, SCHEDULE_POSTED))
        return 0;
    if (l->tensor == 1 || l->sequence_parallel ||
        !habits_of[l->as].border_divided)
        return waits;
    return waits +
           cost_collective(m->cost, COLLECTIVE_ALL_GATHER,
                           group_of(l, CAUSE_TENSOR),
                           l->tensor * cost_border_bytes(m->cost), &guessed);
}

static status make_kinds(struct maker *m)
{
    const int stages = m->steps->schedule.stages;
    double sum = 0;

    for (int stage = 0; stage < stages; stage++) {
        struct spent spans[4] = {{.guessed = 0}};

        for (int pass = 0; pass < COST_PASSES; pass++) {
            span_of(m, stage, pass, &spans[pass]);
            if (pass < COST_W)
                spans[pass].seconds[CAUSE_PIPE] += waits_for_message(m, stage);
            sum += spent_seconds(&spans[pass]);
            if (pass > COST_F) spent_add(&spans[3], &spans[pass], 1);
        }
        for (int i = 0; i < 4; i++)
            TRY(steps_kind(m->steps, &spans[i], (enum step_item)(ITEM_F + i),
                           &m->kinds[4 * stage + i]));
    }
    m->steps->body_work = sum / m->cost->layout->pipe;
    return OK;
}

static uint8_t ports_of(const struct cost *cost, struct group_shape group)
{
    return group.ranks < 2 ? 0
           : group_on_node(cost->layout, group) >= group.ranks ? 1 : 2;
}

static status make_transfers(struct maker *m)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        struct spent span = {.guessed = 0};

        m->transfer_s[leaves] = cost_transfer(m->cost, leaves, &span.guessed);
        span.seconds[CAUSE_PIPE] = m->transfer_s[leaves];
        TRY(steps_kind(m->steps, &span, ITEM_TRANSFER,
                       &m->transfer_kind[leaves]));
    }
    return OK;
}

static status comm_kind(struct maker *m, enum cause cause, double seconds,
                        double guessed, enum step_item item)
{
    struct spent span = {.guessed = guessed};
    int kind;

    span.seconds[cause] = seconds;
    TRY(steps_kind(m->steps, &span, item, &kind));
    if (item == ITEM_GATHER) m->gather_kind = kind;
    if (item == ITEM_REDUCE) m->reduce_kind = kind;
    return OK;
}

static status make_messages(struct maker *m)
{
    const struct cost *cost = m->cost;
    const struct layout *l = cost->layout;
    const struct group_shape weights =
        l->whole_shards && l->zero == 3 ? shard_group(l) : data_group(l);
    const double dense = layout_block_dense(l, cost->shape);
    const double experts = layout_block_experts(l, cost->shape);
    const double bytes = l->bits == 32 ? 4 : 2;
    const struct block_learns learns = layout_block_learns(l, cost->shape);
    const double gradient = habits_sent(l->as);
    double guessed = 0;

    m->gather_kind = m->reduce_kind = -1;
    TRY(make_transfers(m));
    m->data_ports = ports_of(cost, weights);
    m->gather_s = cost_weights(cost, COLLECTIVE_ALL_GATHER, dense * bytes,
                               experts * bytes, &guessed);
    TRY(comm_kind(m, CAUSE_SHARD, m->gather_s, guessed, ITEM_GATHER));
    guessed = 0;
    m->reduce_s = cost_reduction(cost, learns.dense * gradient,
                                 learns.experts * gradient, &guessed);
    return comm_kind(m, CAUSE_DATA, m->reduce_s, guessed, ITEM_REDUCE);
}

/* ---- the lists ---- */

static int32_t *index_of(const struct maker *m, struct action a)
{
    const size_t cell = (size_t)a.stage *
                            (size_t)m->steps->schedule.microbatches +
                        (size_t)a.microbatch;

    return &m->index[cell * ACTION_COMPUTE_COUNT + (size_t)a.kind];
}

/* Whether the list goes on with the W of this B. */
static bool has_w(const struct action_list *list, int i)
{
    const struct action a = list->items[i];

    return a.kind == ACTION_BACKWARD_INPUT && i + 1 < list->count &&
           list->items[i + 1].kind == ACTION_BACKWARD_WEIGHT &&
           list->items[i + 1].stage == a.stage &&
           list->items[i + 1].microbatch == a.microbatch;
}

static int transfers_of(const struct maker *m, int rank, struct action a,
                        struct action remote[2])
{
    const struct schedule *s = &m->steps->schedule;
    struct action needs[2];
    const int count = schedule_needs(s, a, needs);
    int found = 0;

    for (int n = 0; n < count; n++)
        if (schedule_rank(s, needs[n].stage, needs[n].microbatch) != rank)
            remote[found++] = needs[n];
    return found;
}

/* Places of all compute items, before any is made: they need each other across
 * ranks. */
static status number_items(struct maker *m)
{
    enum { TAIL = 8 };
    const struct schedule *s = &m->steps->schedule;
    const int g = gathers(m->cost->layout);

    for (int rank = 0; rank < s->ranks; rank++) {
        int32_t next = 0;

        for (int i = 0; i < s->lists[rank].count; i++) {
            const struct action a = s->lists[rank].items[i];
            const bool with_w = has_w(&s->lists[rank], i);
            const int r = is_reduced(m, a, with_w);
            const int u = parts_of(m, a.stage, r);
            const int gathered = g && a.kind != ACTION_BACKWARD_WEIGHT;
            struct action remote[2];

            next += transfers_of(m, rank, a, remote);
            *index_of(m, a) = next + gathered * u + (u - 1) * (1 + r);
            next += gathered * u + u * (1 + r);
            if (with_w) {
                *index_of(m, s->lists[rank].items[i + 1]) = *index_of(m, a);
                i++;
            }
        }
        TRY(timed_reserve(&m->steps->lists.lists[rank], next + TAIL,
                          2 * next + TAIL + s->ranks));
    }
    return OK;
}

static status add_transfers(struct maker *m, int rank, struct action a)
{
    const struct schedule *s = &m->steps->schedule;
    struct timed_list *list = &m->steps->lists.lists[rank];
    struct action remote[2];
    const int count = transfers_of(m, rank, a, remote);
    int32_t at;

    for (int n = 0; n < count; n++) {
        const int from = schedule_rank(s, remote[n].stage,
                                       remote[n].microbatch);
        const bool leaves = pipe_leaves(m->cost->layout, from, rank);
        const struct timed item = {.resource = a.kind == ACTION_FORWARD
                                                   ? CLOCK_PIPE_DOWN
                                                   : CLOCK_PIPE_UP,
                                   .ports = leaves ? 2 : 1,
                                   .cause = CAUSE_PIPE,
                                   .stage = a.stage,
                                   .microbatch = a.microbatch,
                                   .kind = m->transfer_kind[leaves],
                                   .number = -1,
                                   .sender = from + 1,
                                   .seconds = m->transfer_s[leaves]};

        TRY(timed_add(list, &item, &at));
        TRY(timed_need(list, from, *index_of(m, remote[n])));
    }
    return OK;
}

/* Blocks of a stage, and its table and head in blocks, whose weights Lockstep
 * gathers and reduces like theirs. The table's gradient of the last
 * micro-batch comes last (step_tail.c). */
static double units_of(const struct maker *m, struct action a, bool reduces)
{
    const struct layout *l = m->cost->layout;
    const struct shape *s = m->cost->shape;
    const double block = layout_block_dense(l, s) + layout_block_experts(l, s);
    const bool comes = !reduces || a.microbatch < l->microbatches - 1;
    double ends = 0;

    if (a.stage == 0 && comes) ends += s->outside.embedding;
    if (a.stage == l->pipe * l->chunks - 1) ends += s->outside.head;
    return m->blocks[a.stage] +
           (l->as == AS_LOCKSTEP ? ends / l->tensor / block : 0);
}

struct part_plan {
    int rank, parts, kind;
    bool gather, reduce;
    struct action action;
    int32_t before[PARTS_MOST + 1], gathered[PARTS_MOST + 1];
};

static status add_gather(struct maker *m, struct part_plan *plan, int part)
{
    struct timed_list *list = &m->steps->lists.lists[plan->rank];
    const struct timed item = {
        .resource = CLOCK_DATA, .ports = m->data_ports, .cause = CAUSE_SHARD,
        .stage = plan->action.stage, .microbatch = plan->action.microbatch,
        .kind = m->gather_kind, .number = -1,
        .seconds = m->gather_s * units_of(m, plan->action, false) /
                   plan->parts};

    TRY(timed_add(list, &item, &plan->gathered[part]));
    if (part >= 2) TRY(timed_need(list, plan->rank, plan->before[part - 2]));
    return OK;
}

/* The part itself, and its reduction. */
static status add_part(struct maker *m, struct part_plan *plan, int part,
                       int transfers)
{
    struct timed_list *list = &m->steps->lists.lists[plan->rank];
    const double whole = spent_seconds(&m->steps->spans[plan->kind]);
    struct timed item = {
        .resource = CLOCK_COMPUTE, .cause = CAUSE_PRODUCT,
        .stage = plan->action.stage, .microbatch = plan->action.microbatch,
        .kind = plan->kind, .number = -1, .seconds = whole / plan->parts};
    struct action needs[2];
    int count;

    TRY(timed_add(list, &item, &plan->before[part]));
    if (plan->gather)
        TRY(timed_need(list, plan->rank, plan->gathered[part]));
    if (part == 0) {
        count = schedule_needs(&m->steps->schedule, plan->action, needs);
        for (int n = 0; n < count; n++)
            if (schedule_rank(&m->steps->schedule, needs[n].stage,
                              needs[n].microbatch) == plan->rank)
                TRY(timed_need(list, plan->rank, *index_of(m, needs[n])));
        for (int n = 0; n < transfers; n++)
            TRY(timed_need(list, plan->rank,
                           plan->gathered[PARTS_MOST] - 1 - n));
    }
    if (!plan->reduce) return OK;
    item.resource = CLOCK_DATA;
    item.ports = m->data_ports;
    item.cause = CAUSE_DATA;
    item.kind = m->reduce_kind;
    item.seconds = m->reduce_s * units_of(m, plan->action, true) /
                   plan->parts;
    TRY(timed_add(list, &item, &plan->gathered[part]));
    return timed_need(list, plan->rank, plan->before[part]);
}

static status add_action(struct maker *m, int rank, struct action a,
                         bool with_w)
{
    struct timed_list *list = &m->steps->lists.lists[rank];
    struct part_plan plan = {.rank = rank, .action = a};
    int transfers = list->count;

    plan.reduce = is_reduced(m, a, with_w);
    plan.parts = parts_of(m, a.stage, plan.reduce);
    plan.gather = gathers(m->cost->layout) &&
                  a.kind != ACTION_BACKWARD_WEIGHT;
    plan.kind = m->kinds[4 * a.stage + (with_w ? 3 : a.kind)];
    TRY(add_transfers(m, rank, a));
    transfers = list->count - transfers;
    plan.gathered[PARTS_MOST] = list->count; /* transfers end here */
    if (plan.gather) TRY(add_gather(m, &plan, 0));
    for (int part = 0; part < plan.parts; part++) {
        if (plan.gather && part + 1 < plan.parts)
            TRY(add_gather(m, &plan, part + 1));
        TRY(add_part(m, &plan, part, transfers));
    }
    return OK;
}

static status fill_lists(struct maker *m)
{
    const struct schedule *s = &m->steps->schedule;

    TRY(number_items(m));
    for (int rank = 0; rank < s->ranks; rank++) {
        const struct action_list *list = &s->lists[rank];

        for (int i = 0; i < list->count; i++) {
            const bool with_w = has_w(list, i);

            TRY(add_action(m, rank, list->items[i], with_w));
            if (!with_w) CHECK(*index_of(m, list->items[i]) <
                               m->steps->lists.lists[rank].count);
            i += with_w;
        }
    }
    TRY(tail_add(m->steps, m->cost, reduces_beside(m->cost->layout)));
    return list_offload(m->steps, m->cost);
}

/* List schedulers read times. */
static status make_schedule(struct maker *m)
{
    const struct layout *l = m->cost->layout;
    struct schedule_request request =
        schedule_request_default(l->schedule, l->pipe, l->microbatches);
    const double blocks = (double)m->cost->shape->layers / l->pipe;
    const struct group_shape pipe = group_of(l, CAUSE_PIPE);
    int64_t *times[COST_PASSES] = {
        &request.forward_ns, &request.backward_input_ns,
        &request.backward_weight_ns};

    for (int pass = 0; pass < COST_PASSES; pass++) {
        const double ns = 1e9 * blocks * spent_seconds(&m->block.pass[pass]);

        *times[pass] = ns < 1 ? 1 : ns > 1e15 ? (int64_t)1e15 : (int64_t)ns;
    }
    request.transfer_ns =
        (int64_t)(m->transfer_s[group_on_node(l, pipe) < pipe.ranks] * 1e9);
    request.chunks = l->pipe > 1 ? l->chunks : 0;
    return schedule_make(&m->steps->schedule, &request);
}

static status make(struct maker *m)
{
    const struct schedule *s = &m->steps->schedule;
    void *memory = NULL;
    size_t cells;

    m->reduces_each =
        memory_reductions(m->cost->layout, m->cost->shape) > 1;
    cost_block(m->cost, &m->block);
    cost_embedding(m->cost, &m->embedding);
    cost_head(m->cost, &m->head);
    cost_leaves(m->cost, &m->block, &m->embedding, &m->head);
    TRY(make_messages(m));
    TRY(make_schedule(m));
    TRY(memory_take((size_t)s->stages * 5, sizeof *m->kinds, &memory));
    m->kinds = memory;
    m->blocks = m->kinds + 4 * s->stages;
    for (int i = 0; i < s->stages; i++)
        m->blocks[i] = layout_blocks(m->cost->layout, m->cost->shape, i);
    TRY(make_kinds(m));
    cells = (size_t)s->stages * (size_t)s->microbatches;
    TRY(memory_take(cells * ACTION_COMPUTE_COUNT, sizeof *m->index, &memory));
    m->index = memory;
    TRY(timed_lists_begin(&m->steps->lists, s->ranks));
    return fill_lists(m);
}

status steps_build(struct steps *steps, const struct cost *cost)
{
    struct maker m = {.steps = steps, .cost = cost};
    status result;

    *steps = (struct steps){0};
    result = make(&m);
    memory_free(m.kinds);
    memory_free(m.index);
    if (result != OK) steps_free(steps);
    return result;
}

void steps_free(struct steps *steps)
{
    timed_lists_free(&steps->lists);
    memory_free(steps->spans);
    memory_free(steps->items);
    schedule_free(&steps->schedule);
    *steps = (struct steps){0};
}
