/* SPDX-License-Identifier: Apache-2.0 */
/* list_clock.c - from the executor's lists to timed lists. */
#include "planner/list_clock.h"

#include <string.h>

#include "list/traffic.h"
#include "nn/expert_ranks.h"
#include "planner/list_recipes.h"
#include "planner/network.h"
#include "planner/step_tail.h"

struct costing {
    struct list_clock *walk;
    const struct pipeline *pipeline;
    const struct instruction *instruction;
    struct spent spent;
    enum cause own;        /* of the instruction's own messages */
    double travelling;     /* seconds of rows that an event sends */
};

/* ---- arithmetic ---- */

/* A product with matrix `which` of the step. */
static void product_of(const struct cost *cost, const struct step *step,
                       const struct program *p, int which, enum pass pass,
                       struct spent *out)
{
    const struct param *weight = &p->params.items[step->param[which]];
    const bool experts = step->layer->kind == LAYER_EXPERTS;
    const struct router_form *form = &step->set.experts.form;
    /* Tokens of all sources, over all experts. */
    const double part = experts ? (double)form->choices * experts_sources(p) /
                                      form->experts : 1;
    /* The head, whose output is the loss, computes logits of all tokens. */
    const double m = (experts || step->output < 0
                          ? (double)p->size.tokens
                          : (double)program_slot_rows(p, step->output)) * part;
    const double n = (double)weight->rows;
    const double k = (double)weight->cols;
    const struct product_size sizes[] = {
        [PASS_FORWARD] = {m, n, k, PRODUCT_NT, ACCUMULATOR_NONE},
        [PASS_RECOMPUTE] = {m, n, k, PRODUCT_NT, ACCUMULATOR_NONE},
        [PASS_BACKWARD_INPUT] = {m, k, n, PRODUCT_NN, ACCUMULATOR_NONE},
        [PASS_BACKWARD_WEIGHT] = {n, k, m, PRODUCT_TN, ACCUMULATOR_NONE}};

    const double times = experts ? step->each : 1;
    struct product_size size = sizes[pass];

    if (step->few) size.accumulator = p->precision.accumulator;
    if (step->few && pass != PASS_BACKWARD_INPUT &&
        pass != PASS_BACKWARD_WEIGHT &&
        precision_is_integer(&p->precision.recipe))
        cost_integers(cost, size, times, out);
    else
        cost_product(cost, size, times, CAUSE_PRODUCT, out);
    if (step->few)
        list_round_operands(cost, &(struct rounded_product){
            p, weight, pass, size, times}, out);
    if (step->layer->kind == LAYER_HEAD && pass == PASS_FORWARD)
        cost_worked(cost, &(struct worked){WORK_LOSS, 8 * m * n, m, n}, out);
}

/* F of a head makes nothing. B makes logits and losses, and W, where it does
 * not follow at once, makes them once more (nn/head.c). */
static void head_of(const struct cost *cost, const struct stage *stage,
                    const struct event *event, struct spent *out)
{
    const struct program *p = &stage->program;
    const struct step *step = &p->steps[event->step];

    if (event->pass == PASS_FORWARD) return;
    if (event->pass == PASS_BACKWARD_INPUT ||
        stage->frame.mode == BACKWARD_SPLIT)
        product_of(cost, step, p, 0, PASS_FORWARD, out);
    product_of(cost, step, p, 0, event->pass, out);
}

/* Experts that ranks divide have both of their matrices in one step; what
 * follows the matrix elsewhere is a vector. */
static bool has_second(const struct step *step, const struct program *p)
{
    return step->layer->kind == LAYER_EXPERTS && step->param[1] >= 0 &&
           p->params.items[step->param[1]].spec.cols > 1;
}

/* The head width of the attention for which a step turns queries and keys. */
static double head_width_after(const struct program *p, const struct step *step)
{
    for (; step < p->steps + p->step_count; step++)
        if (step->layer->kind == LAYER_ATTENTION)
            return step->set.attention.head_width;
    return 64;
}

/* Rows through memory: what the layer's cost says of F; B also reads what F
 * read. */
