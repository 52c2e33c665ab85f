/* SPDX-License-Identifier: Apache-2.0 */
/* list_offload.c - a lane for what comes from the host and goes back. */
#include "planner/list_offload.h"

#include "base/arena.h"
#include "planner/memory.h"
#include "planner/step_tail.h"

/* An F, B or W of a micro-batch: gathers and reductions cut it in parts. */
struct lane_pass {
    enum instruction_kind kind;
    int stage, microbatch, first, last;
};

enum { LANE_NEEDS = 2 };
struct lane_item {
    double seconds;
    int32_t stage, microbatch;
    int32_t needs[LANE_NEEDS]; /* items of the rank; -1: none */
};

struct lane {
    const struct cost *cost;
    const struct step_list *list;
    struct lane_pass *passes;     /* owned */
    int pass_count;
    struct lane_item *items; /* owned */
    int count;
    int32_t *awaits;         /* owned, [list->count]: item of the lane that must
                              * be done first; -1: none */
    double rate;             /* bytes/s */
};

static bool keeps(const struct lane *lane, enum offload what)
{
    return (lane->cost->layout->offload & what) != 0;
}

/* ---- passes of the list ---- */

static void note_pass(struct lane *lane, int number)
{
    const struct instruction *i = &lane->list->items[number];
    struct lane_pass *last = lane->passes + lane->pass_count - 1;

    if (lane->pass_count > 0 && last->kind == i->kind &&
        last->stage == i->stage && last->microbatch == i->microbatch) {
        last->last = number;
        return;
    }
    lane->passes[lane->pass_count++] = (struct lane_pass){
        i->kind, i->stage, i->microbatch, number, number};
}

static status take_room(struct lane *lane)
{
    const size_t count = (size_t)lane->list->count + 1;
    void *memory = NULL;

    TRY(memory_take(count, sizeof *lane->passes, &memory));
    lane->passes = memory;
    TRY(memory_take(3 * count + 2, sizeof *lane->items, &memory));
    lane->items = memory;
    TRY(memory_take(count, sizeof *lane->awaits, &memory));
    lane->awaits = memory;
    for (int i = 0; i < lane->list->count; i++) {
        lane->awaits[i] = -1;
        if (instruction_computes(&lane->list->items[i])) note_pass(lane, i);
    }
    return OK;
}

/* ---- the lane ---- */

/* Returns the number of the item in the list of the rank. */
static int32_t put(struct lane *lane, double bytes,
                   const struct lane_pass *pass, int32_t first, int32_t second)
{
    lane->items[lane->count] = (struct lane_item){
        bytes / lane->rate, pass->stage, pass->microbatch, {first, second}};
    return lane->list->count + lane->count++;
}

static double weights_of(const struct lane *lane, int stage)
{
    const struct layout *l = lane->cost->layout;
    const struct shape *s = lane->cost->shape;
    const double block = layout_block_dense(l, s) + layout_block_experts(l, s);
    double elements = block * layout_blocks(l, s, stage);

    if (stage == 0) elements += s->outside.embedding / l->tensor;
    if (stage == l->pipe * l->chunks - 1)
        elements += s->outside.head / l->tensor;
    return elements * (l->bits == 32 ? 4 : 2);
}

static double activations_of(const struct lane *lane, int stage)
{
    const struct layout *l = lane->cost->layout;
    const struct shape *s = lane->cost->shape;

    return memory_block_activations(l, s) * layout_blocks(l, s, stage);
}

/* The item that brought the activations of this B away. */
static int32_t left_by(const struct lane *lane, const int32_t *away, int pass)
{
    const struct lane_pass *b = &lane->passes[pass];

    for (int i = pass - 1; i >= 0; i--)
        if (lane->passes[i].kind == DO_FORWARD &&
            lane->passes[i].stage == b->stage &&
            lane->passes[i].microbatch == b->microbatch)
            return away[i];
    return -1;
}

/* A pass gets what it needs while the one before it is computed. */
static void add_fetches(struct lane *lane, const int32_t *away, int number)
{
    const struct lane_pass *pass = &lane->passes[number];
    const int32_t ahead = number > 1 ? lane->passes[number - 2].last : -1;

    if (pass->kind == DO_WEIGHT) return;
    if (keeps(lane, OFFLOAD_WEIGHTS))
        lane->awaits[pass->first] =
            put(lane, weights_of(lane, pass->stage), pass, ahead, -1);
    if (keeps(lane, OFFLOAD_ACTIVATIONS) && pass->kind == DO_BACKWARD)
        lane->awaits[pass->first] =
            put(lane, activations_of(lane, pass->stage), pass, ahead,
                left_by(lane, away, number));
}

