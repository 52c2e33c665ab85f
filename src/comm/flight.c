/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - the last calls of a rank. */
#include "comm/flight.h"

#include <string.h>
#include "base/clock.h"

static struct flight *_Atomic record;

void flight_attach(struct flight *flight)
{
    atomic_store(&record, flight);
}

void flight_beat(void)
{
    struct flight *flight = atomic_load(&record);

    if (flight != NULL) atomic_fetch_add(&flight->beats, 1);
}

uint64_t flight_enter(const struct operation *op)
{
    struct flight *flight = atomic_load(&record);
    struct flight_entry *entry;
    uint64_t number;

    if (flight == NULL) return 0;
    number = atomic_fetch_add(&flight->count, 1) + 1;
    entry = &flight->entries[number % FLIGHT_ENTRIES];
    *entry = (struct flight_entry){
        .number = number, .call = op->tag & 0xffffffffffffu,
        .context = op->group->context, .began_ns = clock_ns(),
        .kind = (int32_t)op->call->kind,
        .channel = op->group->aside != NULL ? CHANNEL_BACKGROUND
                                            : (int32_t)op->channel,
        .size = op->group->size};
    memcpy(entry->group, op->group->label, sizeof entry->group);
    atomic_fetch_add(&flight->beats, 1);
    return number;
}

void flight_leave(uint64_t number, int64_t bytes, status result)
{
    struct flight *flight = atomic_load(&record);
    struct flight_entry *entry;

    if (flight == NULL || number == 0) return;
    atomic_fetch_add(&flight->beats, 1);
    entry = &flight->entries[number % FLIGHT_ENTRIES];
    if (entry->number != number) return; /* it is long gone */
    entry->bytes = bytes;
    entry->result = (int32_t)result;
    entry->ended_ns = clock_ns();
    if (flight_meets(entry))
        atomic_fetch_add(&flight->met_ns, entry->ended_ns - entry->began_ns);
}

bool flight_meets(const struct flight_entry *e)
{
    return e->channel == CHANNEL_NOW && e->size > 1 && e->ended_ns > 0 &&
           (e->kind == COMM_ALL_REDUCE || e->kind == COMM_REDUCE_SCATTER ||
            e->kind == COMM_ALL_GATHER || e->kind == COMM_ALL_TO_ALL ||
            e->kind == COMM_AGREE);
}

/* A copy that can be printed. */
static struct flight_entry sound(const struct flight_entry *from)
{
    struct flight_entry e = *from;

    e.group[COMM_LABEL_BYTES - 1] = '\0';
    if (e.kind < 0 || e.kind >= COMM_KIND_COUNT) e.kind = COMM_AGREE;
    for (char *c = e.group; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return e;
}

struct flight_entry flight_position(const struct flight *flight)
{
    const struct flight_entry *open = NULL, *last = NULL;

    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const struct flight_entry *e = &flight->entries[i];

        if (e->number == 0 || e->channel != CHANNEL_NOW) continue;
        if (e->ended_ns == 0 && (open == NULL || e->number < open->number))
            open = e;
        if (last == NULL || e->number > last->number) last = e;
    }
    if (open != NULL) return sound(open);
    return last != NULL ? sound(last) : (struct flight_entry){0};
}