static void moved_of(const struct cost *cost, const struct step *step,
                     const struct program *p, const struct event *event,
                     struct spent *out)
{
    const double bytes = step->layer->cost(step, p).bytes_moved;
    const bool back = event->pass == PASS_BACKWARD_INPUT;
    struct worked w = {.rows = (double)p->size.tokens,
                       .width = (double)p->slots[step->output].width};

    switch (step->layer->kind) {
    case LAYER_NORM:
        w.work = back ? WORK_NORM_BACK : WORK_NORM;
        w.bytes = (back ? 1.5 : event->is_made ? 0.5 : 1) * bytes;
        break; /* one that is made with a sum reads nothing again */
    case LAYER_ACTIVATION:
        w.work = back ? WORK_GATE_BACK : WORK_GATE;
        w.bytes = (back ? 5.0 / 3 : 1) * bytes;
        break;
    case LAYER_ROPE:
        w.work = WORK_ROTATE;
        w.width = head_width_after(p, step);
        w.bytes = bytes; /* its rows are heads of a token */
        w.rows = bytes / (2.0 * (double)dtype_bytes(p->dtype) *
                          (double)p->size.tokens * w.width);
        break;
    case LAYER_ADD: w.work = WORK_ADD; w.bytes = bytes; break;
    default: cost_moved(cost, (back ? 1.7 : 1) * bytes, out); return;
    }
    cost_worked(cost, &w, out);
}

static void event_cost(const struct cost *cost, const struct stage *stage,
                       const struct event *event, struct spent *out)
{
    const struct program *p = &stage->program;
    const struct step *step = &p->steps[event->step];
    const struct step_cost forward = step->layer->cost(step, p);
    const bool back = event->pass == PASS_BACKWARD_INPUT;

    if (step->layer->kind == LAYER_HEAD) {
        head_of(cost, stage, event, out);
    } else if (step->layer->kind == LAYER_LINEAR ||
               step->layer->kind == LAYER_DOWN ||
               ((step->layer->kind == LAYER_EXPERTS ||
                 step->layer->kind == LAYER_ROUTER) && step->param[0] >= 0)) {
        product_of(cost, step, p, 0, event->pass, out);
        if (has_second(step, p)) {
            product_of(cost, step, p, 1, event->pass, out);
            list_keep_experts(cost, step, p, event->pass, out);
        }
    } else if (step->layer->kind == LAYER_ATTENTION) {
        const double flops = forward.flops * (back ? 2.5 : 1);

        if (event->pass == PASS_BACKWARD_WEIGHT) return;
        cost_attended(cost, &(struct attended){
            flops, (double)p->size.length, step->set.attention.head_width,
            back}, out);
    } else if (list_is_rounding(step)) {
        list_round_layer(cost, step, p, event->pass, out);
    } else {
        moved_of(cost, step, p, event, out);
        list_keep_gate(cost, step, p, event->pass, out);
    }
}

/* Elements that this rank updates, of the chunk. */
static double owned(const struct costing *c)
{
    const struct stage *stage =
        &c->pipeline->stages[c->instruction->chunk < 0
                                 ? 0 : c->instruction->chunk];

    return (double)stage->memory[MEMORY_STATE_0].bytes /
           layout_state_bytes(c->walk->cost->layout);
}

/* Instructions of this kind and chunk share the work: those of units by the
 * elements that this rank updates of each, others alike. */
static double share(const struct costing *c)
{
    const struct instruction *at = c->instruction;
    const struct step_list *list = &c->walk->lists[c->walk->made];
    int count = 0;

    if (at->kind == DO_UPDATE && at->unit >= 0) {
        const struct shards *s = &c->pipeline->stages[at->chunk].shards;

        return s->elements > 0 ? (double)shard_weights(s, at->unit) /
                                     (double)s->elements : 0;
    }
    for (int i = 0; i < list->count; i++)
        count += list->items[i].kind == c->instruction->kind &&
                 list->items[i].chunk == c->instruction->chunk;
    return count > 0 ? 1.0 / count : 1;
}

/* Bytes that are read and written where sums of two rounds meet, which all but
 * one of a step's rounds do. */
