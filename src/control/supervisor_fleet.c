/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor_fleet.c - generations on agents: which layout fits the places
 * that are there, and how a run goes from one layout to another. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "control/straggler.h"
#include "control/watch.h"

enum { COME_BACK_MS = 10000, GROW_MS = 1000, IN_VAIN_CONVERTED = 2,
       FORGIVE_MS = 3000, SLOW_LOOK_S = 5, SLOW_AGAIN_S = 600,
       /* The agent that the supervisor starts itself: pauses, and how often. */
       AGENT_MS = 2000, AGENT_MOST_MS = 16000, AGENTS_MOST = 6 };

/* ---- layouts ---- */

static void pass_a_moment(struct supervisor *s)
{
    atomic_store(&s->board->beat_ns, clock_ns());
    fleet_look(s->fleet, 50);
    supervisor_hear(s);
    journal_poll(&s->journal);
}

/* Stops waiting when somebody asks. */
static status wait_a_moment(struct supervisor *s)
{
    pass_a_moment(s);
    if (s->asked != 0)
        FAIL(ERR_STOPPED, "stopped while it waited for agents");
    return OK;
}

/* A new run has no directory before its first rank makes it: its lock is made,
 * so that others find the run, and a second supervisor is refused. A disk that
 * fails is no reason to refuse: the ranks will. */
static status claim_new(struct supervisor *s)
{
    status result;

    if (s->how->listens != NULL || s->journal.lock.descriptor > 0) return OK;
    result = directory_make_private(s->how->run);
    if (result == OK) result = journal_claim(&s->journal);
    if (result == ERR_CONFIG) return status_pass(result, __FILE__, __LINE__);
    if (result != OK) status_clear();
    return OK;
}

static void tell_waiting(const struct supervisor *s, bool *told)
{
    const char *listens = s->fleet->door.address;
    char reached[DOOR_ADDRESS_BYTES];

    if (*told) return;
    *told = true;
    door_reached(listens, reached);
    fprintf(stderr, "waiting   for agents: %d of %d places are here; join "
                    "with: lockstep agent --join %s --token FILE%s\n",
            fleet_usable(s->fleet), s->how->ranks, reached,
            strcmp(reached, listens) != 0
                ? " (or any other address of this machine)" : "");
}

/* The agent of this machine may have ended, too: it is started again. */
static status restart_agent(struct supervisor *s, int *tries, int64_t *next)
{
    int64_t pause_ms = AGENT_MS;

    if (s->how->listens == NULL || fleet_nodes(s->fleet) > 0 ||
        clock_ns() < *next)
        return OK;
    if (*tries >= AGENTS_MOST)
        FAIL(ERR_PEER, "the agent of this machine was started %d times and "
             "did not join; the checkpoints stand", *tries);
    for (int i = 0; i < *tries && pause_ms < AGENT_MOST_MS; i++) pause_ms *= 2;
    *next = clock_ns() + pause_ms * 1000000;
    ++*tries;
    return s->how->listens(s->how->argument, s->fleet->door.address);
}

/* Nobody else can be waited for where agents of other machines do not join. */
static status refuse_wrong(const struct supervisor *s)
{
    status result;

    if (s->how->listens == NULL || !fleet_is_wrong(s->fleet)) return OK;
    result = status_fail(ERR_DEVICE, __FILE__, __LINE__, "%s; there is no "
                         "other machine; what is saved was compared before "
                         "and is right", s->wrong);
    return status_hint(result, "find the fault with: lockstep doctor; then "
                               "lockstep resume %s", s->how->run);
}

static bool is_here(const struct fleet *fleet, const char *name)
{
    for (int i = 0; i < fleet->count; i++)
        if (strcmp(fleet->nodes[i].name, name) == 0)
            return fleet->nodes[i].wire.descriptor >= 0;
    return false;
}

/* Machines that had ranks before this supervisor was started may join a little
 * later than others; without their shards the run would go far back. */
static bool waits_for_shards(struct supervisor *s)
{
    int missing = 0;

    if (s->fleet->stores.directory[0] == '\0' || s->layout_ranks > 0)
        return false;
    if (s->wanted_until_ns == 0)
        s->wanted_until_ns = clock_ns() + (int64_t)COME_BACK_MS * 1000000;
    for (int i = 0; i < s->wanted_count; i++)
        missing += !is_here(s->fleet, s->wanted[i]);
    return missing > 0 && clock_ns() < s->wanted_until_ns;
}

