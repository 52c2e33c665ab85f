/* SPDX-License-Identifier: Apache-2.0 */
/* agent_records.c - an agent hands out the calls of its ranks, also of those
 * that have ended: their pages are the agent's. */
#include "base/clock.h"
#include "control/agent_place.h"

status agent_records(struct agent *agent, const struct record_ask *ask)
{
    struct {
        struct record_answer head;
        struct flight_entry calls[RECORDS_PIECE];
    } said = {.head = {.order = ask->order, .asked = ask->newest,
                       .now_ns = clock_ns(), .rank = ask->rank}};
    const struct flight *flight;
    uint64_t newest;

    if (ask->place < 0 || ask->place >= agent->count) return OK;
    flight = &agent->board->pages[ask->place].flight;
    newest = atomic_load(&flight->count);
    if (ask->newest != 0 && ask->newest < newest) newest = ask->newest;
    if (atomic_load(&agent->places[ask->place].taken) != ask->order)
        newest = 0; /* the page is another's by now */
    said.head.newest = newest;
    for (uint64_t i = 0; i < RECORDS_PIECE && i < newest; i++) {
        const uint64_t number = newest - i;
        struct flight_entry *call = &said.calls[said.head.count];

        *call = flight->entries[number % FLIGHT_ENTRIES];
        said.head.count += call->number == number; /* else it is too old */
    }
    return wire_put(&agent->up, WIRE_RECORDS_ANSWER, &said,
                    sizeof said.head +
                        (size_t)said.head.count * sizeof *said.calls);
}
