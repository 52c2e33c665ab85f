/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - how a supervisor notices that a rank died, hangs, or failed. */
#include "control/watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "base/clock.h"

enum { LOOK_MS = 50, LAST_WORDS_MS = 10000, UNHEARD_MS = 700 };

/* ---- signals ---- */

/* A second SIGTERM or Ctrl-C is meant, as in a run without a supervisor: batch
 * systems repeat the others, and send SIGTERM after them. */
void supervisor_hear(struct supervisor *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        const int number = (int)info.ssi_signo;

        if (number == SIGTERM || number == SIGINT) {
            s->insists = s->ended;
            s->ended = true;
        }
        if (s->converts || s->regroups) s->wished = number;
        else if (s->asked == 0) s->asked = number;
    }
}

/* To ranks that watch signals by now. */
static void pass_signal_on(struct supervisor *s)
{
    for (int i = 0; i < s->crew.size && s->asked != 0; i++) {
        const int phase = atomic_load(&s->board->pages[i].phase);

        if (s->sights[i].told || phase < BOARD_OPENS || phase >= BOARD_ENDED)
            continue;
        s->sights[i].told = true;
        crew_signal_one(&s->crew, i, s->asked);
    }
}

/* ---- steps ---- */

static void see_step(struct supervisor *s, int rank)
{
    const struct board_page *page = &s->board->pages[rank];
    struct sight *sight = &s->sights[rank];
    const int64_t step = atomic_load(&page->step);
    const int64_t when = atomic_load(&page->step_ns);
    const int64_t most = atomic_load(&page->step_most_ns);

    /* It measured itself, also before this supervisor was there. */
    if (most > s->usual_ns) s->usual_ns = most;
    if (step == sight->step || when == 0) return;
    /* Several at once: their mean. */
    if (step > sight->step && sight->step_ns != 0 &&
        (when - sight->step_ns) / (step - sight->step) > sight->step_most_ns)
        sight->step_most_ns = (when - sight->step_ns) / (step - sight->step);
    if (sight->step_most_ns > s->usual_ns) s->usual_ns = sight->step_most_ns;
    sight->step = step;
    sight->step_ns = when;
    if (step <= s->most_steps) return;
    s->most_steps = step;
    s->last_step_ns = when;
    s->in_vain = s->falls = 0;
    s->fallen_to = 0;
}

/* ---- hangs ---- */

bool rank_is_stopped(const struct supervisor *s, int rank)
{
    return crew_member_state(&s->crew.members[rank]) == 'T';
}

/* The longest that a step takes: as planned, or as it was measured, in this
 * generation or an earlier one; 0: unknown. */
static int64_t longest_step_ns(const struct supervisor *s)
{
    int64_t longest = s->usual_ns;

    for (int i = 0; i < s->crew.size; i++) {
        const int64_t planned = atomic_load(&s->board->pages[i].planned_ns);

        if (planned > longest) longest = planned;
    }
    return longest;
}

/* The longest that a rank may show no sign of life. Before a step was timed
 * (the first is slower than any plan), and outside of steps, the limit of
 * messages holds, but not for one that is stopped. */
static int64_t patience_ns(const struct supervisor *s, int rank)
{
    const int phase = atomic_load(&s->board->pages[rank].phase);
    const int64_t longest = longest_step_ns(s);

    if (((phase != BOARD_STEPS || s->usual_ns == 0) &&
         !rank_is_stopped(s, rank)) ||
        longest == 0 ||
        HANG_FACTOR * longest > s->how->limit_ms * 1000000)
        return s->how->limit_ms * 1000000 +
               (int64_t)HANG_EXTRA_MS * 1000000;
    return HANG_FACTOR * longest + (int64_t)HANG_EXTRA_MS * 1000000;
}

bool rank_waits(const struct supervisor *s, int rank)
{
    return flight_waits(&s->board->pages[rank].flight);
}

bool rank_awaits(const struct supervisor *s, int rank)
{
    const struct board_page *page = &s->board->pages[rank];

    return atomic_load(&page->phase) == BOARD_STEPS &&
           flight_doing(&page->flight).awaits != 0;
}