/* The layout of the next generation. A new run waits for all of its places. */
static status choose_layout(struct supervisor *s, bool begun, char *layout,
                            int *ranks)
{
    const int64_t began = clock_ns();
    const int64_t end = began + (int64_t)COME_BACK_MS * 1000000;
    int64_t next = began;
    int tries = 0;
    bool told = false;

    for (;;) {
        const int usable = fleet_usable(s->fleet);
        const bool waits = s->layout_ranks == 0 &&
                           (!begun || clock_ns() < end);

        *ranks = 0;
        if (waits_for_shards(s)) {
            TRY(wait_a_moment(s));
            continue;
        }
        if (usable >= s->how->ranks || (!waits && usable > 0))
            TRY(s->how->layout(s->how->argument,
                               usable < s->how->ranks ? usable
                                                      : s->how->ranks,
                               layout, ranks));
        if (*ranks > 0) return OK;
        TRY(refuse_wrong(s));
        if (usable == 0 &&
            clock_ns() - began > (int64_t)FORGIVE_MS * 1000000 &&
            fleet_forgive(s->fleet))
            continue;
        if (!told && !begun) TRY(claim_new(s));
        tell_waiting(s, &told);
        TRY(restart_agent(s, &tries, &next));
        TRY(wait_a_moment(s));
    }
}

static void tell_layout(struct supervisor *s, const char *event)
{
    struct json_writer w;

    journal_line(&w, event);
    json_write_key_text(&w, "layout", s->layout);
    json_write_key_integer(&w, "ranks", s->layout_ranks);
    json_write_key_integer(&w, "step", s->most_steps);
    journal_put(&s->journal, &w);
}

/* Copies in memory are of the old layout. Before another one begins they are
 * made a checkpoint, which knows none. */
static status next_layout(struct supervisor *s, bool begun)
{
    char layout[LAYOUT_WORDS_BYTES] = "";
    int ranks;

    TRY(choose_layout(s, begun, layout, &ranks));
    s->converts = begun && s->layout_ranks > 0 && !s->saved &&
                  strcmp(layout, s->layout) != 0 &&
                  s->converted_in_vain < IN_VAIN_CONVERTED;
    if (s->converts) {
        s->converted_in_vain++;
        s->asked = SIGUSR1;
        return OK;
    }
    const bool changes = s->layout_ranks > 0 &&
                         strcmp(layout, s->layout) != 0;

    memcpy(s->layout, layout, sizeof layout);
    s->layout_ranks = ranks;
    s->saved = false;
    s->converted_in_vain = 0;
    s->grow_ns = clock_ns() + (int64_t)GROW_MS * 1000000;
    if (!changes) return OK;
    tell_layout(s, "layout");
    fprintf(stderr, "layout    goes on with %d ranks: %s\n", ranks, layout);
    return OK;
}

/* Said once, and again whenever it changes. */
void generation_copies(struct supervisor *s)
{
    char text[256];
    struct json_writer w;

    if (s->fleet == NULL || !s->fleet->paired) return;
    s->fleet->paired = false;
    fleet_survives(s->fleet, text);
    if (strcmp(text, s->fleet->survives) == 0) return;
    memcpy(s->fleet->survives, text, sizeof text);
    fprintf(stderr, "%s\n", text[0] != '\0' ? text
                : "copies on one node: no node may be lost");
    journal_line(&w, "copies");
    json_write_key_text(&w, "survives", text);
    journal_put(&s->journal, &w);
}

void generation_leases(struct supervisor *s)
{
    struct json_writer w;

    if (s->fleet == NULL || s->fleet->lease_wish_ms <= s->fleet->lease_most_ms)
        return;
    journal_line(&w, "lease");
    json_write_key_integer(&w, "longest_ms", s->fleet->lease_wish_ms);
    journal_put(&s->journal, &w);
    s->fleet->lease_most_ms = s->fleet->lease_wish_ms;
}

