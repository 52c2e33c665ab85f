/* SPDX-License-Identifier: Apache-2.0 */
/* pending.c - instructions in the background that nobody has waited for yet. */
#include "list/pending.h"

#include <string.h>

#include "base/arena.h"

struct adding { struct pending_set *open; struct pending_item *item; };

static status mark(struct pending_marks *to, const struct access *access,
                   int number)
{
    void *items = to->items;

    TRY(memory_next(&items, &to->capacity, to->count, 16, sizeof *to->items));
    to->items = items;
    to->items[to->count++] = (struct pending_mark){*access, number};
    return OK;
}

static status add_access(void *argument, const struct access *access)
{
    const struct adding *adding = argument;
    struct pending_item *item = adding->item;

    item->spaces |= 1u << access->space;
    adding->open->spaces |= 1u << access->space;
    return mark(&adding->open->marks[access->space], access, item->number);
}

static status take(struct pending_set *open, int handle)
{
    void *taken = open->taken;

    CHECK(handle >= 0);
    if (handle >= open->handles) {
        const int handles = 2 * handle + 16;

        TRY(memory_grow(&taken, (size_t)handles, sizeof *open->taken));
        open->taken = taken;
        memset(open->taken + open->handles, 0,
               (size_t)(handles - open->handles) * sizeof *open->taken);
        open->handles = handles;
    }
    open->taken[handle] = true;
    while (open->lowest < open->handles && open->taken[open->lowest])
        open->lowest++;
    return OK;
}

status pending_add(struct pending_set *open, int number,
                   const struct instruction *instruction, int handle)
{
    struct pending_item *item;
    void *items = open->items;

    TRY(take(open, handle));
    TRY(memory_next(&items, &open->capacity, open->count, 16,
                    sizeof *open->items));
    open->items = items;
    item = &open->items[open->count++];
    *item = (struct pending_item){.number = number, .handle = handle};
    return list_accesses(open->pipeline, open->forward, instruction,
                         add_access, &(struct adding){open, item});
}

static struct pending_item *item_of(struct pending_set *open, int number)
{
    int first = 0, last = open->count - 1;

    while (first < last) {
        const int middle = (first + last) / 2;

        if (open->items[middle].number < number) first = middle + 1;
        else last = middle;
    }
    return &open->items[first];
}

void pending_touch(struct pending_set *open, const struct access *access)
{
    const struct pending_marks *marks = &open->marks[access->space];

    for (int i = 0; i < marks->count; i++) {
        const struct pending_mark *m = &marks->items[i];
        struct pending_item *item;

        if (!access_conflicts(&m->access, access)) continue;
        item = item_of(open, m->number);
        if (open->touched == 0 || item - open->items < open->first_touched)
            open->first_touched = (int)(item - open->items);
        open->touched += !item->touched;
        item->touched = true;
    }
}

static void unmark(struct pending_set *open, int space, int number)
{
    struct pending_marks *marks = &open->marks[space];
    int kept = 0;

    for (int i = 0; i < marks->count; i++)
        if (marks->items[i].number != number)
            marks->items[kept++] = marks->items[i];
    marks->count = kept;
    if (kept == 0) open->spaces &= ~(1u << space);
}

void pending_close(struct pending_set *open, int index)
{
    const struct pending_item item = open->items[index];

    for (int i = 0; i < SPACE_COUNT; i++)
        if (item.spaces >> i & 1) unmark(open, i, item.number);
    open->touched -= item.touched;
    open->taken[item.handle] = false;
    if (item.handle < open->lowest) open->lowest = item.handle;
    open->count--;
    memmove(&open->items[index], &open->items[index + 1],
            (size_t)(open->count - index) * sizeof *open->items);
}

void pending_clear(struct pending_set *open)
{
    for (int i = 0; i < SPACE_COUNT; i++) open->marks[i].count = 0;
    for (int i = 0; i < open->count; i++)
        open->taken[open->items[i].handle] = false;
    open->count = open->touched = open->lowest = 0;
    open->spaces = 0;
}

int pending_handle(const struct pending_set *open)
{
    return open->lowest;
}

void pending_free(struct pending_set *open)
{
    for (int i = 0; i < SPACE_COUNT; i++) memory_free(open->marks[i].items);
    memory_free(open->items);
    memory_free(open->taken);
    *open = (struct pending_set){0};
}
