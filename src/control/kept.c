/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c - time in which the system kept a rank from running: it waited for
 * pages of memory, or for a processor; or its data were late. */
#include "control/watch.h"

#include <stdio.h>

enum { WINDOW_MS = 400, SAID_MS = 2000, FAULT_MS = 100 };

/* Pages from a disk, and many of them. */
static bool is_short_of_memory(const struct sight *sight)
{
    return sight->kept_faults * FAULT_MS * 1000000 > sight->kept_ns;
}

/* Said once for each time that a rank does not get on. */
static void tell_kept(struct sight *sight, int rank)
{
    if (sight->kept_ns < (int64_t)SAID_MS * 1000000 || sight->kept_told)
        return;
    sight->kept_told = true;
    fprintf(stderr, "kept      rank %d %s; that is no hang\n", rank,
            sight->kept_reads ? "waits for its data"
            : is_short_of_memory(sight)
                ? "wants to run, and the system does not let it: it waits for "
                  "pages from a disk, so memory is short"
                : "wants to run, and the system does not let it: it waits for "
                  "a processor or a disk");
}

/* The time in a window that does not count, of a rank in a step that neither
 * got on nor waits for others, but maybe for another node. Nothing is known of
 * one whose machine has said nothing since the last look. No wait is without
 * end: comm.limit holds here, too. */
static int64_t look(struct supervisor *s, int rank, int64_t window_ns)
{
    const struct crew_member *m = &s->crew.members[rank];
    const struct board_page *page = &s->board->pages[rank];
    struct sight *sight = &s->sights[rank];
    const struct kept_time before = sight->kept;
    const int64_t passed_ns = !m->far               ? window_ns
                              : sight->heard_ns > 0 ? m->heard_ns -
                                                          sight->heard_ns
                                                    : 0;
    int64_t missed;

    sight->heard_ns = m->heard_ns;
    if (sight->silent_ns < window_ns) {
        if (m->far) sight->kept = m->kept;
        sight->kept_ns = sight->kept_faults = 0;
        sight->kept_told = sight->kept_reads = false;
        return 0;
    }
    sight->kept = crew_member_kept(m, &sight->threads);
    if (atomic_load(&page->phase) != BOARD_STEPS ||
        (rank_waits(s, rank) && !rank_awaits(s, rank)) ||
        rank_is_stopped(s, rank))
        return 0;
    if (flight_doing(&page->flight).reads > 0) {
        sight->kept_reads = passed_ns > 0 || sight->kept_reads;
        missed = passed_ns;
    } else {
        missed = sight->kept.kept_ns - before.kept_ns;
        if (!m->far && missed > window_ns) missed = window_ns;
    }
    if (missed <= 0 || sight->kept_ns + missed > s->how->limit_ms * 1000000)
        return 0;
    sight->kept_ns += missed;
    sight->kept_faults += sight->kept.faults - before.faults;
    tell_kept(sight, rank);
    return missed;
}

const char *awaited_text(const struct supervisor *s, int rank,
                         char out[NODE_NAME_BYTES + 8])
{
    const int awaits = flight_doing(&s->board->pages[rank].flight).awaits;
    const int at = s->fleet != NULL ? s->fleet->at[rank].node : -1;

    snprintf(out, NODE_NAME_BYTES + 8, "another node");
    for (int i = 0; i < PARTNERS_MOST && at >= 0; i++) {
        const int partner = s->fleet->nodes[at].partners[i];

        if ((awaits >> i & 1) == 0 || partner < 0) continue;
        snprintf(out, NODE_NAME_BYTES + 8, "node %s",
                 s->fleet->nodes[partner].name);
        break;
    }
    return out;
}

/* The time in a window in which a rank got on, but only waited until another
 * node has its copy. It gives up by itself (board_await_carried); comm.limit
 * holds here, too. */
static int64_t awaited(struct supervisor *s, int rank, int64_t window_ns)
{
    const int64_t step = atomic_load(&s->board->pages[rank].step);
    struct sight *sight = &s->sights[rank];
    char node[NODE_NAME_BYTES + 8];

    if (!rank_awaits(s, rank) || sight->awaits_step != step) {
        sight->awaits_ns = 0;
        sight->awaits_step = step;
        sight->awaits_told = false;
    }
    if (!rank_awaits(s, rank) || sight->silent_ns >= window_ns ||
        rank_is_stopped(s, rank) ||
        sight->awaits_ns + window_ns > s->how->limit_ms * 1000000)
        return 0;
    sight->awaits_ns += window_ns;
    if (sight->awaits_ns > (int64_t)SAID_MS * 1000000 && !sight->awaits_told) {
        fprintf(stderr, "kept      rank %d waits until %s has its copy; that "
                "is no hang\n", rank, awaited_text(s, rank, node));
        sight->awaits_told = true;
    }
    return window_ns;
}

void kept_take_off(struct supervisor *s, int64_t passed_ns)
{
    s->window_ns += passed_ns;
    if (s->window_ns >= (int64_t)WINDOW_MS * 1000000) kept_look(s);
}

void kept_look(struct supervisor *s)
{
    const int64_t window_ns = s->window_ns;
    int64_t most = 0, waited = 0;

    if (window_ns == 0) return;
    s->window_ns = 0;
    for (int i = 0; i < s->crew.size; i++) {
        const int64_t missed = look(s, i, window_ns);
        const int64_t awaits = awaited(s, i, window_ns);

        if (missed > most) most = missed;
        if (awaits > waited) waited = awaits;
    }
    for (int i = 0; i < s->crew.size; i++) {
        struct sight *sight = &s->sights[i];
        const bool excused = rank_waits(s, i) && !rank_is_stopped(s, i);
        const int64_t less = excused && waited > most ? waited : most;

        sight->silent_ns -= less < sight->silent_ns ? less : sight->silent_ns;
        sight->turn_ns -= most < sight->turn_ns ? most : sight->turn_ns;
    }
}

void kept_text(const struct sight *sight, char out[96])
{
    out[0] = '\0';
    if (sight->kept_ns == 0) return;
    snprintf(out, 96, ", beside %.1f s in which it waited for %s",
             1e-9 * (double)sight->kept_ns,
             sight->kept_reads ? "data"
             : is_short_of_memory(sight) ? "pages: memory is short"
                                         : "a processor or a disk");
}
