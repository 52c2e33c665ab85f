/* SPDX-License-Identifier: Apache-2.0 */
/* straggler.c - finds the rank that comes last to the calls of its groups. */
#include "control/straggler.h"

#include <stdio.h>

enum { CALLS_LEAST = 20, STEPS_LEAST = 20, RANKS_MOST = 256, NEWEST_LEAST = 64,
       NEWEST_MOST = 256 };
static const double share_least = 0.05, times_least = 3;

struct costs {
    double waited_ns[RANKS_MOST], from_ns, to_ns;
    uint64_t newest; /* calls of a rank that are looked at */
    int calls;
};

/* The newest entry but `back`; NULL: there is none. */
static const struct flight_entry *entry_of(const struct flight *flight,
                                           uint64_t back)
{
    const uint64_t count = atomic_load(&flight->count);
    const struct flight_entry *e;

    if (back >= count) return NULL;
    e = &flight->entries[(count - back) % FLIGHT_ENTRIES];
    return e->number == count - back ? e : NULL;
}

static const struct flight_entry *same_call(const struct flight *flight,
                                            const struct flight_entry *call,
                                            uint64_t newest)
{
    for (uint64_t back = 0; back < 2 * newest; back++) {
        const struct flight_entry *e = entry_of(flight, back);

        if (e != NULL && e->context == call->context &&
            e->call == call->call && e->kind == call->kind && flight_meets(e))
            return e;
    }
    return NULL;
}

/* Once for each call: for the first of its ranks. */
static void add_call(struct costs *costs, const struct board *board, int first,
                     const struct flight_entry *call)
{
    double last = (double)call->began_ns, before = -1e300;
    int who = first, present = 1;

    for (int i = 0; i < board->size; i++) {
        const struct flight_entry *e =
            i == first ? NULL : same_call(&board->pages[i].flight, call,
                                          costs->newest);
        const double began = e != NULL ? (double)e->began_ns : 0;

        if (e == NULL) continue;
        if (i < first) return;
        present++;
        if (began > last) {
            before = last;
            last = began;
            who = i;
        } else if (began > before) {
            before = began;
        }
    }
    if (present != call->size) return;
    costs->waited_ns[who] += last - before;
    if (costs->calls++ == 0 || before < costs->from_ns)
        costs->from_ns = before;
    if (last > costs->to_ns) costs->to_ns = last;
}

static void add_rank(struct costs *costs, const struct board *board, int rank)
{
    for (uint64_t back = 0; back < costs->newest; back++) {
        const struct flight_entry *e =
            entry_of(&board->pages[rank].flight, back);

        if (e != NULL && flight_meets(e)) add_call(costs, board, rank, e);
    }
}

struct straggler straggler_find(const struct board *board)
{
    struct costs costs = {.to_ns = -1e300, .newest = NEWEST_MOST};
    struct straggler out = {.rank = -1};
    double most = 0, second = 0;

    if (board->size > RANKS_MOST) return out;
    if (board->size > 16) costs.newest = NEWEST_LEAST;
    for (int i = 0; i < board->size; i++) add_rank(&costs, board, i);
    for (int i = 0; i < board->size; i++) {
        const double waited = costs.waited_ns[i];

        if (waited > most) {
            second = most;
            most = waited;
            out.rank = i;
        } else if (waited > second) {
            second = waited;
        }
    }
    out.calls = costs.calls;
    if (costs.calls > 0)
        out.seconds = 1e-9 * (costs.to_ns - costs.from_ns);
    if (out.seconds > 0) out.share = 1e-9 * most / out.seconds;
    if (out.calls < CALLS_LEAST || out.share < share_least ||
        most < times_least * second)
        out.rank = -1;
    else if (atomic_load(&board->pages[out.rank].seated) > 0)
        out.rank = atomic_load(&board->pages[out.rank].seated) - 1;
    return out;
}

/* Steps that the rank has made in this generation, and how much of them it
 * waited; false: too few, or it does not step. */
static bool waits_of(const struct board_page *page, double *share)
{
    *share = 1e-6 * (double)atomic_load(&page->met_ppm);
    return atomic_load(&page->phase) == BOARD_STEPS &&
           atomic_load(&page->step) - atomic_load(&page->from_step) >=
               STEPS_LEAST;
}

struct straggler straggler_by_waits(const struct board *board)
{
    struct straggler out = {.rank = -1};
    double least[3] = {2, 2, 2}, share; /* of the time that ranks wait */

    for (int i = 0; i < board->size; i++) {
        if (!waits_of(&board->pages[i], &share)) return out;
        for (int k = 0; k < 3; k++) {
            const double next = least[k];

            if (share >= next) continue;
            if (k == 0) out.rank = i;
            least[k] = share;
            share = next;
        }
    }
    out.share = least[1] - least[0];
    if (board->size < 2 || out.share < share_least ||
        (board->size > 2 &&
         out.share < times_least * (least[2] - least[1])))
        out.rank = -1;
    return out;
}

void straggler_text(const struct straggler *s, char out[120])
{
    out[0] = '\0';
    if (s->rank >= 0 && s->calls == 0)
        snprintf(out, 120, "the others waited %.0f%% of the last steps for "
                 "rank %d", 100 * s->share, s->rank);
    else if (s->rank >= 0)
        snprintf(out, 120, "the others waited %.0f%% of the last %.1f s for "
                 "rank %d (%d calls)", 100 * s->share, s->seconds, s->rank,
                 s->calls);
}