static double merged(const struct costing *c)
{
    const struct stage *stage =
        &c->pipeline->stages[c->instruction->chunk < 0
                                 ? 0 : c->instruction->chunk];
    const double bytes = (double)dtype_bytes(program_sum(&stage->program));

    return 3 * bytes * (double)stage->level_elements;
}

static void arithmetic(struct costing *c)
{
    const struct instruction *i = c->instruction;
    const struct cost *cost = c->walk->cost;

    if (i->kind == DO_UPDATE) {
        cost_worked(cost, &(struct worked){WORK_UPDATE,
                                           layout_update_bytes(cost->layout) *
                                               owned(c) * share(c),
                                           owned(c) * share(c), 1}, &c->spent);
        c->spent.seconds[CAUSE_UPDATE] += c->spent.seconds[CAUSE_MEMORY];
        c->spent.seconds[CAUSE_MEMORY] = 0;
    } else if (i->kind == DO_BLOCKS) {
        cost_worked(cost, &(struct worked){ /* means take their place */
            WORK_SQUARES, 8 * owned(c) * share(c), owned(c) * share(c), 1},
            &c->spent);
    } else if (i->kind == DO_MERGE) {
        cost_moved(cost, merged(c) * (1 - share(c)), &c->spent);
    } else {
        c->spent.seconds[CAUSE_LAUNCH] += cost->machine->value[M_LAUNCH];
    }
}

/* ---- messages ---- */

static bool is_along_axis(const struct exchange *row)
{
    return row->group.kind == GROUP_AXIS || row->group.kind == GROUP_EXPERTS;
}

static enum cause cause_of(const struct costing *c, const struct exchange *row)
{
    if (!is_along_axis(row)) return c->own;
    switch (row->group.number) {
    case AXIS_TENSOR: return CAUSE_TENSOR;
    case AXIS_CONTEXT: return CAUSE_CONTEXT;
    case AXIS_EXPERT:
        return instruction_computes(c->instruction) ? CAUSE_EXPERT : c->own;
    default: return c->own;
    }
}

/* Bytes that a rank sends, and those of the tensor that a call is about. */
static double whole_of(const struct exchange *row, enum collective *op)
{
    const double n = row->size;
    const double each = row->calls > 0 ? (double)row->bytes /
                                             (double)row->calls
                                       : 0;

    *op = row->kind == COMM_ALL_REDUCE      ? COLLECTIVE_ALL_REDUCE
          : row->kind == COMM_ALL_GATHER    ? COLLECTIVE_ALL_GATHER
          : row->kind == COMM_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
          : row->kind == COMM_ALL_TO_ALL    ? COLLECTIVE_ALL_TO_ALL
                                            : COLLECTIVE_SEND;
    if (n < 2 || *op == COLLECTIVE_SEND) return each;
    if (*op == COLLECTIVE_ALL_GATHER) return each * n / (n - 1);
    return each * n / (n - 1) / (*op == COLLECTIVE_ALL_REDUCE ? 2 : 1);
}

/* The share that leaves the node, of what would with equal blocks for all. */
static double left_node(const struct cost *cost, const struct exchange *row,
                        struct group_shape group, double whole)
{
    const int near = group_on_node(cost->layout, group);
    const double even = whole * (group.ranks - near) / group.ranks;
    const double each = (double)row->between / (double)row->calls;

    return even > 0 ? each / even : 0;
}

static int axes_of(const struct exchange *row)
{
    if (is_along_axis(row)) return 1 << row->group.number;
    return row->group.kind == GROUP_AXES || row->group.kind == GROUP_BATCH
               ? row->group.number : 0;
}

/* The fastest axis of the group: rank numbers from one member to the next. */
static int stride_of(const struct layout *l, const struct exchange *row,
                     enum cause cause)
{
    static const struct { enum axis axis; enum cause cause; } fast_first[] = {
        {AXIS_TENSOR, CAUSE_TENSOR}, {AXIS_EXPERT, CAUSE_EXPERT},
        {AXIS_CONTEXT, CAUSE_CONTEXT}, {AXIS_SHARD, CAUSE_SHARD},
        {AXIS_DATA, CAUSE_DATA}};
    const int axes = axes_of(row);

