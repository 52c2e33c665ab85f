/* SPDX-License-Identifier: Apache-2.0 */
/* list_offload.c - adds transfers between device and host memory to the lists
 * of a step. */
#include "planner/list_offload.h"

#include "base/arena.h"
#include "planner/memory.h"
#include "planner/step_tail.h"

/* An F, B or W of a micro-batch: gathers and reductions cut it in parts, and
 * those of two passes may alternate. */
struct offload_pass {
    enum step_item item;   /* ITEM_F, ITEM_B (with W or without) or ITEM_W */
    int stage, microbatch;
    int before, first, last, after; /* computed items; -1: none */
};

enum { PASSES_OPEN = 3, /* that may alternate */
       OFFLOAD_NEEDS = 2, QUEUED_EACH = 4 };
struct offload_item {
    double seconds;
    int32_t stage, microbatch;
    int32_t needs[OFFLOAD_NEEDS]; /* items of the rank; -1: none */
    int32_t with;                 /* item whose needs it has, too; -1: none */
};

struct offload_queue {
    struct steps *steps;
    const struct cost *cost;
    const struct timed_list *list;
    struct offload_pass *passes; /* owned */
    int pass_count;
    int updates[2];              /* the first item and the last; -1: none */
    struct offload_item *items;  /* owned */
    int count;
    int32_t *left;               /* owned, [pass_count]: item with which the
                                  * activations of an F are away */
    int32_t *awaits;             /* owned, [list->count]: item of the queue that
                                  * must be done first; -1: none */
    double rate;                 /* bytes/s */
};

static bool keeps(const struct offload_queue *queue, enum offload what)
{
    return (queue->cost->layout->offload & what) != 0;
}

/* ---- passes of the list ---- */

/* The pass that it is a part of; STEP_ITEMS: of none. */
static enum step_item pass_of(const struct offload_queue *queue, int number)
{
    const struct timed *i = &queue->list->items[number];
    const enum step_item item = queue->steps->items[i->kind];

    if (i->resource != CLOCK_COMPUTE || i->stage < 0) return STEP_ITEMS;
    if (item == ITEM_BACKWARD) return ITEM_B;
    return item == ITEM_F || item == ITEM_B || item == ITEM_W ? item
                                                              : STEP_ITEMS;
}

static void note_pass(struct offload_queue *queue, int number, int before)
{
    const struct timed *i = &queue->list->items[number];
    const enum step_item item = pass_of(queue, number);

    struct offload_pass *mine = NULL;

    for (int k = 1; k <= PASSES_OPEN && k <= queue->pass_count; k++) {
        struct offload_pass *open = &queue->passes[queue->pass_count - k];

        if (open->last == before) open->after = number;
        if (open->item == item && open->stage == i->stage &&
            open->microbatch == i->microbatch)
            mine = open;
    }
    if (mine == NULL) {
        mine = &queue->passes[queue->pass_count++];
        *mine = (struct offload_pass){item, i->stage, i->microbatch, before,
                                      number, number, -1};
    }
    mine->last = number;
    mine->after = -1;
}

static status take_room(struct offload_queue *queue)
{
    const size_t count = (size_t)queue->list->count + 1;
    void *memory = NULL;

    TRY(memory_take(count, sizeof *queue->passes, &memory));
    queue->passes = memory;
    TRY(memory_take(QUEUED_EACH * count + 2, sizeof *queue->items, &memory));
    queue->items = memory;
    TRY(memory_take(count, sizeof *queue->left, &memory));
    queue->left = memory;
    TRY(memory_take(count, sizeof *queue->awaits, &memory));
    queue->awaits = memory;
    return OK;
}

static void find_passes(struct offload_queue *queue)
{
    int before = -1;

    queue->updates[0] = queue->updates[1] = -1;
    for (int i = 0; i < queue->list->count; i++) {
        queue->awaits[i] = -1;
        if (queue->steps->items[queue->list->items[i].kind] == ITEM_UPDATE) {
            if (queue->updates[0] < 0) queue->updates[0] = i;
            queue->updates[1] = i;
        }
        if (pass_of(queue, i) == STEP_ITEMS) continue;
        note_pass(queue, i, before);
        before = i;
    }
}

/* ---- the queue ---- */

/* Returns the number of the item in the list of the rank. */
static int32_t put(struct offload_queue *queue, double bytes,
                   const struct offload_pass *pass, int32_t first,
                   int32_t second)
{
    queue->items[queue->count] = (struct offload_item){
        bytes / queue->rate, pass->stage, pass->microbatch, {first, second},
        -1};
    return queue->list->count + queue->count++;
}