void generation_stragglers(struct supervisor *s)
{
    const int64_t now = clock_ns();
    struct straggler found;
    struct json_writer w;
    char text[120];

    if (s->fleet == NULL || now < s->slow.look_ns) return;
    s->slow.look_ns = now + (int64_t)SLOW_LOOK_S * 1000000000;
    found = straggler_by_waits(s->board);
    if (found.rank < 0 ||
        (found.rank == s->slow.rank && now < s->slow.again_ns))
        return;
    s->slow.rank = found.rank;
    s->slow.again_ns = now + (int64_t)SLOW_AGAIN_S * 1000000000;
    straggler_text(&found, text);
    fprintf(stderr, "straggler %s, on node %s\n", text,
            s->fleet->nodes[s->fleet->at[found.rank].node].name);
    journal_line(&w, "straggler");
    json_write_key_integer(&w, "rank", found.rank);
    json_write_key_text(&w, "node",
                        s->fleet->nodes[s->fleet->at[found.rank].node].name);
    json_write_key_real(&w, "waited_share", found.share);
    journal_put(&s->journal, &w);
}

static status give_orders(struct supervisor *s, bool begun)
{
    static struct order order;

    for (int i = 0; i < s->crew.size; i++) {
        order = (struct order){.generation = s->crew.generation,
                               .job = s->crew.job};
        snprintf(order.meet, sizeof order.meet, "%s",
                 s->crew.meeting.door.address);
        if (getcwd(order.folder, sizeof order.folder) == NULL)
            FAIL(ERR_IO, "the name of this folder is too long");
        TRY(s->how->words(s->how->argument, begun, s->layout, &order));
        if (fleet_order(s->fleet, i, &order) != OK)
            status_clear(); /* the node is lost: the next look sees it */
    }
    return OK;
}

/* Places may have gone since the layout was chosen. A conversion for which
 * there are too few is given up: the newest checkpoint knows no layout. */
static status choose_again(struct supervisor *s)
{
    fprintf(stderr, "layout    %s%s\n", status_message(),
            s->converts ? "; goes on from the newest checkpoint" : "");
    status_clear();
    if (s->converts) {
        s->converted_in_vain = IN_VAIN_CONVERTED;
        s->converts = false;
        s->asked = s->wished;
    }
    return wait_a_moment(s);
}

static status begin_generation(struct supervisor *s, uint64_t generation,
                               bool begun, bool *seated)
{
    TRY(next_layout(s, begun));
    /* Nodes that came back while it was chosen may still have ranks, and drop
     * orders for their places. */
    crew_fence(&s->crew);
    s->crew.size = s->layout_ranks;
    TRY(crew_begin(&s->crew, generation));
    board_clear(s->board);
    atomic_store(&s->board->generation, generation);
    for (int i = 0; i < s->how->ranks; i++) s->sights[i] = (struct sight){0};
    *seated = fleet_seat(s->fleet, s->converts) == OK;
    return *seated ? OK : choose_again(s);
}

/* Ranks of an earlier one that live without a supervisor, and were not found,
 * stop writing. A disk that fails is no reason to wait: leases have ended. */
static void announce(const struct supervisor *s, uint64_t generation,
                     bool begun)
{
    if (!begun || lease_announce(s->how->run, generation) == OK) return;
    LOG(WARNING, "supervise", "%s", status_message());
    status_clear();
}

status generation_of_agents(struct supervisor *s, uint64_t generation,
                            bool begun)
{
    bool seated = false;

    while (!seated) TRY(begin_generation(s, generation, begun, &seated));
    announce(s, generation, begun);
    fleet_move(s->fleet);
    return give_orders(s, begun);
}

bool generation_goes_on(struct supervisor *s, status *result)
{
    const bool wanted = s->converts || s->regroups;

    s->converts = s->regroups = false;
    if (!wanted || *result != ERR_STOPPED || s->wished != 0) return false;
    s->asked = 0;
    s->saved = true;
    *result = OK;
    status_clear();
    return true;
}

static bool all_step(const struct supervisor *s)
{
    for (int i = 0; i < s->crew.size; i++)
        if (atomic_load(&s->board->pages[i].phase) != BOARD_STEPS)
            return false;
    return true;
}

/* Where nodes share no file system, only this says here that the run has begun:
 * those that come next go on with it. */
static status note_begun(struct supervisor *s)
{
    TRY(directory_make_private(s->how->run));
    s->journal.elsewhere = true;
    journal_poll(&s->journal);
    return lease_announce(s->how->run, s->crew.generation);
}

