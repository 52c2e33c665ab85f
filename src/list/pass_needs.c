/* SPDX-License-Identifier: Apache-2.0 */
/* pass_needs.c - the waits. An instruction needs each background instruction
 * whose memory it reads or writes (list/access.h) and for which no earlier one
 * has waited. Instructions after the update need all of them. */
#include "list/passes.h"
#include "list/pending.h"

#include "base/arena.h"

static status touch(void *argument, const struct access *access)
{
    pending_touch(argument, access);
    return OK;
}

static status put_need(struct step_list *list, struct instruction *i,
                       int number)
{
    void *needs = list->needs;

    if (list->need_count == list->need_capacity) {
        const int capacity =
            list->need_capacity ? 2 * list->need_capacity : 64;

        TRY(memory_grow(&needs, (size_t)capacity, sizeof *list->needs));
        list->needs = needs;
        list->need_capacity = capacity;
    }
    list->needs[list->need_count++] = number;
    i->needs++;
    return OK;
}

/* Needs of one instruction, which end here. */
static status find_needs(struct step_list *out, struct pending_set *open,
                         struct instruction *i)
{
    /* Watchers read weights when the update is over; the next batch comes until
     * the end. */
    const bool asks = i->kind == DO_ASK, ends = i->kind == DO_END;

    i->first_need = out->need_count;
    TRY(list_accesses_to(open->spaces, open->pipeline, open->forward, i, touch,
                         open));
    for (int j = asks || ends ? 0 : open->first_touched;
         j < open->count && (open->touched > 0 || asks || ends);) {
        const struct pending_item *item = &open->items[j];
        const bool of_host = out->items[item->number].resource == RESOURCE_HOST;

        if (!item->touched && !ends && (!asks || of_host)) {
            j++;
            continue;
        }
        TRY(put_need(out, i, item->number));
        if (ends) j++;
        else pending_close(open, j);
    }
    if (ends) pending_clear(open);
    return OK;
}

static status put_all(struct step_list *out, const struct step_list *before,
                      struct pending_set *open)
{
    for (int number = 0; number < before->count; number++) {
        struct instruction i = before->items[number];

        TRY(find_needs(out, open, &i));
        if (instruction_rows[i.kind].background) {
            i.handle = pending_handle(open);
            if (i.handle >= out->handles) out->handles = i.handle + 1;
            TRY(pending_add(open, number, &i, i.handle));
        }
        TRY(list_put(out, i));
    }
    return OK;
}

status pass_needs(struct step_list *out, const struct step_list *before,
                  const struct list_request *request)
{
    struct pending_set open = {.pipeline = request->pipeline,
                               .forward = request->turns > 0};
    const status result = put_all(out, before, &open);

    pending_free(&open);
    return result;
}
