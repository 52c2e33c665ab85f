/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - sentences from the flight recorders of all ranks. */
#include <stdio.h>
#include <string.h>
#include "control/watch.h"

void position_text(const struct board *board, int rank, int64_t now_ns,
                   char out[160])
{
    const struct board_page *page = &board->pages[rank];
    const struct flight_entry e = flight_position(&page->flight);
    const struct flight_doing doing = flight_doing(&page->flight);
    int used = snprintf(out, 160, "rank %d: %s, step %lld", rank,
                        board_phase_name(atomic_load(&page->phase)),
                        (long long)((uint64_t)atomic_load(&page->step) + 1));

    if (doing.name[0] != '\0' && used < 160)
        used += snprintf(out + used, (size_t)(160 - used),
                         ", instruction %d (%s)", (int)doing.number,
                         doing.name);
    if (doing.awaits != 0 && used < 160)
        used += snprintf(out + used, (size_t)(160 - used),
                         ", waits until another node has its copy");
    if (e.number == 0 || used >= 160) return;
    if (e.ended_ns == 0)
        snprintf(out + used, (size_t)(160 - used),
                 ", in %s on group %s (call %llu) for %.1f s",
                 comm_kind_name((enum comm_kind)e.kind), e.group,
                 (unsigned long long)e.call,
                 1e-9 * ((double)now_ns - (double)e.began_ns));
    else
        snprintf(out + used, (size_t)(160 - used),
                 ", %.1f s after %s on group %s (call %llu)",
                 1e-9 * ((double)now_ns - (double)e.ended_ns),
                 comm_kind_name((enum comm_kind)e.kind), e.group,
                 (unsigned long long)e.call);
}

double sign_of_life_ms(const struct board *board, int rank, int64_t now_ns)
{
    const struct board_page *page = &board->pages[rank];
    int64_t newest = atomic_load(&page->step_ns);

    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const struct flight_entry *e = &page->flight.entries[i];

        if (e->number == 0) continue;
        if (e->began_ns > newest) newest = e->began_ns;
        if (e->ended_ns > newest) newest = e->ended_ns;
    }
    if (newest <= 0 || newest > now_ns) return -1;
    return 1e-6 * (double)(now_ns - newest);
}

/* Whether the rank began that call of that group. */
static bool came(const struct flight *flight, const struct flight_entry *call)
{
    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const struct flight_entry *e = &flight->entries[i];

        if (e->number != 0 && e->context == call->context &&
            e->call == call->call && e->channel == call->channel)
            return true;
    }
    return false;
}

/* Whether the rank is of the group: it has called it before. */
static bool knows(const struct flight *flight, uint64_t context)
{
    for (int i = 0; i < FLIGHT_ENTRIES; i++)
        if (flight->entries[i].number != 0 &&
            flight->entries[i].context == context)
            return true;
    return false;
}

/* The call that a rank has been in for longest. */
static bool longest_wait(const struct board *board, struct flight_entry *out)
{
    bool found = false;

    for (int i = 0; i < board->size; i++) {
        const struct flight_entry e =
            flight_position(&board->pages[i].flight);

        if (e.number == 0 || e.ended_ns != 0 || e.kind == COMM_SEND ||
            e.kind == COMM_RECV)
            continue;
        if (found && e.began_ns >= out->began_ns) continue;
        *out = e;
        found = true;
    }
    return found;
}

void explain_waits(const struct board *board, char out[256])
{
    struct flight_entry call;
    size_t used;
    int missing = 0;

    out[0] = '\0';
    if (!longest_wait(board, &call)) return;
    used = (size_t)snprintf(out, 256, "%s on group %s (call %llu): did not "
                            "arrive:", comm_kind_name(
                                (enum comm_kind)call.kind), call.group,
                            (unsigned long long)call.call);
    for (int i = 0; i < board->size && used < 240; i++) {
        const struct flight *flight = &board->pages[i].flight;

        if (!knows(flight, call.context) || came(flight, &call)) continue;
        used += (size_t)snprintf(out + used, 256 - used, "%s rank %d",
                                 missing++ > 0 ? "," : "", i);
    }
    if (missing == 0)
        snprintf(out, 256, "%s on group %s (call %llu): all ranks arrived",
                 comm_kind_name((enum comm_kind)call.kind), call.group,
                 (unsigned long long)call.call);
}
