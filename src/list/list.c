/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - the list of a step: its passes, in order. */
#include "list/list.h"

#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "list/passes.h"

const struct list_pass list_passes[] = {
    {"compute", "F, B and W of the schedule", pass_compute, NULL},
    {"transfers", "messages between stages", pass_transfers, NULL},
    {"samples", "sequences into frames", pass_samples, NULL},
    {"beside", "actions of one bundle side by side", pass_beside,
     pass_beside_idle},
    {"gathers", "divided weights", pass_gathers, pass_gathers_idle},
    {"reductions", "gradients over ranks", pass_reductions, NULL},
    {"tail", "from the loss to new weights", pass_tail, NULL},
    {"needs", "who waits for whom", pass_needs, NULL},
};
const int list_pass_count = sizeof list_passes / sizeof *list_passes;

struct instruction instruction_of(enum instruction_kind kind)
{
    const struct instruction_row *row = &instruction_rows[kind];

    return (struct instruction){
        .kind = (uint8_t)kind, .resource = (uint8_t)row->resource,
        .stage = -1, .chunk = -1, .microbatch = -1, .unit = -1, .item = -1,
        .buffer = -1, .other = -1, .peer = -1, .handle = -1};
}

status list_put(struct step_list *list, struct instruction instruction)
{
    void *items = list->items;

    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 256;

        CHECK(capacity < 1 << 28);
        TRY(memory_grow(&items, (size_t)capacity, sizeof *list->items));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = instruction;
    return OK;
}

void list_free(struct step_list *list)
{
    memory_free(list->items);
    memory_free(list->needs);
    *list = (struct step_list){0};
}

/* The number of the last pass that is asked for. */
static status find_last(const char *after, int *last)
{
    const char *names[sizeof list_passes / sizeof *list_passes];
    const char *near;

    *last = list_pass_count - 1;
    if (after == NULL) return OK;
    for (int i = 0; i < list_pass_count; i++) {
        names[i] = list_passes[i].name;
        *last = i;
        if (strcmp(names[i], after) == 0) return OK;
    }
    near = text_nearest(after, names, list_pass_count);
    FAIL(ERR_USAGE, "no pass %s makes the list of a step%s%s", after,
         near ? "; nearest: " : "", near ? near : "");
}

void list_room_free(struct list_room *room)
{
    for (int i = 0; i < 2; i++) memory_free(room->items[i]);
    *room = (struct list_room){0};
}

static void put_back(struct list_room *room, int which, struct step_list *list)
{
    room->items[which] = list->items;
    room->capacity[which] = list->capacity;
    list->items = NULL;
    list->count = list->capacity = 0;
}

/* As large as it must be; the memory in which it was made stays in the room. */
static status take_out(struct step_list *list, struct list_room *room)
{
    const int count = list->count;
    void *memory = NULL;

    put_back(room, 0, list);
    TRY(memory_take((size_t)count + 1, sizeof *list->items, &memory));
    memcpy(memory, room->items[0], (size_t)count * sizeof *list->items);
    list->items = memory;
    list->count = count;
    list->capacity = count + 1;
    return OK;
}

/* Each pass fills the memory of the pass before the one before it. */
static status run_passes(struct step_list *out, struct step_list *before,
                         const struct list_request *request, int last)
{
    const struct step_list empty = {.forward = out->forward,
                                    .rank = out->rank};
    status result = OK;

    for (int i = 0; i <= last && result == OK; i++) {
        const struct step_list spare = *before;

        if (list_passes[i].idle != NULL && list_passes[i].idle(request))
            continue;
        *before = *out;
        *out = empty;
        out->items = spare.items;
        out->capacity = spare.capacity;
        result = list_passes[i].run(out, before, request);
    }
    return result;
}

status list_make(struct step_list *out, const struct list_request *request)
{
    struct list_room own = {.items = {NULL}};
    struct list_room *room = request->room != NULL ? request->room : &own;
    struct step_list before = {.items = room->items[1],
                               .capacity = room->capacity[1]};
    status result;
    int last;

    *out = (struct step_list){.forward = request->turns > 0,
                              .rank = request->pipeline->rank};
    TRY(find_last(request->after, &last));
    out->items = room->items[0];
    out->capacity = room->capacity[0];
    result = run_passes(out, &before, request, last);
    put_back(room, 1, &before);
    if (request->room != NULL && result == OK) result = take_out(out, room);
    else if (request->room != NULL) put_back(room, 0, out);
    else list_room_free(&own);
    if (result != OK) list_free(out);
    return result;
}
