/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - the last calls of a rank. */
#include "comm/flight.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "comm/rank.h"

static struct flight *_Atomic record;
static atomic_bool taken; /* time, in this instruction */

void flight_attach(struct flight *flight)
{
    atomic_store(&record, flight);
}

void flight_beat(void)
{
    struct flight *flight = atomic_load(&record);

    if (flight != NULL) atomic_fetch_add(&flight->beats, 1);
}

void flight_do(int number, const char *name, int64_t usual_ns)
{
    struct flight *flight = atomic_load(&record);

    if (flight == NULL) return;
    struct flight_doing doing = {.turn = atomic_load(&flight->turn) + 1,
                                 .usual_ns = usual_ns, .number = number,
                                 .waits = atomic_load(&flight->waits),
                                 .reads = atomic_load(&flight->reads),
                                 .awaits = atomic_load(&flight->awaits)};

    snprintf(doing.name, sizeof doing.name, "%s", name);
    atomic_store(&taken, false);
    flight_mirror(flight, &doing);
    atomic_fetch_add(&flight->beats, 1);
}

void flight_take_time(void)
{
    struct flight *flight = atomic_load(&record);

    if (flight == NULL) return;
    atomic_store(&flight->usual_ns, 0);
    atomic_store(&taken, true);
}

bool flight_has_taken_time(void)
{
    return atomic_load(&taken);
}

void flight_wait(int change)
{
    struct flight *flight = atomic_load(&record);

    if (flight != NULL) atomic_fetch_add(&flight->waits, change);
}

void flight_read(int change)
{
    struct flight *flight = atomic_load(&record);

    if (flight != NULL) atomic_fetch_add(&flight->reads, change);
}

void flight_await(int nodes)
{
    struct flight *flight = atomic_load(&record);

    if (flight != NULL) atomic_store(&flight->awaits, nodes);
}

static int64_t peer_of(const struct operation *op)
{
    const enum comm_kind kind = op->call->kind;

    if ((kind != COMM_SEND && kind != COMM_RECV) || op->group->members == NULL)
        return -1;
    return op->group->members[op->call->peer];
}

/* Whether it sends to another node; where nobody knows nodes, to any rank. A
 * verdict is a few bytes. */
static bool talks(const struct operation *op)
{
    const struct group *group = op->group;
    int node;

    if (op->call->kind == COMM_RECV || op->call->kind == COMM_AGREE ||
        group->size < 2)
        return false;
    node = group->self->node;
    for (int i = 1; node > 0 && i < group->size; i++)
        if (group->members[i] / node != group->members[0] / node) return true;
    return node == 0;
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
        .peer = peer_of(op),
        .kind = (int32_t)op->call->kind,
        .channel = op->group->aside != NULL ? CHANNEL_BACKGROUND
                                            : (int32_t)op->channel,
        .size = op->group->size};
    memcpy(entry->group, op->group->label, sizeof entry->group);
    if (talks(op)) atomic_fetch_add(&flight->talks, 1);
    atomic_fetch_add(&flight->beats, 1);
    return number;
}

void flight_leave(uint64_t number, const struct operation *op, status result)
{
    struct flight *flight = atomic_load(&record);
    struct flight_entry *entry;

    if (flight == NULL || number == 0) return;
    if (talks(op)) atomic_fetch_sub(&flight->talks, 1);
    atomic_fetch_add(&flight->beats, 1);
    entry = &flight->entries[number % FLIGHT_ENTRIES];
    if (entry->number != number) return; /* it is long gone */
    entry->bytes = op->bytes;
    entry->result = (int32_t)result;
    entry->ended_ns = clock_ns();
    if (flight_meets(entry))
        atomic_fetch_add(&flight->met_ns, entry->ended_ns - entry->began_ns);
}

bool flight_talks(const struct flight *flight)
{
    return atomic_load(&flight->talks) > 0;
}

bool flight_meets(const struct flight_entry *e)
{
    return e->channel == CHANNEL_NOW && e->size > 1 && e->ended_ns > 0 &&
           (e->kind == COMM_ALL_REDUCE || e->kind == COMM_REDUCE_SCATTER ||
            e->kind == COMM_ALL_GATHER || e->kind == COMM_ALL_TO_ALL ||
            e->kind == COMM_AGREE);
}

/* So that it can be printed. */
static void make_sound(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') *c = '?';
}

static struct flight_entry sound(const struct flight_entry *from)
{
    struct flight_entry e = *from;

    make_sound(e.group, sizeof e.group);
    if (e.kind < 0 || e.kind >= COMM_KIND_COUNT) e.kind = COMM_AGREE;
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

struct flight_entry flight_call(const struct flight *flight, uint64_t number)
{
    const struct flight_entry *e = &flight->entries[number % FLIGHT_ENTRIES];

    return number != 0 && e->number == number ? sound(e)
                                              : (struct flight_entry){0};
}

struct flight_entry flight_aside(const struct flight *flight)
{
    const struct flight_entry *open = NULL;

    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const struct flight_entry *e = &flight->entries[i];

        if (e->number == 0 || e->ended_ns != 0 ||
            e->channel == CHANNEL_NOW || e->kind == COMM_SEND ||
            e->kind == COMM_RECV)
            continue;
        if (open == NULL || e->number < open->number) open = e;
    }
    return open != NULL ? sound(open) : (struct flight_entry){0};
}

struct flight_doing flight_doing(const struct flight *flight)
{
    struct flight_doing d = {.turn = atomic_load(&flight->turn),
                             .usual_ns = atomic_load(&flight->usual_ns),
                             .number = atomic_load(&flight->number),
                             .waits = atomic_load(&flight->waits),
                             .reads = atomic_load(&flight->reads),
                             .awaits = atomic_load(&flight->awaits)};

    memcpy(d.name, flight->name, sizeof d.name);
    make_sound(d.name, sizeof d.name);
    if (d.number < 0 || d.usual_ns < 0 || atomic_load(&flight->turn) != d.turn)
        d.usual_ns = 0;
    return d;
}

bool flight_waits(const struct flight *flight)
{
    const struct flight_entry e = flight_position(flight);
    const struct flight_doing doing = flight_doing(flight);

    return (e.number != 0 && e.ended_ns == 0) || doing.waits > 0 ||
           doing.awaits != 0;
}

void flight_mirror(struct flight *flight, const struct flight_doing *doing)
{
    atomic_store(&flight->usual_ns, 0); /* of the turn before */
    memcpy(flight->name, doing->name, sizeof flight->name);
    atomic_store(&flight->number, doing->number);
    atomic_store(&flight->waits, doing->waits);
    atomic_store(&flight->reads, doing->reads);
    atomic_store(&flight->awaits, doing->awaits);
    atomic_store(&flight->turn, doing->turn);
    atomic_store(&flight->usual_ns, doing->usual_ns);
}