/* How long the rank's instruction may take; 0: any time. One that waits for
 * others may wait as long as they take, or the network does. */
static int64_t instruction_limit_ns(const struct supervisor *s, int rank)
{
    const struct board_page *page = &s->board->pages[rank];
    const int64_t usual = flight_doing(&page->flight).usual_ns;

    if (atomic_load(&page->phase) != BOARD_STEPS || usual <= 0 ||
        usual > s->how->limit_ms * 1000000 / HANG_FACTOR ||
        rank_waits(s, rank))
        return 0;
    return HANG_FACTOR * usual + (int64_t)HANG_EXTRA_MS * 1000000;
}

/* Counts only the time in which this process looked: if the system stood still,
 * all its processes did. */
static void see_instruction(struct supervisor *s, int rank, int64_t passed_ns)
{
    struct sight *sight = &s->sights[rank];
    const int64_t turn = atomic_load(&s->board->pages[rank].flight.turn);

    if (turn != sight->turn || instruction_limit_ns(s, rank) == 0) {
        sight->turn = turn;
        sight->turn_ns = 0;
    } else {
        sight->turn_ns += passed_ns;
    }
}

/* The rank whose instruction is most overdue; -1: none is. */
static int overdue_rank(const struct supervisor *s)
{
    int found = -1;

    for (int i = 0; i < s->crew.size; i++) {
        const int64_t limit = instruction_limit_ns(s, i);

        if (limit == 0 || s->sights[i].turn_ns <= limit) continue;
        if (found < 0 || s->sights[i].turn_ns > s->sights[found].turn_ns)
            found = i;
    }
    return found;
}

/* It gets on all the while, unless it stands still itself. */
static bool awaits_no_more(const struct supervisor *s, int rank)
{
    return rank_awaits(s, rank) &&
           s->sights[rank].silent_ns > (int64_t)UNHEARD_MS * 1000000;
}

/* The rank that keeps the others: one that stands still, or waits for nobody;
 * else one that another node keeps, or the one that has been silent. */
static int culprit_of(const struct supervisor *s, int silent)
{
    int culprit = silent;

    for (int i = 0; i < s->crew.size; i++) {
        if (atomic_load(&s->board->pages[i].phase) == BOARD_ENDED) continue;
        if (rank_is_stopped(s, i) || awaits_no_more(s, i)) return i;
        if (rank_waits(s, culprit) && !rank_waits(s, i)) culprit = i;
    }
    for (int i = 0; i < s->crew.size && rank_waits(s, culprit); i++)
        if (rank_awaits(s, i)) return i;
    return culprit;
}

/* A machine that says nothing is soon lost or back: until then nobody knows
 * which rank keeps the others. */
static bool is_unheard(const struct supervisor *s, int64_t now)
{
    for (int i = 0; i < s->crew.size; i++) {
        const struct crew_member *m = &s->crew.members[i];

        if (m->far && m->lives && m->heard_ns != 0 &&
            now - m->heard_ns > (int64_t)UNHEARD_MS * 1000000)
            return true;
    }
    return false;
}

static void see_life(struct supervisor *s, int rank, int64_t now,
                     int64_t passed_ns)
{
    const struct board_page *page = &s->board->pages[rank];
    const uint64_t beats = atomic_load(&page->flight.beats);
    struct sight *sight = &s->sights[rank];

    see_step(s, rank);
    see_instruction(s, rank, passed_ns);
    if (beats != sight->beats || sight->changed_ns == 0) {
        sight->beats = beats;
        sight->changed_ns = now;
        sight->silent_ns = 0;
    } else {
        sight->silent_ns += passed_ns;
    }
}

static int silent_rank(const struct supervisor *s)
{
    for (int i = 0; i < s->crew.size; i++)
        if (atomic_load(&s->board->pages[i].phase) != BOARD_ENDED &&
            s->sights[i].silent_ns > patience_ns(s, i))
            return i;
    return -1;
}

