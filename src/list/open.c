/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - instructions in the background that nobody has waited for yet. */
#include "list/open.h"

#include <string.h>

#include "base/arena.h"

static status add_access(void *argument, const struct access *access)
{
    struct open_item *item = argument;

    CHECK(item->count < OPEN_ACCESSES_MAX);
    item->accesses[item->count++] = *access;
    return OK;
}

static status take(struct open_set *open, int handle)
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

status open_add(struct open_set *open, int number,
                const struct instruction *instruction, int handle)
{
    struct open_item *item;
    void *items = open->items;

    TRY(take(open, handle));
    if (open->count == open->capacity) {
        const int capacity = open->capacity ? 2 * open->capacity : 16;

        TRY(memory_grow(&items, (size_t)capacity, sizeof *open->items));
        open->items = items;
        open->capacity = capacity;
    }
    item = &open->items[open->count++];
    *item = (struct open_item){.number = number, .handle = handle};
    return list_accesses(open->pipeline, open->forward, instruction,
                         add_access, item);
}

void open_touch(struct open_set *open, const struct access *access)
{
    for (int i = 0; i < open->count; i++) {
        struct open_item *item = &open->items[i];

        for (int j = 0; j < item->count && !item->touched; j++)
            item->touched = access_conflicts(&item->accesses[j], access);
    }
}

void open_close(struct open_set *open, int index)
{
    const int handle = open->items[index].handle;

    open->taken[handle] = false;
    if (handle < open->lowest) open->lowest = handle;
    open->count--;
    memmove(&open->items[index], &open->items[index + 1],
            (size_t)(open->count - index) * sizeof *open->items);
}

int open_handle(const struct open_set *open)
{
    return open->lowest;
}

void open_free(struct open_set *open)
{
    memory_free(open->items);
    memory_free(open->taken);
    *open = (struct open_set){0};
}