/* The queue makes one copy after the other: the last one is enough. */
static void await(struct offload_queue *queue, int number, int32_t item)
{
    if (number >= 0 && item > queue->awaits[number])
        queue->awaits[number] = item;
}

/* Bytes of the rank's shard, where ranks divide weights. */
static double weights_of(const struct offload_queue *queue, int stage)
{
    const struct layout *l = queue->cost->layout;
    const struct shape *s = queue->cost->shape;
    const double block = layout_block_dense(l, s) + layout_block_experts(l, s);
    double elements = block * layout_blocks(l, s, stage);

    if (!keeps(queue, OFFLOAD_WEIGHTS)) return 0;
    if (stage == 0) elements += s->outside.embedding / l->tensor;
    if (stage == l->pipe * l->chunks - 1)
        elements += s->outside.head / l->tensor;
    return elements * layout_held_bytes(l).weight / layout_division(l, 3);
}

static double activations_of(const struct offload_queue *queue, int stage)
{
    const struct layout *l = queue->cost->layout;
    const struct shape *s = queue->cost->shape;

    if (!keeps(queue, OFFLOAD_ACTIVATIONS)) return 0;
    return memory_block_activations(l, s) * layout_blocks(l, s, stage);
}

/* Bytes that a pass gets. */
static double comes(const struct offload_queue *queue,
                    const struct offload_pass *pass)
{
    if (pass->item == ITEM_W) return 0;
    return weights_of(queue, pass->stage) +
           (pass->item == ITEM_B ? activations_of(queue, pass->stage) : 0);
}

/* Bytes that a pass leaves behind. */
static double leaves(const struct offload_queue *queue,
                     const struct offload_pass *pass)
{
    return pass->item == ITEM_F ? activations_of(queue, pass->stage) : 0;
}

/* One block's part of a stage. */
static double one_of(const struct offload_queue *queue, int stage)
{
    const int blocks = layout_blocks(queue->cost->layout, queue->cost->shape,
                                     stage);

    return blocks > 1 ? 1.0 / blocks : 1;
}

/* The item with which the activations of this B went away. */
static int32_t left_by(const struct offload_queue *queue, int pass)
{
    const struct offload_pass *b = &queue->passes[pass];

    for (int i = pass - 1; i >= 0; i--)
        if (queue->passes[i].item == ITEM_F &&
            queue->passes[i].stage == b->stage &&
            queue->passes[i].microbatch == b->microbatch)
            return queue->left[i];
    return -1;
}

/* A pass gets its first block while the one before it is computed. */
static void add_first(struct offload_queue *queue, int number)
{
    const struct offload_pass *pass = &queue->passes[number];
    const int ahead = number > 1 ? pass[-2].last : -1;
    const double bytes = comes(queue, pass);

    if (bytes <= 0) return;
    await(queue, pass->first,
          put(queue, bytes * one_of(queue, pass->stage), pass,
              ahead < pass->first ? ahead : -1,
              pass->item == ITEM_B ? left_by(queue, number) : -1));
}

/* The other blocks come and leave beside it; what follows waits for them. */
static void add_others(struct offload_queue *queue, int number)
{
    const struct offload_pass *pass = &queue->passes[number];
    const double others = 1 - one_of(queue, pass->stage);
    const double bytes = (comes(queue, pass) + leaves(queue, pass)) * others;

    if (bytes <= 0) return;
    await(queue, pass->after >= 0 ? pass->after : queue->updates[0],
          put(queue, bytes, pass, pass->before, -1));
    queue->items[queue->count - 1].with = pass->first;
}

/* The last block of an F leaves; a B that follows its F waits for that. */
static void add_pass(struct offload_queue *queue, int number)
{
    const struct offload_pass *pass = &queue->passes[number];
    const bool last = number + 1 == queue->pass_count;
    const bool turns = !last && pass->item == ITEM_F &&
                       pass[1].item == ITEM_B &&
                       pass[1].stage == pass->stage &&
                       pass[1].microbatch == pass->microbatch;
    const double bytes = leaves(queue, pass) * one_of(queue, pass->stage);

    queue->left[number] = -1;
    add_others(queue, number);
    if (!last && !turns) add_first(queue, number + 1);
    if (bytes > 0)
        queue->left[number] = put(queue, bytes, pass, pass->last, -1);
    if (turns) add_first(queue, number + 1);
}

/* Bytes that come before the update and go after it: states with their
 * masters, and weights, which come where they are the masters or a part of
 * them. */
