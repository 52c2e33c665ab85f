/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c - time in which the system kept a rank from running: it waited for
 * pages of memory, or for a processor; or its data were late. */
#include "control/watch.h"

#include <stdio.h>

enum { WINDOW_MS = 400, SAID_MS = 2000 };

/* How much of a window the rank wanted to run and could not. One that computes
 * without end has all of the time; one that waits for another process, or is
 * stopped, does not want to. */
static int64_t missed_ns(const struct crew_clock *now,
                         const struct crew_clock *before, int64_t window_ns)
{
    const int64_t had_ns = now->own_ns - before->own_ns;
    const bool wants = now->state == 'R' || now->state == 'D' ||
                       (now->state != 'T' && now->faults > before->faults);

    if (!wants || had_ns >= window_ns) return 0;
    return had_ns > 0 ? window_ns - had_ns : window_ns;
}

/* Said once for each time that a rank does not get on. */
static void tell_kept(struct sight *sight, int rank)
{
    if (sight->kept_ns < (int64_t)SAID_MS * 1000000 || sight->kept_told)
        return;
    sight->kept_told = true;
    fprintf(stderr, "kept      rank %d %s; that is no hang\n", rank,
            sight->kept_reads ? "waits for its data"
            : sight->kept_faults > 0
                ? "wants to run, and the system does not let it: it waits for "
                  "pages from a disk, so memory is short"
                : "wants to run, and the system does not let it: it waits for "
                  "a processor or a disk");
}

/* The same in a step, of a rank that neither got on nor waits for others. No
 * wait is without end: comm.limit holds here, too. */
static int64_t look(struct supervisor *s, int rank, int64_t window_ns)
{
    const struct board_page *page = &s->board->pages[rank];
    struct sight *sight = &s->sights[rank];
    const struct crew_clock before = sight->clock;
    int64_t missed;

    crew_member_clock(&s->crew.members[rank], &sight->clock);
    if (sight->silent_ns < window_ns) {
        sight->kept_ns = sight->kept_faults = 0;
        sight->kept_told = sight->kept_reads = false;
        return 0;
    }
    if (atomic_load(&page->phase) != BOARD_STEPS || rank_waits(s, rank))
        return 0;
    if (!rank_is_stopped(s, rank) && flight_doing(&page->flight).reads > 0) {
        sight->kept_reads = true;
        missed = window_ns;
    } else {
        missed = missed_ns(&sight->clock, &before, window_ns);
    }
    if (sight->kept_ns + missed > s->how->limit_ms * 1000000) return 0;
    sight->kept_ns += missed;
    if (missed > 0) sight->kept_faults += sight->clock.faults - before.faults;
    tell_kept(sight, rank);
    return missed;
}

void kept_take_off(struct supervisor *s, int64_t passed_ns)
{
    int64_t window_ns, most = 0;

    s->window_ns += passed_ns;
    if (s->window_ns < (int64_t)WINDOW_MS * 1000000) return;
    window_ns = s->window_ns;
    s->window_ns = 0;
    for (int i = 0; i < s->crew.size; i++) {
        const int64_t missed = look(s, i, window_ns);

        if (missed > most) most = missed;
    }
    for (int i = 0; i < s->crew.size; i++) {
        struct sight *sight = &s->sights[i];

        sight->silent_ns -= most < sight->silent_ns ? most : sight->silent_ns;
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
             : sight->kept_faults > 0 ? "pages: memory is short"
                                      : "a processor or a disk");
}
