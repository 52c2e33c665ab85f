/* SPDX-License-Identifier: Apache-2.0 */
/* list_offload.c - adds transfers between device and host memory to the list of
 * a rank. */
#include "planner/list_offload.h"

#include "base/arena.h"
#include "planner/memory.h"
#include "planner/step_tail.h"

/* An F, B or W of a micro-batch: gathers and reductions cut it in parts. */
struct offload_pass {
    enum instruction_kind kind;
    int stage, microbatch, first, last;
};

enum { OFFLOAD_NEEDS = 2 };
struct offload_item {
    double seconds;
    int32_t stage, microbatch;
    int32_t needs[OFFLOAD_NEEDS]; /* items of the rank; -1: none */
};

struct offload_queue {
    const struct cost *cost;
    const struct step_list *list;
    struct offload_pass *passes; /* owned */
    int pass_count;
    struct offload_item *items;  /* owned */
    int count;
    int32_t *awaits;             /* owned, [list->count]: item of the queue that
                                  * must be done first; -1: none */
    double rate;                 /* bytes/s */
};

static bool keeps(const struct offload_queue *queue, enum offload what)
{
    return (queue->cost->layout->offload & what) != 0;
}

/* ---- passes of the list ---- */

static void note_pass(struct offload_queue *queue, int number)
{
    const struct instruction *i = &queue->list->items[number];
    struct offload_pass *last = queue->passes + queue->pass_count - 1;

    if (queue->pass_count > 0 && last->kind == i->kind &&
        last->stage == i->stage && last->microbatch == i->microbatch) {
        last->last = number;
        return;
    }
    queue->passes[queue->pass_count++] = (struct offload_pass){
        i->kind, i->stage, i->microbatch, number, number};
}

static status take_room(struct offload_queue *queue)
{
    const size_t count = (size_t)queue->list->count + 1;
    void *memory = NULL;

    TRY(memory_take(count, sizeof *queue->passes, &memory));
    queue->passes = memory;
    TRY(memory_take(3 * count + 2, sizeof *queue->items, &memory));
    queue->items = memory;
    TRY(memory_take(count, sizeof *queue->awaits, &memory));
    queue->awaits = memory;
    for (int i = 0; i < queue->list->count; i++) {
        queue->awaits[i] = -1;
        if (instruction_computes(&queue->list->items[i])) note_pass(queue, i);
    }
    return OK;
}

/* ---- the queue ---- */

/* Returns the number of the item in the list of the rank. */
static int32_t put(struct offload_queue *queue, double bytes,
                   const struct offload_pass *pass, int32_t first,
                   int32_t second)
{
    queue->items[queue->count] = (struct offload_item){
        bytes / queue->rate, pass->stage, pass->microbatch, {first, second}};
    return queue->list->count + queue->count++;
}

static double weights_of(const struct offload_queue *queue, int stage)
{
    const struct layout *l = queue->cost->layout;
    const struct shape *s = queue->cost->shape;
    const double block = layout_block_dense(l, s) + layout_block_experts(l, s);
    double elements = block * layout_blocks(l, s, stage);

    if (stage == 0) elements += s->outside.embedding / l->tensor;
    if (stage == l->pipe * l->chunks - 1)
        elements += s->outside.head / l->tensor;
    return elements * (l->bits == 32 ? 4 : 2);
}

static double activations_of(const struct offload_queue *queue, int stage)
{
    const struct layout *l = queue->cost->layout;
    const struct shape *s = queue->cost->shape;

    return memory_block_activations(l, s) * layout_blocks(l, s, stage);
}

/* The item that brought the activations of this B away. */
static int32_t left_by(const struct offload_queue *queue, const int32_t *away,
                       int pass)
{
    const struct offload_pass *b = &queue->passes[pass];

    for (int i = pass - 1; i >= 0; i--)
        if (queue->passes[i].kind == DO_FORWARD &&
            queue->passes[i].stage == b->stage &&
            queue->passes[i].microbatch == b->microbatch)
            return away[i];
    return -1;
}

/* A pass gets what it needs while the one before it is computed. */
static void add_fetches(struct offload_queue *queue, const int32_t *away,
                        int number)
{
    const struct offload_pass *pass = &queue->passes[number];
    const int32_t ahead = number > 1 ? queue->passes[number - 2].last : -1;

    if (pass->kind == DO_WEIGHT) return;
    if (keeps(queue, OFFLOAD_WEIGHTS))
        queue->awaits[pass->first] =
            put(queue, weights_of(queue, pass->stage), pass, ahead, -1);
    if (keeps(queue, OFFLOAD_ACTIVATIONS) && pass->kind == DO_BACKWARD)
        queue->awaits[pass->first] =
            put(queue, activations_of(queue, pass->stage), pass, ahead,
                left_by(queue, away, number));
}