/* Activations of an F leave; a B that follows its F waits for that. */
static void add_pass(struct lane *lane, int32_t *away, int number)
{
    const struct lane_pass *pass = &lane->passes[number];
    const bool last = number + 1 == lane->pass_count;
    const bool turns = !last && pass->kind == DO_FORWARD &&
                       pass[1].kind == DO_BACKWARD &&
                       pass[1].stage == pass->stage &&
                       pass[1].microbatch == pass->microbatch;
    const bool leaves = keeps(lane, OFFLOAD_ACTIVATIONS) &&
                        pass->kind == DO_FORWARD;

    away[number] = -1;
    if (!last && !turns) add_fetches(lane, away, number + 1);
    if (leaves)
        away[number] = put(lane, activations_of(lane, pass->stage), pass,
                           pass->last, -1);
    if (turns) add_fetches(lane, away, number + 1);
}

/* Half of the states' bytes before the first update, half after the last. */
static void add_states(struct lane *lane, int rank)
{
    const double bytes = 12 * tail_states(lane->cost, rank);
    const struct lane_pass none = {.stage = -1, .microbatch = -1};
    const int32_t done = lane->pass_count > 0
                             ? lane->passes[lane->pass_count - 1].last : -1;
    int first = -1, last = -1;

    for (int i = 0; i < lane->list->count; i++)
        if (lane->list->items[i].kind == DO_UPDATE) {
            if (first < 0) first = i;
            last = i;
        }
    if (first < 0) return;
    lane->awaits[first] = put(lane, bytes, &none, done, -1);
    put(lane, bytes, &none, last, -1);
}

static status fill(struct lane *lane, int rank)
{
    void *away = NULL;

    TRY(memory_take((size_t)lane->pass_count + 1, sizeof(int32_t), &away));
    if (lane->pass_count > 0) add_fetches(lane, away, 0);
    for (int i = 0; i < lane->pass_count; i++) add_pass(lane, away, i);
    if (keeps(lane, OFFLOAD_STATES | OFFLOAD_WEIGHTS)) add_states(lane, rank);
    memory_free(away);
    return OK;
}

/* ---- the list with it ---- */

static status copy_item(const struct lane *lane, const struct timed_list *from,
                        int rank, int number, struct timed_list *out)
{
    const struct timed *item = &from->items[number];
    int32_t at;

    TRY(timed_add(out, item, &at));
    for (int n = 0; n < item->needs; n++) {
        const struct timed_need need = from->needs[item->first_need + n];

        TRY(timed_need(out, need.rank, need.index));
    }
    return lane->awaits[number] < 0 ? OK
                                    : timed_need(out, rank,
                                                 lane->awaits[number]);
}

static status append(const struct lane *lane, int rank, int kind,
                     struct timed_list *out)
{
    for (int i = 0; i < lane->count; i++) {
        const struct lane_item *from = &lane->items[i];
        const struct timed item = {
            .resource = CLOCK_OFFLOAD, .cause = CAUSE_OFFLOAD,
            .stage = from->stage, .microbatch = from->microbatch, .kind = kind,
            .number = -1, .seconds = from->seconds};
        int32_t at;

        TRY(timed_add(out, &item, &at));
        for (int n = 0; n < LANE_NEEDS; n++)
            if (from->needs[n] >= 0) TRY(timed_need(out, rank, from->needs[n]));
    }
    return OK;
}

static status join(struct steps *steps, const struct lane *lane, int rank)
{
    struct timed_list *const list = &steps->lists.lists[rank];
    struct timed_list out = {.count = 0};
    const struct machine *m = lane->cost->machine;
    const bool disk = keeps(lane, OFFLOAD_DISK);
    struct spent span = {.seconds[CAUSE_OFFLOAD] = 1};
    status result;
    int kind;

    if (m->mark[disk ? M_DISK_RATE : M_HOST_RATE] == MARK_ASSUMED)
        span.guessed = 1;
    TRY(steps_kind(steps, &span, ITEM_OFFLOAD, &kind));
    TRY_GOTO(failed, result,
             timed_reserve(&out, list->count + lane->count,
                           list->need_count + 3 * lane->count));
    for (int i = 0; i < list->count; i++)
        TRY_GOTO(failed, result, copy_item(lane, list, rank, i, &out));
    TRY_GOTO(failed, result, append(lane, rank, kind, &out));
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
    const bool disk = (cost->layout->offload & OFFLOAD_DISK) != 0;
    struct lane lane = {
        .cost = cost, .list = list,
        .rate = cost->machine->value[disk ? M_DISK_RATE : M_HOST_RATE]};
    status result;

    if (cost->layout->offload == 0) return OK;
    CHECK(steps->lists.lists[rank].count == list->count);
    result = take_room(&lane);
    if (result == OK) result = fill(&lane, rank);
    if (result == OK) result = join(steps, &lane, rank);
    memory_free(lane.passes);
    memory_free(lane.items);
    memory_free(lane.awaits);
    return result;
}