    if (cause == CAUSE_EXPERT) return expert_group(l).stride;
    for (int i = 0; i < 5; i++)
        if ((axes >> fast_first[i].axis & 1) &&
            group_of(l, fast_first[i].cause).ranks > 1)
            return group_of(l, fast_first[i].cause).stride;
    return group_of(l, cause).stride;
}

static status visit(void *argument, const struct exchange *row)
{
    struct costing *c = argument;
    const struct cost *cost = c->walk->cost;
    const enum cause cause = cause_of(c, row);
    const struct group_shape group = {row->size,
                                      stride_of(cost->layout, row, cause)};
    double guessed = 0, seconds;
    enum collective op;

    if (row->calls < 1) return OK;
    const double whole = whole_of(row, &op);

    seconds = op == COLLECTIVE_ALL_TO_ALL && row->between > 0
                  ? cost_exchange(cost, group, whole,
                                  (struct rows_once){
                                      left_node(cost, row, group, whole), 0},
                                  &guessed)
                  : cost_collective(cost, op, group, whole, &guessed);
    if (cause == CAUSE_EXPERT && op == COLLECTIVE_ALL_TO_ALL)
        c->travelling += seconds * (double)row->calls;
    else
        c->spent.seconds[cause] += seconds * (double)row->calls;
    if (group_on_node(cost->layout, group) < group.ranks)
        c->spent.network += seconds * (double)row->calls;
    c->spent.guessed += guessed * (double)row->calls;
    return OK;
}

/* ---- rows of experts, beside other work (nn/expert_parallel.c) ---- */

/* Where the products of experts are: each half is computed when it has come,
 * and goes on. */
static double work_on_rows(struct list_clock *w, struct under_way *rows,
                           double seconds, double sent)
{
    double longer = 0;

    for (int k = 0; k < TRAVEL_HALVES; k++) {
        longer += expert_travel_await(&w->travel, rows, k);
        longer += expert_travel_compute(&w->travel, seconds / TRAVEL_HALVES);
        expert_travel_start(&w->travel, rows, k, sent / TRAVEL_HALVES);
    }
    return longer;
}

static double move_rows(struct list_clock *w, const struct event *event,
                        const struct layer *layer, struct under_way *rows,
                        double sent)
{
    const bool back = event->pass == PASS_BACKWARD_INPUT;
    double waits = 0;

    if (back ? layer->starts_backward : layer->starts_forward) {
        for (int k = 0; k < TRAVEL_HALVES; k++)
            expert_travel_start(&w->travel, rows, k, sent / TRAVEL_HALVES);
        return 0;
    }
    for (int k = 0; k < TRAVEL_HALVES; k++)
        waits += expert_travel_await(&w->travel, rows, k);
    return waits;
}

static bool has_rows_to_send(const struct event *event,
                             const struct layer *layer)
{
    return event->pass != PASS_BACKWARD_WEIGHT &&
           layer->kind == LAYER_EXPERTS &&
           (layer->starts_forward || layer->starts_backward);
}

/* Context ranks add leaves of the batch in some micro-batches alone. */
static status price_event(struct costing *c, const struct stage *stage,
                          const struct instruction *one,
                          struct list_clock_event *out)
{
    const struct spent before = c->spent;
    const struct list_clock *w = c->walk;
    const struct cost *cost = w->cost;
    const struct event *event = &stage->frame.events[one->first_event];

    if (out->known) return OK;
    c->spent = (struct spent){.guessed = 0};
    c->travelling = 0;
    event_cost(cost, stage, event, &c->spent);
    if (event->pass == PASS_BACKWARD_WEIGHT)
        list_add_leaves(cost, &w->prices[w->priced[one->chunk]].adds,
                        &stage->program.steps[event->step], &stage->program,
                        &c->spent);
    cost_started(cost, 1, &c->spent);
    TRY(list_traffic(c->pipeline, one, visit, c));
    *out = (struct list_clock_event){cost->layout->context == 1, c->spent,
                               spent_seconds(&c->spent), c->travelling};
    c->spent = before;
    return OK;
}

/* The sum of an instruction's events, if another one of the rank had the same:
 * where it is that of each micro-batch. */