static void mark_begun(struct supervisor *s)
{
    if (s->marked || s->fleet->stores.directory[0] == '\0') return;
    for (int i = 0; i < s->crew.size && !s->marked; i++)
        s->marked = atomic_load(&s->board->pages[i].phase) == BOARD_STEPS;
    if (!s->marked || note_begun(s) == OK) return;
    LOG(WARNING, "supervise", "%s", status_message());
    status_clear();
    s->marked = false;
}

void generation_grow(struct supervisor *s)
{
    char layout[LAYOUT_WORDS_BYTES] = "";
    int ranks = 0, usable;

    if (s->fleet != NULL) mark_begun(s);
    if (s->fleet == NULL || s->converts || s->regroups || s->asked != 0 ||
        s->layout_ranks >= s->how->ranks || clock_ns() < s->grow_ns ||
        s->open_incident != 0 || !all_step(s))
        return;
    s->grow_ns = clock_ns() + (int64_t)GROW_MS * 1000000;
    usable = fleet_usable(s->fleet);
    if (usable <= s->layout_ranks ||
        (s->full.places == usable && s->full.ranks == s->layout_ranks))
        return;
    if (s->how->layout(s->how->argument, usable < s->how->ranks
                           ? usable : s->how->ranks, layout, &ranks) != OK)
        status_clear();
    if (ranks <= s->layout_ranks) {
        s->full.ranks = s->layout_ranks;
        s->full.places = usable;
        return;
    }
    fprintf(stderr, "layout    %d places are here again: saves after this "
                    "step, then %d ranks\n", usable, ranks);
    tell_layout(s, "grows");
    s->regroups = true;
    s->asked = SIGUSR1;
}

/* ---- another supervisor was here before ---- */

void json_key_seat(struct json_writer *w, const struct fleet *fleet, int rank)
{
    const struct rank_seat *at = &fleet->at[rank];

    json_write_key_text(w, "node", at->node >= 0
                                       ? fleet->nodes[at->node].name : "");
    json_write_key_integer(w, "place", at->place);
    json_write_key_integer(w, "order", (int64_t)at->order);
}

static int64_t number_in(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && found->kind == JSON_INTEGER ? found->integer : 0;
}

static const char *text_in(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && found->kind == JSON_STRING ? found->string : "";
}

static double real_in(const struct json *line, const char *key)
{
    const struct json *found = json_get(line, key);

    return found != NULL && (found->kind == JSON_INTEGER ||
                             found->kind == JSON_REAL) ? found->real : 0;
}

void supervisor_reopen(struct supervisor *s, const struct journal_lines *lines)
{
    const struct json *incident = NULL;
    double passed_s;

    for (int i = 0; i < lines->count; i++) {
        const char *event = text_in(lines->items[i], "event");

        if (strcmp(event, "incident") == 0) incident = lines->items[i];
        if (strcmp(event, "recovered") == 0) incident = NULL;
    }
    if (incident == NULL) return;
    s->open_incident = (int)number_in(incident, "incident");
    s->open_step = number_in(incident, "step");
    /* Nothing is lost by a clock that was set back. */
    passed_s = clock_wall_s() - real_in(incident, "time");
    if (!(passed_s > 0 && passed_s < 4e9)) passed_s = 0;
    s->open_since_ns = clock_ns() - (int64_t)(1e9 * passed_s);
}

static void want_nodes(struct supervisor *s, const struct json *start)
{
    const struct json *ranks = json_get(start, "ranks");

    s->wanted_count = 0;
    for (int i = 0; ranks != NULL && ranks->kind == JSON_ARRAY &&
                    i < ranks->count && s->wanted_count < NODES_MOST; i++) {
        const char *name = text_in(&ranks->items[i], "node");
        bool known = name[0] == '\0';

        for (int j = 0; j < s->wanted_count && !known; j++)
            known = strcmp(s->wanted[j], name) == 0;
        if (!known)
            snprintf(s->wanted[s->wanted_count++], NODE_NAME_BYTES, "%s",
                     name);
    }
}

/* A lease as long as any that was given may still be running. */
static void note_lease(struct fleet *fleet, int64_t longest_ms)
{
    if (longest_ms <= fleet->lease_most_ms || longest_ms > NODE_LEASE_MOST_MS)
        return;
    fleet->lease_most_ms = fleet->lease_wish_ms = longest_ms;
}

