/* SPDX-License-Identifier: Apache-2.0 */
/* fleet_records.c - the supervisor asks agents for the flight recorders of
 * their ranks: reports bring the newest calls alone. */
#include <string.h>
#include "base/arena.h"
#include "base/clock.h"
#include "comm/patience.h"
#include "control/fleet.h"

enum {
    RECORDS_MS = 1000,     /* in all, and two round trips of the slowest link */
    RECORDS_MOST = 1 << 16 /* of all ranks */
};

int64_t fleet_time(int64_t then_ns, int64_t ahead_ns)
{
    const int64_t time_most_ns = INT64_MAX / 4; /* a century */

    return then_ns > 0 && then_ns < time_most_ns ? then_ns - ahead_ns : 0;
}

void fleet_note_call(struct flight *flight, const struct flight_entry *said,
                     int64_t ahead_ns)
{
    struct flight_entry e = *said;

    if (e.number == 0) return;
    e.began_ns = fleet_time(e.began_ns, ahead_ns);
    e.ended_ns = fleet_time(e.ended_ns, ahead_ns);
    e.group[sizeof e.group - 1] = '\0';
    flight->entries[e.number % FLIGHT_ENTRIES] = e;
}

/* False: nobody is there to be asked. */
static bool ask(struct fleet *fleet, int rank)
{
    const struct rank_seat *at = &fleet->at[rank];
    const struct record_ask said = {.order = at->order, .place = at->place,
                                    .newest = fleet->records[rank].newest,
                                    .rank = rank};

    if (at->order == 0 || fleet->nodes[at->node].wire.descriptor < 0)
        return false;
    if (wire_put(&fleet->nodes[at->node].wire, WIRE_RECORDS, &said,
                 sizeof said) == OK)
        return true;
    status_clear(); /* the next look sees that it is gone */
    return false;
}

/* Takes calls of the piece that was asked for, and no others. */
static void note_calls(struct fleet *fleet, const struct record_answer *head,
                       const char *bytes)
{
    const int64_t ahead_ns = head->now_ns - clock_ns();
    struct flight *flight = &fleet->board->pages[head->rank].flight;
    struct flight_entry e;

    for (int i = 0; i < head->count; i++) {
        memcpy(&e, bytes + (size_t)i * sizeof e, sizeof e);
        if (e.number <= head->newest && head->newest - e.number < RECORDS_PIECE)
            fleet_note_call(flight, &e, ahead_ns);
    }
}

static bool is_sound(const struct fleet *fleet,
                     const struct record_answer *head, size_t length)
{
    return head->count >= 0 && head->count <= RECORDS_PIECE &&
           length == sizeof *head + (size_t)head->count *
                                        sizeof(struct flight_entry) &&
           head->rank >= 0 && head->rank < fleet->crew->size &&
           fleet_time(head->now_ns, 0) != 0;
}

void fleet_take_records(struct fleet *fleet, int index, const char *bytes,
                        size_t length)
{
    struct record_answer head;
    struct rank_records *wanted;

    if (fleet->records == NULL || length < sizeof head) return;
    memcpy(&head, bytes, sizeof head);
    if (!is_sound(fleet, &head, length)) return;
    wanted = &fleet->records[head.rank];
    if (!wanted->asked || head.asked != wanted->newest ||
        fleet->at[head.rank].node != index ||
        fleet->at[head.rank].order != head.order)
        return;
    note_calls(fleet, &head, bytes + sizeof head);
    wanted->left -= RECORDS_PIECE;
    wanted->newest = head.newest - RECORDS_PIECE;
    wanted->asked = head.count > 0 && head.newest > RECORDS_PIECE &&
                    wanted->left > 0 && ask(fleet, head.rank);
}

static bool is_awaited(const struct fleet *fleet)
{
    for (int i = 0; i < fleet->crew->size; i++)
        if (fleet->records[i].asked && fleet->at[i].order != 0 &&
            fleet->nodes[fleet->at[i].node].wire.descriptor >= 0)
            return true;
    return false;
}

static int64_t wait_ms(const struct fleet *fleet)
{
    int64_t most_us = 0;

    for (int i = 0; i < fleet->count; i++) {
        const int64_t us = patience_round_us(fleet->nodes[i].wire.descriptor);

        if (fleet->nodes[i].wire.descriptor >= 0 && us > most_us) most_us = us;
    }
    return RECORDS_MS + 2 * most_us / 1000;
}

void fleet_records(struct fleet *fleet)
{
    const int size = fleet->crew->size;
    const int64_t end = clock_ns() + wait_ms(fleet) * 1000000;
    const int each = RECORDS_MOST / (size > 0 ? size : 1);

    if (memory_take((size_t)size, sizeof *fleet->records,
                    (void **)&fleet->records) != OK) {
        status_clear();
        return;
    }
    for (int i = 0; i < size; i++) {
        fleet->records[i].left = each < FLIGHT_ENTRIES ? each : FLIGHT_ENTRIES;
        fleet->records[i].asked = ask(fleet, i);
    }
    while (is_awaited(fleet) && clock_ns() < end) fleet_look(fleet, 5);
    memory_free(fleet->records);
    fleet->records = NULL;
}
