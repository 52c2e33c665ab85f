/* SPDX-License-Identifier: Apache-2.0 */
/* agent_alone.c - which ranks of a node cannot step while no supervisor is
 * there to say so.
 *
 * A step needs all ranks, and each agent sees only its own. So it looks for a
 * rank that keeps the others, as a supervisor does (watch.c): one that stands
 * still and waits for nobody, for no data, and not for the system. Those that
 * wait for a rank elsewhere go on: its agent looks at that one. If it ends, so
 * does its connection, and they give up by themselves. */
#include "base/clock.h"
#include "control/agent_place.h"

enum { STILL_LEAST_MS = 3000, STILL_FACTOR = 5,
       LIMIT_MS = 600000,    /* comm.limit, where it is not known */
       LOOKED_MOST_MS = 200 /* between two looks counts, as in watch.h */ };

/* The longest that a rank in its steps may stand still. */
static int64_t patience_ns(const struct agent *agent)
{
    int64_t most = 0;

    for (int i = 0; i < agent->count; i++) {
        const struct board_page *page = &agent->board->pages[i];
        const int64_t step = atomic_load(&page->step_most_ns);
        const int64_t planned = atomic_load(&page->planned_ns);

        if (!place_is_busy(&agent->places[i])) continue;
        if (step > most) most = step;
        if (planned > most) most = planned;
    }
    return (int64_t)STILL_LEAST_MS * 1000000 + STILL_FACTOR * most;
}

/* Ranks meet at their supervisor. One that is alone has nobody to meet. */
static bool has_met(const struct place_memory *place,
                    const struct board_page *page)
{
    return place->order.size == 1 || atomic_load(&page->flight.count) > 0;
}

/* How long this one may stand still: files that are opened, a validation or a
 * save may take as long as ranks wait for each other, and so may a first
 * step. */
static int64_t rank_patience_ns(const struct agent *agent, int index,
                                bool stopped)
{
    const struct place_memory *place = &agent->places[index];
    const struct board_page *page = &agent->board->pages[index];
    const int64_t limit = atomic_load(&page->limit_ms);
    const int64_t usual = patience_ns(agent);
    const int64_t most = (limit > 0 ? limit : LIMIT_MS) * (int64_t)1000000 +
                         (int64_t)STILL_LEAST_MS * 1000000;

    if (stopped || !has_met(place, page)) return usual;
    if (atomic_load(&page->phase) == BOARD_STEPS &&
        atomic_load(&page->step_most_ns) > 0 && usual < most)
        return usual;
    return most;
}

/* Others, data or its end keep it, as far as is known here. */
static bool is_excused(const struct board_page *page)
{
    return atomic_load(&page->phase) == BOARD_ENDED ||
           flight_doing(&page->flight).reads > 0 ||
           flight_waits(&page->flight);
}

/* Whether it has stood still for too long. Time in which this process did not
 * look counts as little as that in which the system kept the rank. */
static bool stands_still(struct agent *agent, int index, int64_t now)
{
    static const int64_t most_ns = (int64_t)LOOKED_MOST_MS * 1000000;
    const struct place_memory *place = &agent->places[index];
    const struct board_page *page = &agent->board->pages[index];
    struct worker *w = &agent->workers[index];
    const uint64_t beats = atomic_load(&page->flight.beats);
    const uint64_t order = atomic_load(&place->ordered);
    const int64_t passed = now - w->still.looked_ns;
    const int64_t kept_ns = w->still.kept_ns;
    struct kept_time kept = {.kept_ns = kept_ns};
    const bool stopped = w->process != 0 &&
                         worker_state(agent, index, &kept) == 'T';
    const bool got_on = w->still.order != order || w->still.beats != beats ||
                        (!stopped && has_met(place, page) && is_excused(page));

    w->still.order = order;
    w->still.beats = beats;
    w->still.looked_ns = now;
    w->still.kept_ns = kept.kept_ns;
    if (got_on) w->still.ns = 0;
    else w->still.ns += passed < most_ns ? passed : most_ns;
    if (!got_on && kept.kept_ns > kept_ns)
        w->still.ns -= kept.kept_ns - kept_ns < w->still.ns
                           ? kept.kept_ns - kept_ns : w->still.ns;
    return w->still.ns > rank_patience_ns(agent, index, stopped);
}

bool ranks_stand_still(struct agent *agent)
{
    const int64_t now = clock_ns();
    bool found = false;

    for (int i = 0; i < agent->count; i++)
        if (place_is_busy(&agent->places[i]))
            found = stands_still(agent, i, now) || found;
    return found;
}