/* Activations of an F leave; a B that follows its F waits for that. */
static void add_pass(struct offload_queue *queue, int32_t *away, int number)
{
    const struct offload_pass *pass = &queue->passes[number];
    const bool last = number + 1 == queue->pass_count;
    const bool turns = !last && pass->kind == DO_FORWARD &&
                       pass[1].kind == DO_BACKWARD &&
                       pass[1].stage == pass->stage &&
                       pass[1].microbatch == pass->microbatch;
    const bool leaves = keeps(queue, OFFLOAD_ACTIVATIONS) &&
                        pass->kind == DO_FORWARD;

    away[number] = -1;
    if (!last && !turns) add_fetches(queue, away, number + 1);
    if (leaves)
        away[number] = put(queue, activations_of(queue, pass->stage), pass,
                           pass->last, -1);
    if (turns) add_fetches(queue, away, number + 1);
}

/* Half of the states' bytes before the first update, half after the last. */
static void add_states(struct offload_queue *queue, int rank)
{
    const double bytes = 12 * tail_states(queue->cost, rank);
    const struct offload_pass none = {.stage = -1, .microbatch = -1};
    const int32_t done = queue->pass_count > 0
                             ? queue->passes[queue->pass_count - 1].last : -1;
    int first = -1, last = -1;

    for (int i = 0; i < queue->list->count; i++)
        if (queue->list->items[i].kind == DO_UPDATE) {
            if (first < 0) first = i;
            last = i;
        }
    if (first < 0) return;
    queue->awaits[first] = put(queue, bytes, &none, done, -1);
    put(queue, bytes, &none, last, -1);
}

static status fill(struct offload_queue *queue, int rank)
{
    void *away = NULL;

    TRY(memory_take((size_t)queue->pass_count + 1, sizeof(int32_t), &away));
    if (queue->pass_count > 0) add_fetches(queue, away, 0);
    for (int i = 0; i < queue->pass_count; i++) add_pass(queue, away, i);
    if (keeps(queue, OFFLOAD_STATES | OFFLOAD_WEIGHTS)) add_states(queue, rank);
    memory_free(away);
    return OK;
}

/* ---- the list with it ---- */

static status copy_item(const struct offload_queue *queue,
                        const struct timed_list *from, int rank, int number,
                        struct timed_list *out)
{
    const struct timed *item = &from->items[number];
    int32_t at;

    TRY(timed_add(out, item, &at));
    for (int n = 0; n < item->needs; n++) {
        const struct timed_need need = from->needs[item->first_need + n];

        TRY(timed_need(out, need.rank, need.index));
    }
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
    }
    return OK;
}

static status join(struct steps *steps, const struct offload_queue *queue,
                   int rank)
{
    struct timed_list *const list = &steps->lists.lists[rank];
    struct timed_list out = {.count = 0};
    const enum constant path = cost_offload_path(queue->cost->layout);
    struct spent span = {.seconds[CAUSE_OFFLOAD] = 1};
    status result;
    int kind;

    if (queue->cost->machine->mark[path] == MARK_ASSUMED)
        span.guessed = 1;
    TRY(steps_kind(steps, &span, ITEM_OFFLOAD, &kind));
    TRY_GOTO(failed, result,
             timed_reserve(&out, list->count + queue->count,
                           list->need_count + 3 * queue->count));
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(failed, result, copy_item(queue, list, rank, i, &out));
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

status list_offload(struct steps *steps, const struct cost *cost,
                    const struct step_list *list, int rank)
{
    struct offload_queue queue = {
        .cost = cost, .list = list,
        .rate = cost->machine->value[cost_offload_path(cost->layout)]};
    status result;

    if (cost->layout->offload == 0) return OK;
    CHECK(steps->lists.lists[rank].count == list->count);
    result = take_room(&queue);
    if (result == OK) result = fill(&queue, rank);
    if (result == OK) result = join(steps, &queue, rank);
    memory_free(queue.passes);
    memory_free(queue.items);
    memory_free(queue.awaits);
    return result;
}