/* The newest start, if its ranks may still be at work. */
static const struct json *last_start(struct supervisor *s,
                                     const struct journal_lines *lines)
{
    const struct json *start = NULL;

    for (int i = 0; i < lines->count; i++) {
        const struct json *line = lines->items[i];
        const char *event = text_in(line, "event");

        if (strcmp(event, "start") == 0) start = line;
        if (strcmp(event, "start") == 0) want_nodes(s, line);
        if (strcmp(event, "end") == 0) start = NULL;
        if (strcmp(event, "incident") == 0) s->incidents++;
        note_lease(s->fleet, number_in(line, "longest_ms"));
        if (number_in(line, "generation") > (int64_t)s->crew.generation)
            s->crew.generation = (uint64_t)number_in(line, "generation");
        if (number_in(line, "last_order") > (int64_t)s->fleet->last_order)
            s->fleet->last_order = (uint64_t)number_in(line, "last_order");
    }
    return start;
}

static bool seat_is_there(const struct fleet *fleet, const struct json *rank)
{
    const int64_t place = number_in(rank, "place");

    for (int i = 0; i < fleet->count; i++) {
        const struct node *node = &fleet->nodes[i];

        if (strcmp(node->name, text_in(rank, "node")) != 0 ||
            node->wire.descriptor < 0 || !node->reported || place < 0 ||
            place >= node->places)
            continue;
        return node->seats[place].report.ordered ==
               (uint64_t)number_in(rank, "order");
    }
    return false;
}

static int seats_there(const struct fleet *fleet, const struct json *ranks)
{
    int there = 0;

    for (int i = 0; i < ranks->count; i++)
        there += seat_is_there(fleet, &ranks->items[i]);
    return there;
}

/* Whether its ranks could go on under this supervisor. */
static bool may_go_on(const struct supervisor *s, const struct json *start)
{
    const struct json *ranks = json_get(start, "ranks");

    return ranks != NULL && ranks->kind == JSON_ARRAY && ranks->count >= 1 &&
           ranks->count <= s->how->ranks &&
           text_in(start, "layout")[0] != '\0';
}

/* If not all ranks are here, the others may live until their lease ends. */
static status take_over(struct supervisor *s, const struct json *start,
                        bool *watches)
{
    const struct json *ranks = json_get(start, "ranks");
    const int64_t end =
        clock_ns() + (s->fleet->lease_most_ms + NODE_MARGIN_MS) * 1000000;
    const bool fits = may_go_on(s, start);

    if (fits) {
        snprintf(s->layout, sizeof s->layout, "%s", text_in(start, "layout"));
        s->layout_ranks = s->crew.size = ranks->count;
    }
    /* A signal is for the ranks, which are at work and can save; those that do
     * not fit are not taken over, and would not get it. */
    while ((fits ? seats_there(s->fleet, ranks) < ranks->count
                 : s->asked == 0) && clock_ns() < end && !s->insists)
        pass_a_moment(s);
    if (s->insists || (!fits && s->asked != 0)) return wait_a_moment(s);
    if (!fits) return OK;
    *watches = seats_there(s->fleet, ranks) == ranks->count &&
               number_in(start, "converts") == 0;
    if (!*watches) return OK;
    for (int i = 0; i < ranks->count; i++)
        fleet_believe(s->fleet, i, text_in(&ranks->items[i], "node"),
                      (int)number_in(&ranks->items[i], "place"),
                      (uint64_t)number_in(&ranks->items[i], "order"));
    fprintf(stderr, "took over %d ranks of generation %llu, which are at "
                    "work\n", ranks->count,
            (unsigned long long)s->crew.generation);
    return OK;
}

status supervisor_adopt_agents(struct supervisor *s, bool *watches)
{
    struct journal_lines lines;
    struct arena arena = {0};
    const struct json *start;
    status result;

    arena_init(&arena, "journal", 0);
    s->fleet->adopts = true;
    result = journal_read(&lines, &arena, s->how->run);
    start = result == OK ? last_start(s, &lines) : NULL;
    if (result == OK) supervisor_reopen(s, &lines);
    if (result == ERR_MISSING) { /* nobody supervised the run so far */
        status_clear();
        result = OK;
    }
    if (start != NULL) result = take_over(s, start, watches);
    arena_free(&arena);
    s->fleet->adopts = false;
    return result;
}