static const struct list_clock_sum *find_sum(const struct costing *c)
{
    const struct list_clock *w = c->walk;
    const struct instruction *i = c->instruction;

    for (int n = 0; n < w->sum_count; n++)
        if (w->sums[n].of == w->priced[i->chunk] &&
            w->sums[n].first == i->first_event &&
            w->sums[n].last == i->last_event)
            return &w->sums[n];
    return NULL;
}

static void keep_sum(const struct costing *c)
{
    struct list_clock *w = c->walk;
    const struct instruction *i = c->instruction;

    if (w->cost->layout->context > 1 || w->sum_count == WALK_SUMS) return;
    w->sums[w->sum_count++] = (struct list_clock_sum){
        w->priced[i->chunk], i->first_event, i->last_event, c->spent};
}

/* F, B, W: event by event. */
static status compute(struct costing *c)
{
    struct list_clock *w = c->walk;
    const struct stage *stage = &c->pipeline->stages[c->instruction->chunk];
    struct under_way *rows =
        &w->rows[c->instruction->chunk % WALK_CHUNKS];
    struct list_clock_event *const prices =
        w->prices[w->priced[c->instruction->chunk]].items;
    struct instruction one = *c->instruction;
    const struct list_clock_sum *known = find_sum(c);
    double waits = 0, longer = 0;

    for (int e = c->instruction->first_event; e < c->instruction->last_event;
         e++) {
        const struct event *event = &stage->frame.events[e];
        const struct layer *layer =
            stage->program.steps[event->step].layer;
        struct list_clock_event *priced = &prices[e];
        double seconds;

        one.first_event = e;
        one.last_event = e + 1;
        TRY(price_event(c, stage, &one, priced));
        if (known == NULL) spent_add(&c->spent, &priced->spent, 1);
        seconds = priced->seconds;
        if (has_rows_to_send(event, layer) && layer->starts_forward &&
            layer->starts_backward) {
            waits += work_on_rows(w, rows, seconds, priced->travelling);
            continue;
        }
        longer += expert_travel_compute(&w->travel, seconds);
        if (has_rows_to_send(event, layer))
            waits += move_rows(w, event, layer, rows, priced->travelling);
    }
    if (known != NULL) c->spent = known->spent;
    else keep_sum(c);
    c->spent.seconds[CAUSE_EXPERT] += waits + longer;
    return OK;
}

static enum cause own_cause(const struct instruction *i)
{
    if (instruction_is_message(i) || i->kind == DO_TIE) return CAUSE_PIPE;
    if (i->kind == DO_GATHER || i->kind == DO_REGATHER) return CAUSE_SHARD;
    return CAUSE_DATA;
}

/* ---- one instruction ---- */

static enum step_item item_of(const struct instruction *i)
{
    switch (i->kind) {
    case DO_FORWARD: return ITEM_F;
    case DO_BACKWARD: return ITEM_BACKWARD;
    case DO_WEIGHT: return ITEM_W;
    case DO_SEND: case DO_RECEIVE: case DO_SEND_BACK: case DO_RECEIVE_BACK:
        return ITEM_TRANSFER;
    case DO_GATHER: return ITEM_GATHER;
    case DO_REGATHER: return ITEM_REGATHER;
    case DO_REDUCE: case DO_SUM: case DO_HALVES: case DO_MERGE: case DO_JOIN:
        return ITEM_REDUCE;
    case DO_NORM: case DO_BLOCKS: case DO_SHARE: return ITEM_NORM;
    case DO_UPDATE: case DO_MATRICES: return ITEM_UPDATE;
    default: return ITEM_HOST;
    }
}

/* A number of its own for each of an instruction's costs, below all seconds:
 * context ranks add the leaves that its micro-batch completes. */
static double variant_of(const struct costing *c, const struct instruction *i)
{
    if (!instruction_computes(i) || c->walk->cost->layout->context == 1)
        return 0;
    return -1 - (double)list_leaves_completed(c->pipeline, i, false) -
           2.0 * GRID_DATA_LEAVES_MAX *
               (double)list_leaves_completed(c->pipeline, i, true);
}

/* Equal work has one kind, and, where rows of experts travel beside it, one
 * time. */