static void update_bytes(const struct offload_queue *queue, int rank,
                         double bytes[2])
{
    const struct layout *l = queue->cost->layout;
    const struct held_bytes held = layout_held_bytes(l);
    const double mine = tail_states(queue->cost, rank);
    const bool joined = held.master <= 0 || l->stored.split_masters;

    bytes[0] = bytes[1] = 0;
    if (keeps(queue, OFFLOAD_STATES))
        bytes[0] = bytes[1] = mine * (held.master + held.states);
    if (!keeps(queue, OFFLOAD_WEIGHTS)) return;
    if (joined) bytes[0] += mine * held.weight;
    bytes[1] += held.weight * tail_parameters(queue->cost, rank) /
                layout_division(l, 3);
}

static void add_update(struct offload_queue *queue, int rank)
{
    const struct offload_pass none = {.stage = -1, .microbatch = -1};
    const int32_t done = queue->pass_count > 0
                             ? queue->passes[queue->pass_count - 1].last : -1;
    double bytes[2];

    if (queue->updates[0] < 0) return;
    update_bytes(queue, rank, bytes);
    if (bytes[0] > 0)
        await(queue, queue->updates[0],
              put(queue, bytes[0], &none, done, -1));
    if (bytes[1] > 0) put(queue, bytes[1], &none, queue->updates[1], -1);
}

static void fill(struct offload_queue *queue, int rank)
{
    find_passes(queue);
    if (queue->pass_count > 0) add_first(queue, 0);
    for (int i = 0; i < queue->pass_count; i++) add_pass(queue, i);
    add_update(queue, rank);
}

/* ---- the list with it ---- */

static status copy_needs(const struct timed_list *from, int number,
                         struct timed_list *out)
{
    const struct timed *item = &from->items[number];

    for (int n = 0; n < item->needs; n++) {
        const struct timed_need need = from->needs[item->first_need + n];

        TRY(timed_need(out, need.rank, need.index));
    }
    return OK;
}

static status copy_item(const struct offload_queue *queue, int rank, int number,
                        struct timed_list *out)
{
    int32_t at;

    TRY(timed_add(out, &queue->list->items[number], &at));
    TRY(copy_needs(queue->list, number, out));
    return queue->awaits[number] < 0
               ? OK
               : timed_need(out, rank, queue->awaits[number]);
}

static status append(const struct offload_queue *queue, int rank, int kind,
                     struct timed_list *out)
{
    for (int i = 0; i < queue->count; i++) {
        const struct offload_item *from = &queue->items[i];
        const struct timed item = {
            .resource = CLOCK_OFFLOAD, .cause = CAUSE_OFFLOAD,
            .stage = from->stage, .microbatch = from->microbatch, .kind = kind,
            .number = -1, .seconds = from->seconds};
        int32_t at;

        TRY(timed_add(out, &item, &at));
        for (int n = 0; n < OFFLOAD_NEEDS; n++)
            if (from->needs[n] >= 0) TRY(timed_need(out, rank, from->needs[n]));
        if (from->with >= 0) TRY(copy_needs(queue->list, from->with, out));
    }
    return OK;
}

static status join(const struct offload_queue *queue, int rank)
{
    struct timed_list *const list = &queue->steps->lists.lists[rank];
    struct timed_list out = {.count = 0};
    const enum constant path = cost_offload_path(queue->cost->layout);
    struct spent span = {.seconds[CAUSE_OFFLOAD] = 1};
    status result;
    int kind;

    if (queue->cost->machine->mark[path] == MARK_ASSUMED)
        span.guessed = 1;
    TRY(steps_kind(queue->steps, &span, ITEM_OFFLOAD, &kind));
    TRY_GOTO(failed, result,
             timed_reserve(&out, list->count + queue->count,
                           list->need_count + QUEUED_EACH * queue->count));
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(failed, result, copy_item(queue, rank, i, &out));
    TRY_GOTO(failed, result, append(queue, rank, kind, &out));
    out.turns = list->turns;
    memory_free(list->items);
    memory_free(list->needs);
    *list = out;
    return OK;
failed:
    memory_free(out.items);
    memory_free(out.needs);
    return result;
}

static status add_queue(struct steps *steps, const struct cost *cost, int rank)
{
    struct offload_queue queue = {
        .steps = steps, .cost = cost, .list = &steps->lists.lists[rank],
        .rate = cost->machine->value[cost_offload_path(cost->layout)]};
    status result = take_room(&queue);

    if (result == OK) fill(&queue, rank);
    if (result == OK) result = join(&queue, rank);
    memory_free(queue.passes);
    memory_free(queue.items);
    memory_free(queue.left);
    memory_free(queue.awaits);
    return result;
}

status list_offload(struct steps *steps, const struct cost *cost)
{
    if (cost->layout->offload == 0) return OK;
    for (int rank = 0; rank < steps->lists.ranks; rank++)
        TRY(add_queue(steps, cost, rank));
    return OK;
}
