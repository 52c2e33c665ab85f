/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - sentences from the flight recorders of all ranks. */
#include <stdio.h>
#include <string.h>
#include "control/watch.h"

/* "receive from rank 3 on group stage 1 (call 5)". */
static void call_text(const struct flight_entry *e, char out[96])
{
    char peer[32] = "";

    if (e->kind == COMM_RECV && e->peer >= 0)
        snprintf(peer, sizeof peer, " from rank %lld", (long long)e->peer);
    if (e->kind == COMM_SEND && e->peer >= 0)
        snprintf(peer, sizeof peer, " to rank %lld", (long long)e->peer);
    snprintf(out, 96, "%s%s on group %s (call %llu)",
             comm_kind_name((enum comm_kind)e->kind), peer, e->group,
             (unsigned long long)e->call);
}

void position_text(const struct board *board, int rank, int64_t now_ns,
                   char out[160])
{
    const struct board_page *page = &board->pages[rank];
    const struct flight_entry e = flight_position(&page->flight);
    const struct flight_doing doing = flight_doing(&page->flight);
    char call[96];
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
    call_text(&e, call);
    if (e.ended_ns == 0)
        snprintf(out + used, (size_t)(160 - used), ", in %s for %.1f s", call,
                 1e-9 * ((double)now_ns - (double)e.began_ns));
    else
        snprintf(out + used, (size_t)(160 - used), ", %.1f s after %s",
                 1e-9 * ((double)now_ns - (double)e.ended_ns), call);
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

/* The record of a rank says about a call of a group: */
enum arrival {
    ARRIVED, /* it began the call, or a later one of the group */
    MISSING, /* it has called the group before, and no more */
    UNKNOWN  /* nothing: of another group; or its calls of this one are too
              * long ago, or were not in the reports of its machine */
};

/* Whether calls after that one are not on record: of a rank on another machine
 * each report has the newest few. */
static bool has_gap_after(const struct flight *flight, uint64_t number)
{
    uint64_t newest = number, later = 0;

    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const uint64_t other = flight->entries[i].number;

        if (other > newest) newest = other;
        later += other > number;
    }
    return newest - number > later;
}

static enum arrival arrival_of(const struct flight *flight,
                               const struct flight_entry *call)
{
    uint64_t last = 0;

    for (int i = 0; i < FLIGHT_ENTRIES; i++) {
        const struct flight_entry *e = &flight->entries[i];

        if (e->number == 0 || e->context != call->context) continue;
        if (e->channel == call->channel && e->kind != COMM_SEND &&
            e->kind != COMM_RECV && e->call >= call->call)
            return ARRIVED;
        if (e->number > last) last = e->number;
    }
    return last == 0 || has_gap_after(flight, last) ? UNKNOWN : MISSING;
}

/* The call that a rank has been in for longest, as `position` knows. */
static bool longest_wait(const struct board *board, struct flight_entry *out,
                         struct flight_entry (*position)(const struct flight *))
{
    bool found = false;

    for (int i = 0; i < board->size; i++) {
        const struct flight_entry e = position(&board->pages[i].flight);

        if (e.number == 0 || e.ended_ns != 0 || e.kind == COMM_SEND ||
            e.kind == COMM_RECV)
            continue;
        if (found && e.began_ns >= out->began_ns) continue;
        *out = e;
        found = true;
    }
    return found;
}

/* Appends the ranks of which the records say that, as many as have room; how
 * many they are. */
static int name_ranks(const struct board *board,
                      const struct flight_entry *call, enum arrival wanted,
                      char out[256])
{
    enum { NAMES_BYTES = 222 }; /* a rank and "and 1024 more" fit behind */
    size_t used = strlen(out);
    int count = 0, named = 0;

    for (int i = 0; i < board->size; i++) {
        if (arrival_of(&board->pages[i].flight, call) != wanted) continue;
        count++;
        if (used >= NAMES_BYTES) continue;
        used += (size_t)snprintf(out + used, 256 - used, "%s rank %d",
                                 named > 0 ? "," : "", i);
        named++;
    }
    if (count > named)
        snprintf(out + used, 256 - used, " and %d more", count - named);
    return count;
}

static int count_arrived(const struct board *board,
                         const struct flight_entry *call)
{
    char names[256] = "";

    return name_ranks(board, call, ARRIVED, names);
}

static bool is_in_receive(const struct board *board, int rank,
                          struct flight_entry *out)
{
    *out = flight_position(&board->pages[rank].flight);
    return out->number != 0 && out->ended_ns == 0 && out->kind == COMM_RECV &&
           out->peer >= 0 && out->peer < board->size;
}

/* Where nobody is in a collective: the rank that has waited for a message for
 * longest, and for whom its sender waits, and so on. */
static void explain_receives(const struct board *board, char out[256])
{
    struct flight_entry e, longest = {0};
    int first = -1, last, hops = 0;
    char call[96];

    for (int i = 0; i < board->size; i++) {
        if (!is_in_receive(board, i, &e) ||
            (first >= 0 && e.began_ns >= longest.began_ns))
            continue;
        longest = e;
        first = i;
    }
    if (first < 0) return;
    last = (int)longest.peer;
    while (hops < board->size && is_in_receive(board, last, &e)) {
        last = (int)e.peer;
        hops++;
    }
    call_text(&longest, call);
    if (hops == board->size)
        snprintf(out, 256, "%s: rank %d waits, and ranks wait in a circle",
                 call, first);
    else if (hops > 0)
        snprintf(out, 256, "%s: rank %d waits, in the end for rank %d", call,
                 first, last);
    else
        snprintf(out, 256, "%s: rank %d waits", call, first);
}

void explain_waits(const struct board *board, char out[256])
{
    struct flight_entry call;
    char text[96];
    int silent;

    out[0] = '\0';
    if (!longest_wait(board, &call, flight_position) &&
        !longest_wait(board, &call, flight_aside)) {
        explain_receives(board, out);
        return;
    }
    call_text(&call, text);
    snprintf(out, 256, "%s: did not arrive:", text);
    if (name_ranks(board, &call, MISSING, out) > 0) return;
    silent = call.size <= board->size
                 ? call.size - count_arrived(board, &call) : 0;
    if (silent <= 0) {
        snprintf(out, 256, "%s: all ranks arrived", text);
    } else if (call.size == board->size) {
        snprintf(out, 256, "%s: no record that these arrived:", text);
        name_ranks(board, &call, UNKNOWN, out);
    } else {
        snprintf(out, 256, "%s: %d of its %d ranks: no record that they "
                 "arrived", text, silent, call.size);
    }
}
