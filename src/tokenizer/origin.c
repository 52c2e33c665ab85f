/* SPDX-License-Identifier: Apache-2.0 */
/* origin.c - which bytes of the original text each byte of a rewritten one
 * stands for. */
#include "tokenizer/origin.h"

#include <string.h>
#include "base/arena.h"

static status reserve(struct origins *origins, size_t more)
{
    size_t capacity = origins->capacity;
    void *grown = origins->items;

    if (more <= capacity - origins->count) return OK;
    if (more > SIZE_MAX / 4 - origins->count)
        FAIL(ERR_MEMORY, "places of %zu more bytes do not fit in memory",
             more);
    capacity = capacity + capacity / 2 + 64;
    if (capacity < origins->count + more) capacity = origins->count + more;
    TRY(memory_grow(&grown, capacity, sizeof *origins->items));
    origins->items = grown;
    origins->capacity = capacity;
    return OK;
}

status origins_fill(struct origins *origins, size_t count,
                    struct origin origin)
{
    TRY(reserve(origins, count));
    for (size_t i = 0; i < count; i++)
        origins->items[origins->count++] = origin;
    return OK;
}

status origins_copy(struct origins *origins, const struct origin *from,
                    size_t count)
{
    TRY(reserve(origins, count));
    if (count > 0)
        memcpy(origins->items + origins->count, from, count * sizeof *from);
    origins->count += count;
    return OK;
}

/* Bytes of the character that text[0] begins. */
static size_t character(const char *text)
{
    const unsigned char first = (unsigned char)text[0];

    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

status origins_begin(struct origins *origins, const char *text, size_t length,
                     size_t base)
{
    TRY(reserve(origins, length));
    for (size_t at = 0; at < length;) {
        const size_t size = character(text + at);

        TRY(origins_fill(origins, size,
                         (struct origin){(uint32_t)(base + at),
                                         (uint32_t)(base + at + size)}));
        at += size;
    }
    return OK;
}

void origins_cut(struct origins *origins, size_t start, size_t stop)
{
    if (origins->count == 0) return;
    memmove(origins->items, origins->items + start,
            (stop - start) * sizeof *origins->items);
    origins->count = stop - start;
}

void origins_free(struct origins *origins)
{
    memory_free(origins->items);
    *origins = (struct origins){0};
}

/* One character of the text before is done with. */
static void pass(struct realign *realign)
{
    if (realign->at < realign->length)
        realign->at += character(realign->text + realign->at);
}

status realign_end(struct realign *realign)
{
    size_t at = realign->at;
    struct origin origin = {realign->base, realign->base};

    if (realign->size == 0) return OK;
    if (realign->change > 0) {
        if (at > 0) origin = realign->from[at - 1];
    } else {
        if (at == realign->length && at > 0) at--;
        if (realign->length > 0) origin = realign->from[at];
        for (int i = 0; i <= -realign->change && realign->at < realign->length;
             i++)
            pass(realign);
    }
    TRY(origins_fill(realign->out, (size_t)realign->size, origin));
    realign->size = 0;
    return OK;
}

status realign_put(struct realign *realign, int size, int change)
{
    TRY(realign_end(realign));
    realign->size = size;
    realign->change = change;
    return OK;
}

void realign_swallow(struct realign *realign, int count)
{
    if (realign->size > 0) realign->change -= count;
}
