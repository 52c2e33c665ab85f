/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - the list of a step: its passes, in order. */
#include "list/list.h"

#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "list/passes.h"

const struct list_pass list_passes[] = {
    {"compute", "F, B and W of the schedule", pass_compute},
    {"transfers", "messages between stages", pass_transfers},
    {"samples", "sequences into frames", pass_samples},
    {"beside", "actions of one bundle side by side", pass_beside},
    {"gathers", "divided weights", pass_gathers},
    {"reductions", "gradients over ranks", pass_reductions},
    {"tail", "from the loss to new weights", pass_tail},
    {"needs", "who waits for whom", pass_needs},
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

/* Each pass fills the memory of the pass before the one before it. */
status list_make(struct step_list *out, const struct list_request *request)
{
    const struct step_list empty = {
        .forward = request->turns > 0, .rank = request->pipeline->rank};
    struct step_list before = empty;
    status result = OK;
    int last;

    *out = empty;
    TRY(find_last(request->after, &last));
    for (int i = 0; i <= last && result == OK; i++) {
        const struct step_list spare = before;

        before = *out;
        *out = empty;
        out->items = spare.items;
        out->capacity = spare.capacity;
        result = list_passes[i].run(out, &before, request);
    }
    list_free(&before);
    if (result != OK) list_free(out);
    return result;
}