static status kind_of(struct costing *c, const struct step_list *list,
                      int number, int *kind)
{
    struct list_clock *w = c->walk;
    const struct instruction *i = &list->items[number];
    const bool computes = instruction_computes(i);
    const bool differs = computes &&
                         layout_experts(w->cost->layout).ranks > 1;
    double seconds = differs ? 0 : variant_of(c, i);

    *kind = differs ? -1 : known_find(&w->known, i, seconds);
    if (*kind >= 0) return OK;
    c->instruction = i;
    c->spent = (struct spent){.guessed = 0};
    c->own = own_cause(i);
    if (computes)
        TRY(compute(c));
    else
        arithmetic(c);
    if (!computes && i->kind != DO_SEND && i->kind != DO_SEND_BACK)
        TRY(list_traffic(c->pipeline, i, visit, c));
    if (differs) {
        seconds = spent_seconds(&c->spent);
        *kind = known_find(&w->known, i, seconds);
        if (*kind >= 0) return OK;
    }
    TRY(steps_kind(&w->steps, &c->spent, item_of(i), kind));
    return known_put(&w->known, &(struct known_cost){i, seconds, *kind});
}

/* The path whose ports the message of an instruction shares (struct timed). */
static uint8_t ports_of(const struct list_clock *w, const struct instruction *i,
                        const struct timed *item)
{
    if (i->kind == DO_RECEIVE || i->kind == DO_RECEIVE_BACK)
        return pipe_leaves(w->cost->layout, i->peer, w->made) ? 2 : 1;
    if (!instruction_rows[i->kind].background || i->calls < 1) return 0;
    return w->steps.spans[item->kind].network > 0 ? 2 : 1;
}

static uint8_t resource_of(const struct instruction *i, bool background)
{
    if (i->kind == DO_RECEIVE) return CLOCK_PIPE_DOWN;
    if (i->kind == DO_RECEIVE_BACK) return CLOCK_PIPE_UP;
    if (i->kind == DO_SEND || i->kind == DO_SEND_BACK) return CLOCK_HOST;
    if (i->kind == DO_BATCH) return CLOCK_HOST;
    return background ? CLOCK_DATA : CLOCK_COMPUTE;
}

/* Whether all ranks of the pipe have it and wait for each other there. */
static bool meets(const struct instruction *i)
{
    return instruction_rows[i->kind].resource == RESOURCE_WORLD && i->calls > 0;
}

/* A receive is posted as soon as it can be, perhaps before one that is awaited
 * earlier. The clock lets a link carry messages in the order in which they are
 * awaited. */
static void give_turn(struct list_clock *w, const struct step_list *list,
                      int32_t number)
{
    struct timed_list *timed = &w->steps.lists.lists[w->made];
    const enum instruction_kind kind = list->items[number].kind;

    if ((kind == DO_RECEIVE || kind == DO_RECEIVE_BACK) &&
        timed->items[number].turn == 0)
        timed->items[number].turn = ++timed->turns;
}

static status add_one(struct costing *c, const struct step_list *list,
                      int number, int *serial)
{
    struct list_clock *w = c->walk;
    struct timed_list *timed = &w->steps.lists.lists[w->made];
    const struct instruction *i = &list->items[number];
    const bool background = instruction_rows[i->kind].background;
    const bool receives = i->kind == DO_RECEIVE || i->kind == DO_RECEIVE_BACK;
    struct timed item = {.stage = i->stage, .microbatch = i->microbatch,
                         .number = number, .cause = (int16_t)own_cause(i),
                         .resource = resource_of(i, background)};
    const int32_t *needs = list_needs(list, number);
    double guessed = 0;
    int32_t at;

    TRY(kind_of(c, list, number, &item.kind));
    item.ports = ports_of(w, i, &item);
    item.seconds = spent_seconds(&w->steps.spans[item.kind]);
    if (receives) { /* as long as the message; its send is posted */
        item.seconds = cost_transfer(w->cost, item.ports == 2, &guessed);
        item.sender = i->peer + 1;
    }
    if (meets(i)) item.meeting = ++w->meetings;
    TRY(timed_add(timed, &item, &at));
    CHECK(at == number);
    /* Computation goes on in the order of the list anyway; but what comes
     * before a meeting is what other ranks wait for there. */
    if (*serial >= 0 && (item.meeting > 0 || item.resource != CLOCK_COMPUTE ||
                         timed->items[*serial].resource != CLOCK_COMPUTE))
        TRY(timed_need(timed, w->made, *serial));
    for (int n = 0; n < i->needs; n++) {
        give_turn(w, list, needs[n]);
        TRY(timed_need(timed, w->made, needs[n]));
    }
    if (receives) TRY(timed_need(timed, i->peer, -1)); /* join_rank */
    if (!background) *serial = number;
    return OK;
}

