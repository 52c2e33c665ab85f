/* SPDX-License-Identifier: Apache-2.0 */
/* known_costs.c - a table of instructions by hash. */
#include "planner/known_costs.h"

#include <string.h>

#include "base/arena.h"

enum { FIRST = 1 << 10 };

static bool is_alike(const struct instruction *a, const struct instruction *b)
{
    return a->kind == b->kind && a->chunk == b->chunk &&
           a->first_event == b->first_event && a->last_event == b->last_event &&
           a->unit == b->unit && a->bytes == b->bytes && a->calls == b->calls;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct instruction *i, double seconds)
{
    uint64_t bits, hash;

    memcpy(&bits, &seconds, sizeof bits);
    hash = mix(i->kind, (uint64_t)(uint32_t)i->chunk);
    hash = mix(hash, (uint64_t)(uint32_t)i->first_event << 32 |
                         (uint32_t)i->last_event);
    hash = mix(hash, (uint64_t)(uint32_t)i->unit << 32 |
                         (uint32_t)i->calls);
    hash = mix(hash, (uint64_t)i->bytes);
    return mix(hash, bits);
}

/* Where it is, or would be. */
static size_t place_of(const struct known_costs *known,
                       const struct instruction *instruction, double seconds)
{
    size_t at = (size_t)hash_of(instruction, seconds) & (known->capacity - 1);

    for (;; at = (at + 1) & (known->capacity - 1)) {
        const struct known_cost *k = &known->items[at];

        if (k->instruction == NULL ||
            (k->seconds == seconds && is_alike(k->instruction, instruction)))
            return at;
    }
}

int known_find(const struct known_costs *known,
               const struct instruction *instruction, double seconds)
{
    if (known->count == 0) return -1;
    const struct known_cost *found =
        &known->items[place_of(known, instruction, seconds)];

    return found->instruction == NULL ? -1 : found->kind;
}

static status grow(struct known_costs *known)
{
    struct known_costs larger = {
        .capacity = known->capacity > 0 ? 2 * known->capacity : FIRST};
    void *memory = NULL;

    TRY(memory_take(larger.capacity, sizeof *larger.items, &memory));
    larger.items = memory;
    for (size_t i = 0; i < known->capacity; i++)
        if (known->items[i].instruction != NULL)
            TRY(known_put(&larger, &known->items[i]));
    memory_free(known->items);
    *known = larger;
    return OK;
}

status known_put(struct known_costs *known, const struct known_cost *cost)
{
    if (2 * known->count >= known->capacity) TRY(grow(known));
    struct known_cost *at =
        &known->items[place_of(known, cost->instruction, cost->seconds)];

    known->count += at->instruction == NULL;
    *at = *cost;
    return OK;
}

void known_clear(struct known_costs *known)
{
    if (known->count > 0)
        memset(known->items, 0, known->capacity * sizeof *known->items);
    known->count = 0;
}

void known_free(struct known_costs *known)
{
    memory_free(known->items);
    *known = (struct known_costs){0};
}