static void tell_hang(const struct supervisor *s, bool overdue,
                      struct incident *incident)
{
    const int rank = incident->rank;
    const struct sight *sight = &s->sights[rank];
    const char *stopped = rank_is_stopped(s, rank) ? " (stopped)" : "";
    char position[160], kept[96], node[NODE_NAME_BYTES + 8];

    position_text(s->board, rank, incident->seen_ns, position);
    kept_text(sight, kept);
    if (!overdue && rank_awaits(s, rank) && !awaits_no_more(s, rank))
        snprintf(incident->cause, sizeof incident->cause,
                 "is kept%s: for %.1f s no copy of its state has reached %s; "
                 "%s", stopped, 1e-9 * (double)sight->awaits_ns,
                 awaited_text(s, rank, node), position);
    else if (overdue)
        snprintf(incident->cause, sizeof incident->cause,
                 "hangs%s: its instruction takes %.1f s%s, at most %.1f s are "
                 "usual or planned; %s", stopped, 1e-9 * (double)sight->turn_ns,
                 kept, 1e-9 * (double)instruction_limit_ns(s, rank), position);
    else
        snprintf(incident->cause, sizeof incident->cause,
                 "hangs%s: no sign of life for %.1f s%s, at most %.1f s are "
                 "usual; %s", stopped, 1e-9 * (double)sight->silent_ns, kept,
                 1e-9 * (double)patience_ns(s, rank), position);
}

static bool see_hang(struct supervisor *s, struct incident *incident)
{
    const int64_t now = clock_ns();
    const int64_t most_ns = (int64_t)LOOKED_MOST_MS * 1000000;
    const int64_t passed_ns =
        now - s->looked_ns < most_ns ? now - s->looked_ns : most_ns;

    s->looked_ns = now;
    for (int i = 0; i < s->crew.size; i++) see_life(s, i, now, passed_ns);
    kept_take_off(s, passed_ns);
    if ((silent_rank(s) < 0 && overdue_rank(s) < 0) || is_unheard(s, now))
        return false;
    kept_look(s);

    const int silent = silent_rank(s), overdue = overdue_rank(s);

    if (silent < 0 && overdue < 0) return false;
    const int rank = overdue >= 0 ? overdue : culprit_of(s, silent);

    *incident = (struct incident){
        .kind = INCIDENT_HANG, .rank = rank, .seen_ns = now,
        .process = s->crew.members[rank].process};
    tell_hang(s, overdue >= 0, incident);
    return true;
}

/* ---- ends ---- */

/* A rank that was outvoted by its replicas says so on its page. A device that
 * fails is another matter: that is no proof of wrong numbers. */
static bool is_wrong(const struct board_page *page)
{
    return atomic_load(&page->verdict) == BOARD_WRONG;
}

void watch_verdicts(struct supervisor *s)
{
    for (int i = 0; i < s->crew.size && s->fleet != NULL; i++) {
        if (!is_wrong(&s->board->pages[i])) continue;
        fleet_quarantine(s->fleet, i);
        snprintf(s->wrong, sizeof s->wrong, "rank %d gave up: %.230s", i,
                 s->board->pages[i].sentence);
    }
}

static void see_death(const struct supervisor *s, int rank,
                      struct incident *incident)
{
    const struct crew_member *member = &s->crew.members[rank];
    const struct board_page *page = &s->board->pages[rank];
    char story[CREW_STORY_BYTES];

    crew_story(member, story);
    *incident = (struct incident){.kind = INCIDENT_DEATH, .rank = rank,
                                  .process = member->process,
                                  .seen_ns = clock_ns(),
                                  .itself = crew_fell(member),
                                  .wrong = is_wrong(page),
                                  .starved = crew_starved(member)};
    snprintf(incident->cause, sizeof incident->cause, "%s", story);
    if (incident->wrong)
        snprintf(incident->cause, sizeof incident->cause, "gave up: %.230s",
                 page->sentence);
}