status list_clock_begin(struct list_clock *walk, const struct cost *cost,
                        int ranks)
{
    void *memory = NULL;

    *walk = (struct list_clock){.cost = cost, .ranks = ranks};
    TRY(memory_take((size_t)ranks, sizeof *walk->lists, &memory));
    walk->lists = memory;
    return timed_lists_begin(&walk->steps.lists, ranks);
}

/* Room for the prices of a stage's events; known ones, where the stage has the
 * plan of one before (plan/known_stages.h). */
static status open_prices(struct list_clock *w, const struct stage *stage,
                          int *which)
{
    void *prices = w->prices, *memory = NULL;

    for (*which = 0; *which < w->price_count && stage->borrowed; ++*which)
        if (w->prices[*which].of == stage->frame.events) return OK;
    *which = w->price_count;
    TRY(memory_next(&prices, &w->price_capacity, w->price_count, 16,
                    sizeof *w->prices));
    w->prices = prices;
    TRY(memory_take((size_t)stage->frame.event_count + 1,
                    sizeof(struct list_clock_event), &memory));
    w->prices[w->price_count++] = (struct list_clock_prices){
        stage->borrowed ? stage->frame.events : NULL, memory, w->adds};
    leaf_adds_of(&stage->program, &w->prices[*which].adds);
    w->adds = w->prices[*which].adds;
    return OK;
}

/* Prices of stages that are planned alone are forgotten with their rank. */
static status open_all_prices(struct list_clock *w,
                              const struct pipeline *pipeline)
{
    void *memory = NULL;

    while (w->price_count > 0 && w->prices[w->price_count - 1].of == NULL)
        memory_free(w->prices[--w->price_count].items);
    memory_free(w->priced);
    w->priced = NULL;
    TRY(memory_take((size_t)pipeline->count, sizeof *w->priced, &memory));
    w->priced = memory;
    for (int i = 0; i < pipeline->count; i++)
        TRY(open_prices(w, &pipeline->stages[i], &w->priced[i]));
    return OK;
}

status list_clock_rank(struct list_clock *walk, const struct pipeline *pipeline)
{
    struct costing c = {.walk = walk, .pipeline = pipeline};
    struct step_list *list = &walk->lists[walk->made];
    int serial = -1;

    TRY(open_all_prices(walk, pipeline));
    walk->meetings = walk->sum_count = 0;
    known_clear(&walk->known);
    walk->travel = (struct expert_travel){.machine = walk->cost->machine};
    memset(walk->rows, 0, sizeof walk->rows);
    TRY(list_make(list, &(struct list_request){
        .pipeline = pipeline, .room = &walk->room}));
    TRY(timed_reserve(&walk->steps.lists.lists[walk->made], list->count,
                      list->need_count + list->count + list->count / 4));
    for (int i = 0; i < list->count; i++) TRY(add_one(&c, list, i, &serial));
    for (int i = 0; i < list->count; i++) give_turn(walk, list, i);
    walk->made++;
    return OK;
}

void list_clock_free(struct list_clock *walk)
{
    for (int r = 0; r < walk->ranks && walk->lists != NULL; r++)
        list_free(&walk->lists[r]);
    memory_free(walk->lists);
    for (int i = 0; i < walk->price_count; i++)
        memory_free(walk->prices[i].items);
    memory_free(walk->prices);
    memory_free(walk->priced);
    list_room_free(&walk->room);
    known_free(&walk->known);
    steps_free(&walk->steps);
    *walk = (struct list_clock){0};
}