/* A rank that is wrong may be slow to end; the others end first. */
static bool see_wrong(const struct supervisor *s, struct incident *incident)
{
    for (int i = 0; i < s->crew.size; i++) {
        if (!is_wrong(&s->board->pages[i]) || !crew_lives(&s->crew.members[i]))
            continue;
        see_death(s, i, incident);
        return true;
    }
    return false;
}

/* A rank that waits to be fenced because of another that nobody saw fail: a
 * connection broke between two that live. */
static bool see_orphan(struct supervisor *s, struct incident *incident)
{
    for (int i = 0; i < s->crew.size && !is_unheard(s, clock_ns()); i++) {
        const struct board_page *page = &s->board->pages[i];

        if (atomic_load(&page->phase) != BOARD_ENDED ||
            atomic_load(&page->result) != ERR_PEER ||
            !crew_lives(&s->crew.members[i]))
            continue;
        const int64_t patience_ms =
            atomic_load(&page->verdict) == BOARD_AWAITS ? AWAITED_MS
                                                        : ORPHAN_MS;

        if (clock_ns() - s->sights[i].changed_ns < patience_ms * 1000000)
            continue;
        *incident = (struct incident){.kind = INCIDENT_CONNECTION, .rank = i,
                                      .process = s->crew.members[i].process,
                                      .seen_ns = clock_ns()};
        snprintf(incident->cause, sizeof incident->cause, "gave up: %.240s",
                 page->sentence);
        return true;
    }
    return false;
}

/* The result of the run is that of the first rank which did not go on for a
 * reason of its own. */
static void see_end(struct supervisor *s, int rank, status *result)
{
    const struct board_page *page = &s->board->pages[rank];
    const status found = (status)atomic_load(&page->result);

    if (found == OK || *result != OK) return;
    *result = found;
    if (found != ERR_STOPPED) s->failed_ns = clock_ns();
    status_fail(found, __FILE__, __LINE__, "%.*s", BOARD_SENTENCE_BYTES - 1,
                page->sentence);
}

/* A failure ends the run; the others have a while for their last words, and
 * those that only wait for them are not waited for. */
static bool is_over(const struct supervisor *s)
{
    bool speaks = false;

    if (crew_living(&s->crew) == 0) return true;
    if (s->failed_ns == 0) return false;
    for (int i = 0; i < s->crew.size; i++)
        speaks = speaks || (crew_lives(&s->crew.members[i]) &&
                            atomic_load(&s->board->pages[i].phase) !=
                                BOARD_ENDED);
    return !speaks ||
           clock_ns() - s->failed_ns > (int64_t)LAST_WORDS_MS * 1000000;
}

static bool said_its_end(const struct supervisor *s, int rank)
{
    const struct board_page *page = &s->board->pages[rank];
    const int result = atomic_load(&page->result);

    return atomic_load(&page->phase) == BOARD_ENDED && result >= 0 &&
           result < STATUS_COUNT && result != ERR_PEER && !is_wrong(page);
}

enum look watch_once(struct supervisor *s, struct incident *incident,
                     status *result)
{
    struct pollfd poll_one = {.fd = s->signals, .events = POLLIN};
    int changed;

    if (crew_wait(&s->crew, &poll_one, 1, LOOK_MS, &changed) != OK) {
        *result = ERR_IO;
        return LOOK_OVER;
    }
    atomic_store(&s->board->beat_ns, clock_ns());
    supervisor_hear(s);
    pass_signal_on(s);
    if (s->insists) return LOOK_OVER;
    while (changed >= 0) {
        see_step(s, changed);
        if (said_its_end(s, changed)) {
            see_end(s, changed, result);
        } else if (s->failed_ns == 0) {
            see_death(s, changed, incident);
            return LOOK_INCIDENT;
        }
        if (crew_wait(&s->crew, NULL, 0, 0, &changed) != OK) return LOOK_OVER;
    }
    if (is_over(s)) return LOOK_OVER;
    if (s->failed_ns != 0) return LOOK_ON;
    return see_wrong(s, incident) || see_hang(s, incident) ||
                   see_orphan(s, incident)
               ? LOOK_INCIDENT
               : LOOK_ON;
}
