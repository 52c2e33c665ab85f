/* SPDX-License-Identifier: Apache-2.0 */
/* test_fleet.c - mirrors src/control/fleet*.c: whatever an agent does not do,
 * the supervisor's waits end. Agents are wires in this process; the clock is
 * virtual, and passes only while the supervisor waits. */
#include "control/fleet.h"
#include "control/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "comm/patience.h"
#include "tests/test.h"
#include "tests/unit/control/virtual_poll.h"

enum { AGENTS = 3, RANKS = 2 };

/* An agent of two places: what it does with an order to end its ranks. */
struct fake {
    struct wire wire;
    const char *name;
    struct slot_report places[2];
    bool obeys, moves, leaves; /* leaves: once, instead of obeying */
    bool mute, deaf, forges; /* forges: once, and never comes back */
    bool late;               /* its first report comes after its hello */
    bool hasty, over;        /* it reports before it reads; the run is over */
    int64_t lease_ns;        /* as an agent would reckon it */
    int64_t beat_ns;
    int fences;
};

static struct fleet fleet;
static struct crew crew;
static struct crew_member members[RANKS];
static struct token token;
static struct fake agents[AGENTS];

/* To that descriptor the system can send nothing any more; -1: none. */
static int unreachable = -1;

ssize_t send(int descriptor, const void *bytes, size_t length, int flags)
{
    if (descriptor != unreachable)
        return sendto(descriptor, bytes, length, flags, NULL, 0);
    errno = ETIMEDOUT;
    return -1;
}

static void act(struct fake *agent);

void others_act(void)
{
    for (int i = 0; i < AGENTS; i++) act(&agents[i]);
}

/* ---- agents ---- */

static void tell(struct fake *agent)
{
    char bytes[sizeof(struct node_report) + sizeof agent->places];
    const struct node_report head = {.now_ns = clock_ns(), .places = 2,
                                     .beat_ns = agent->beat_ns};

    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, agent->places, sizeof agent->places);
    if (wire_put(&agent->wire, WIRE_REPORT, bytes, sizeof bytes) != OK)
        status_clear();
}

static void renew(struct fake *agent, int64_t from_ns)
{
    const int64_t end = from_ns + (int64_t)NODE_LEASE_MS * 1000000;

    if (from_ns > 0 && end > agent->lease_ns) agent->lease_ns = end;
}

/* Straight to the newcomers: the door is tested elsewhere. */
static void join(struct fake *agent)
{
    struct node_hello hello = {.slots = 2, .places = 2};
    int ends[2];

    snprintf(hello.name, sizeof hello.name, "%s", agent->name);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    IS_OK(wire_open(&fleet.newcomers[0], ends[0], &token, true));
    IS_OK(wire_open(&agent->wire, ends[1], &token, false));
    IS_OK(wire_put(&agent->wire, WIRE_HELLO, &hello, sizeof hello));
    if (!agent->late) tell(agent);
}

static void end_ranks(struct fake *agent)
{
    for (int i = 0; i < 2; i++)
        agent->places[i].done = agent->places[i].ordered;
}

static void leave(struct fake *agent)
{
    agent->leaves = false;
    wire_close(&agent->wire);
}

static void hear(struct fake *agent, const struct wire_head *head,
                 const void *bytes)
{
    const uint32_t kind = head->kind;
    struct node_move move;
    struct node_beat beat;

    if (kind == WIRE_BEAT) {
        memcpy(&beat, bytes, sizeof beat);
        renew(agent, beat.echo_ns);
        agent->beat_ns = beat.sent_ns;
    }

    if (kind == WIRE_FENCE) {
        agent->fences++;
        if (agent->leaves) leave(agent); /* and the message is gone */
        else if (agent->obeys) end_ranks(agent);
    }
    if (kind == WIRE_END) {
        agent->over = true;
        wire_close(&agent->wire);
    }
    if (kind != WIRE_MOVE) return;
    memcpy(&move, bytes, sizeof move);
    if (!agent->moves) memcpy(move.name, "another", 8);
    IS_OK(wire_put(&agent->wire, WIRE_MOVED, &move, sizeof move));
}

static void act(struct fake *agent)
{
    const struct wire_head *head = NULL;
    const void *bytes;

    if (agent->name == NULL || agent->over) return;
    if (agent->hasty) tell(agent);
    if (agent->forges) {
        const struct wire_head forged = {.kind = WIRE_REPORT, .number = 1};

        CHECK(send(agent->wire.descriptor, &forged, sizeof forged, 0) > 0);
        agent->forges = false;
        agent->mute = agent->deaf = true;
    }
    if (agent->mute && agent->deaf) return;
    if (agent->wire.descriptor < 0) {
        if (fleet.newcomers[0].descriptor < 0) join(agent);
        return;
    }
    while (!agent->deaf && agent->wire.descriptor >= 0) {
        if (wire_get(&agent->wire, &head, &bytes) != OK) status_clear();
        if (head == NULL) break;
        hear(agent, head, bytes);
    }
    if (agent->wire.descriptor >= 0 && !agent->mute) tell(agent);
}

/* ---- the supervisor ---- */

static void open_fleet(int count)
{
    static const char *const names[] = {"a", "b", "c"};

    virtual_ns = 1000000000;
    IS_OK(token_draw(&token));
    IS_OK(fleet_open(&fleet, "127.0.0.1:0", &token, RANKS, 2));
    crew = (struct crew){.size = RANKS, .members = members,
                         .far = &fleet.far};
    memset(members, 0, sizeof members);
    fleet.crew = &crew;
    IS_OK(board_make(&fleet.board, RANKS, &(int){0}));
    for (int i = 0; i < AGENTS; i++)
        agents[i] = (struct fake){.wire.descriptor = -1, .obeys = true,
                                  .moves = true,
                                  .name = i < count ? names[i] : NULL};
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet_nodes(&fleet), count);
    EQUAL_INT(fleet_usable(&fleet), 2 * count);
}

static void close_fleet(void)
{
    for (int i = 0; i < AGENTS; i++) wire_close(&agents[i].wire);
    board_close(fleet.board);
    fleet_close(&fleet);
}

/* Both ranks work on that node. */
static void seat(int node)
{
    for (int i = 0; i < RANKS; i++) {
        fleet_believe(&fleet, i, agents[node].name, i, (uint64_t)i + 7);
        agents[node].places[i] = (struct slot_report){
            .place = i, .ordered = (uint64_t)i + 7, .taken = (uint64_t)i + 7,
            .process = 4711 + i};
    }
    for (int i = 0; i < 4; i++) fleet_look(&fleet, 50);
}

static double fence_s(void)
{
    const int64_t began = clock_ns();

    fleet.far.fence(&fleet);
    for (int i = 0; i < RANKS; i++) CHECK(!members[i].lives);
    return 1e-9 * (double)(clock_ns() - began);
}

TEST(fences_end_when_ranks_have_ended)
{
    open_fleet(2);
    seat(1);
    CHECK(fence_s() < 8); /* a node is given up after 10 s */
    EQUAL_INT(fleet_usable(&fleet), 4);
    close_fleet();
}

/* Its ranks may not be waited for without end, and its places may not be used
 * while they live. */
TEST(fences_give_up_a_node_whose_ranks_do_not_end)
{
    open_fleet(2);
    seat(1);
    agents[1].obeys = false;
    CHECK(fence_s() < 20);
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet_nodes(&fleet), 2); /* it came back */
    EQUAL_INT(fleet_usable(&fleet), 2);
    CHECK(fence_s() < 20); /* nor does it keep the next one */
    end_ranks(&agents[1]);
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet_usable(&fleet), 4);
    close_fleet();
}

/* The connection broke before the agent had read it. */
TEST(fences_are_said_again_to_a_node_that_comes_back)
{
    open_fleet(2);
    seat(1);
    agents[1].leaves = true;
    CHECK(fence_s() < 20);
    CHECK(agents[1].fences > 1);
    EQUAL_INT(fleet_usable(&fleet), 4);
    close_fleet();
}

/* An agent that nobody hears, or whose words were damaged under way, may have
 * ranks that live: the next generation waits for the end of their lease. */
static void expect_lease(bool mute, bool deaf, bool forges)
{
    double s;

    open_fleet(2);
    seat(1);
    for (int i = 0; i < 30; i++) fleet_look(&fleet, 50);
    CHECK(agents[1].lease_ns > virtual_ns + 2000000000);
    agents[1].mute = mute;
    agents[1].deaf = deaf;
    agents[1].forges = forges;
    agents[1].obeys = false;
    s = fence_s();
    CHECK(virtual_ns > agents[1].lease_ns);
    CHECK(s < 20);
    EQUAL_INT(fleet_usable(&fleet), 2);
    close_fleet();
}

TEST(fences_wait_for_the_end_of_a_lease)
{
    expect_lease(true, true, false);
    expect_lease(false, false, true);
    expect_lease(true, false, false); /* half a link: beats still arrive */
}

/* Answers that come late give no more time than the question had. */
TEST(beats_renew_from_the_time_of_the_report)
{
    struct node_beat beat;
    const struct wire_head *head = NULL;
    const void *bytes = NULL;
    int64_t newest = 0;

    open_fleet(1);
    agents[0].deaf = agents[0].mute = true;
    const int64_t last_ns = virtual_ns;

    for (int i = 0; i < 60; i++) fleet_look(&fleet, 50);
    while (wire_get(&agents[0].wire, &head, &bytes) == OK && head != NULL)
        if (head->kind == WIRE_BEAT) {
            memcpy(&beat, bytes, sizeof beat);
            newest = beat.echo_ns;
        }
    CHECK(newest > 0 && newest <= last_ns);
    close_fleet();
}

/* Half a link: its words come, but it hears none. */
TEST(a_node_that_hears_nothing_is_lost_in_time)
{
    open_fleet(2);
    seat(1);
    for (int i = 0; i < 200; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet.losses, 0);
    const int64_t began = virtual_ns;

    agents[1].deaf = true;
    while (fleet.losses == 0 && virtual_ns < began + 20000000000)
        fleet_look(&fleet, 50);
    CHECK(virtual_ns - began <= 5000000000);
    CHECK(members[0].gone && members[1].gone);
    CHECK(strstr(members[0].why, "node b: deaf for 4000 ms") != NULL);
    close_fleet();
}

static void lose_unreachable(void (*say)(void))
{
    open_fleet(2);
    seat(1);
    agents[1].mute = agents[1].deaf = true;
    unreachable = fleet.nodes[1].wire.descriptor;
    say();
    unreachable = -1;
    EQUAL_INT(fleet.losses, 1);
    EQUAL_TEXT(members[0].why, "was lost with node b: its machine is silent");
    close_fleet();
}

static void say_beat(void)
{
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
}

static void say_signal(void)
{
    fleet.far.signal(&fleet, 1, SIGUSR1);
}

/* The message may be one after which nobody looks for a reason. */
static void say_order(void)
{
    static struct order order;

    order.words = 0;
    EQUAL_INT(fleet_order(&fleet, 1, &order), ERR_PEER);
    status_clear();
    fleet_look(&fleet, 0);
}

/* The system may say so to who sends before it says so to who listens: that was
 * "the connection broke". */
TEST(a_dead_machine_is_named_by_who_sends_to_it)
{
    lose_unreachable(say_beat);
    lose_unreachable(say_signal);
    lose_unreachable(say_order);
}

/* The lease of the ranks before is over: an order that came before a beat would
 * make ranks that the agent ends at once. */
TEST(a_node_that_comes_back_has_a_lease_before_an_order)
{
    open_fleet(2);
    agents[1].mute = agents[1].deaf = true;
    for (int i = 0; i < 200; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet_usable(&fleet), 2);
    wire_close(&agents[1].wire);
    CHECK(agents[1].lease_ns < virtual_ns);
    fleet.beat_ns = virtual_ns; /* the next one is as far away as can be */
    agents[1].mute = agents[1].deaf = false;
    agents[1].late = true;
    for (int i = 0; i < 20 && fleet_usable(&fleet) < 4; i++)
        fleet_look(&fleet, 1);
    EQUAL_INT(fleet_usable(&fleet), 4);
    act(&agents[1]); /* it hears what was said before the order */
    CHECK(agents[1].lease_ns > virtual_ns);
    close_fleet();
}

/* Both ranks work on node b; s watches them. */
static void watch_node_b(struct supervisor *s, struct sight sights[RANKS])
{
    static const struct supervision how = {.ranks = RANKS, .limit_ms = 60000};

    open_fleet(2);
    seat(1);
    for (int i = 0; i < RANKS; i++) sights[i] = (struct sight){0};
    *s = (struct supervisor){.how = &how, .crew = crew, .fleet = &fleet,
                             .board = fleet.board, .sights = sights,
                             .signals = -1};
    s->crew.meeting.door.listener = -1;
    for (int i = 0; i < DOOR_CLIENTS; i++)
        s->crew.meeting.door.clients[i].descriptor = -1;
    for (int i = 0; i < RANKS; i++)
        agents[1].places[i].phase = BOARD_STEPS;
}

static void give_up_rank(int rank, status result)
{
    struct slot_report *r = &agents[1].places[rank];

    r->phase = BOARD_ENDED;
    r->result = (int)result;
    if (result != ERR_PEER) r->done = r->ordered;
}

static enum look watch_for_s(struct supervisor *s, int seconds,
                             struct incident *incident, status *result)
{
    const int64_t end = virtual_ns + seconds * 1000000000ll;
    enum look look = LOOK_ON;

    *result = OK;
    while (look == LOOK_ON && virtual_ns < end)
        look = watch_once(s, incident, result);
    return look;
}

/* The others may have ended long before it: the incident is of the rank that
 * is wrong, not of the first that waits. */
TEST(the_rank_that_is_wrong_is_waited_for)
{
    struct sight sights[RANKS];
    struct supervisor s;
    struct incident incident = {0};
    status result;

    watch_node_b(&s, sights);
    agents[1].places[0].verdict = BOARD_AWAITS;
    give_up_rank(0, ERR_PEER);
    EQUAL_INT(watch_for_s(&s, 5, &incident, &result), LOOK_ON);
    memcpy(agents[1].places[1].sentence, "another weight", 15);
    agents[1].places[1].verdict = BOARD_WRONG; /* it lives */
    EQUAL_INT(watch_for_s(&s, 5, &incident, &result), LOOK_INCIDENT);
    EQUAL_INT(incident.rank, 1);
    CHECK(incident.wrong);
    EQUAL_TEXT(incident.cause, "gave up: another weight");
    close_fleet();
}

/* A machine that was lost in the middle of a step was said to want to run, or
 * to wait for its data. */
TEST(nothing_is_known_of_a_machine_that_says_nothing)
{
    static const int64_t window_ns = 400000000;
    struct sight sights[RANKS];
    struct crew_member *m = &crew.members[0];
    struct supervisor s;

    watch_node_b(&s, sights);
    atomic_store(&fleet.board->pages[0].phase, BOARD_STEPS);
    m->state = 'R';
    atomic_store(&fleet.board->pages[0].flight.reads, 1);
    for (int i = 0; i < 5; i++) {
        sights[0].silent_ns += window_ns;
        kept_take_off(&s, window_ns);
    }
    EQUAL_INT(sights[0].kept_ns, 0);
    EQUAL_INT(sights[0].silent_ns, 5 * window_ns);
    m->heard_ns += window_ns; /* it speaks */
    kept_take_off(&s, window_ns);
    EQUAL_INT(sights[0].kept_ns, window_ns);
    atomic_store(&fleet.board->pages[0].flight.reads, 0);
    m->kept.kept_ns += window_ns / 2;
    kept_take_off(&s, window_ns);
    EQUAL_INT(sights[0].kept_ns, window_ns * 3 / 2);
    m->kept.kept_ns += window_ns / 8; /* said before the window is over */
    kept_take_off(&s, window_ns / 4);
    EQUAL_INT(sights[0].kept_ns, window_ns * 3 / 2);
    kept_look(&s);
    EQUAL_INT(sights[0].kept_ns, window_ns * 13 / 8);
    close_fleet();
}

/* It never says a word: the others are not kept for ever. */
TEST(a_rank_that_is_wrong_is_not_waited_for_without_end)
{
    struct sight sights[RANKS];
    struct supervisor s;
    struct incident incident = {0};
    status result;

    watch_node_b(&s, sights);
    agents[1].places[0].verdict = BOARD_AWAITS;
    give_up_rank(0, ERR_PEER);
    EQUAL_INT(watch_for_s(&s, 20, &incident, &result), LOOK_INCIDENT);
    EQUAL_INT(incident.kind, INCIDENT_CONNECTION);
    CHECK(!incident.wrong);
    close_fleet();
}

/* The connection of another rank broke first: the one that is wrong says so
 * while the generation is ended. */
TEST(a_verdict_during_the_fence_is_heard)
{
    struct sight sights[RANKS];
    struct supervisor s;
    struct incident incident = {0};
    status result;

    watch_node_b(&s, sights);
    give_up_rank(0, ERR_PEER);
    EQUAL_INT(watch_for_s(&s, 5, &incident, &result), LOOK_INCIDENT);
    EQUAL_INT(incident.kind, INCIDENT_CONNECTION);
    watch_verdicts(&s);
    CHECK(!fleet.nodes[1].wrong);
    memcpy(agents[1].places[1].sentence, "another weight", 15);
    agents[1].places[1].verdict = BOARD_WRONG;
    crew_fence(&s.crew);
    watch_verdicts(&s);
    CHECK(fleet.nodes[1].wrong && !fleet.nodes[0].wrong);
    EQUAL_TEXT(s.wrong, "rank 1 gave up: another weight");
    close_fleet();
}

/* A graphics card, or a library, that fails says nothing of the numbers. */
TEST(a_device_that_fails_ends_the_run_and_blames_no_node)
{
    struct sight sights[RANKS];
    struct supervisor s;
    struct incident incident = {0};
    status result;

    watch_node_b(&s, sights);
    for (int i = 0; i < RANKS; i++) give_up_rank(i, ERR_DEVICE);
    EQUAL_INT(watch_for_s(&s, 5, &incident, &result), LOOK_OVER);
    EQUAL_INT(result, ERR_DEVICE);
    EQUAL_INT(incident.kind, INCIDENT_NONE);
    status_clear();
    close_fleet();
}

/* A process that ended takes its ranks with it: nobody waits. */
TEST(an_agent_that_died_has_no_lease)
{
    open_fleet(2);
    seat(1);
    agents[1].mute = true;
    act(&agents[1]); /* it has read everything */
    wire_close(&agents[1].wire);
    agents[1].deaf = true;
    fleet_look(&fleet, 1);
    CHECK(fence_s() < 8);
    close_fleet();
}

static double move_s(void)
{
    const int64_t began = clock_ns();

    for (int i = 0; i < RANKS; i++) {
        fleet_settle(&fleet, i, 0);
        fleet.at[i] = (struct rank_seat){2, i, 9, 9};
    }
    fleet_move(&fleet);
    return 1e-9 * (double)(clock_ns() - began);
}

TEST(copies_are_moved_or_given_up)
{
    open_fleet(3);
    CHECK(move_s() < 20);
    EQUAL_INT(fleet.moved, RANKS);
    agents[0].moves = false; /* answers to other questions are none */
    CHECK(move_s() < 40);
    EQUAL_INT(fleet.moved, 0);
    close_fleet();
}

/* A node that failed twice is used again when there is no other. */
TEST(nodes_are_forgiven_when_none_is_left)
{
    open_fleet(1);
    CHECK(!fleet_forgive(&fleet));
    fleet.nodes[0].failures = NODE_FAILURES_MOST;
    EQUAL_INT(fleet_usable(&fleet), 0);
    CHECK(fleet_forgive(&fleet));
    EQUAL_INT(fleet_usable(&fleet), 2);
    close_fleet();
}

static void calls(struct fake *agent, uint64_t newest, int64_t ended_ns)
{
    struct slot_report *r = &agent->places[0];

    r->calls = newest;
    for (uint64_t i = 0; i < REPORT_ENTRIES && i < newest; i++)
        r->last[i] = (struct flight_entry){.number = newest - i,
                                           .call = newest - i,
                                           .began_ns = 5, .ended_ns = 6};
    r->last[0].ended_ns = ended_ns;
    for (int i = 0; i < 4; i++) fleet_look(&fleet, 50);
}

/* Reports are far apart: what one shows open has ended long before the next. */
TEST(calls_that_ended_between_reports_are_not_open)
{
    open_fleet(1);
    seat(0);
    const struct flight *flight = &fleet.board->pages[0].flight;

    calls(&agents[0], 1, 0);
    EQUAL_INT(flight_position(flight).number, 1);
    CHECK(flight_position(flight).ended_ns == 0);
    calls(&agents[0], 90, 6);
    EQUAL_INT(flight_position(flight).number, 90);
    calls(&agents[0], 95, 0);
    calls(&agents[0], 95, 0);
    EQUAL_INT(flight_position(flight).number, 95);
    CHECK(flight_position(flight).ended_ns == 0);
    close_fleet();
}

/* This supervisor sees recovered what the one before had not. */
TEST(an_incident_of_the_supervisor_before_is_open)
{
    static const char *const text[] = {
        "{\"event\": \"incident\", \"incident\": 1, \"step\": 7, \"time\": 1}",
        "{\"event\": \"recovered\", \"incident\": 1, \"time\": 2}",
        "{\"event\": \"incident\", \"incident\": 2, \"step\": 9, \"time\": 3}",
        "{\"event\": \"incident\", \"incident\": 3, \"time\": 4e9}"};
    const struct json *items[4];
    struct journal_lines lines = {.items = items};
    struct supervisor s = {.open_incident = 0};
    struct arena arena = {0};

    arena_init(&arena, "test", 0);
    for (int i = 0; i < 4; i++)
        IS_OK(json_read(&items[i], &arena, text[i], strlen(text[i]), "test"));
    lines.count = 2;
    supervisor_reopen(&s, &lines);
    EQUAL_INT(s.open_incident, 0);
    lines.count = 3;
    supervisor_reopen(&s, &lines);
    EQUAL_INT(s.open_incident, 2);
    EQUAL_INT(s.open_step, 9);
    lines.count = 4; /* a clock was set back since */
    supervisor_reopen(&s, &lines);
    CHECK(s.open_since_ns <= clock_ns());
    arena_free(&arena);
}

/* It was about to report when the run ended, and its connection broke: it
 * waited a minute for a supervisor that was through. */
TEST(the_end_reaches_an_agent_that_reports)
{
    open_fleet(2);
    struct board *board = fleet.board;
    const int64_t began = clock_ns();

    agents[0].hasty = true;
    agents[1].mute = agents[1].deaf = true; /* is not waited for much */
    fleet_end(&fleet);
    CHECK(clock_ns() - began < 20000000000); /* not a minute */
    fleet_close(&fleet);
    act(&agents[0]);
    CHECK(agents[0].over);
    for (int i = 0; i < 2; i++) wire_close(&agents[i].wire);
    board_close(board);
}

/* Round trips of 51 ms instead of 50 doubled it. */
TEST(leases_become_longer_by_little)
{
    open_fleet(1);
    patience_set(NODE_LEASE_MS + 8);
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet.lease_wish_ms, NODE_LEASE_MS + 500);
    fleet.lease_most_ms = fleet.lease_wish_ms; /* the journal has it */
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet.lease_wish_ms, NODE_LEASE_MS + 500);
    patience_set(20000);
    for (int i = 0; i < 20; i++) fleet_look(&fleet, 50);
    EQUAL_INT(fleet.lease_wish_ms, 20000);
    patience_set(0);
    close_fleet();
}

TEST_MAIN(the_end_reaches_an_agent_that_reports,
          leases_become_longer_by_little,
          an_incident_of_the_supervisor_before_is_open,
          calls_that_ended_between_reports_are_not_open,
          fences_end_when_ranks_have_ended,
          fences_give_up_a_node_whose_ranks_do_not_end,
          fences_are_said_again_to_a_node_that_comes_back,
          fences_wait_for_the_end_of_a_lease,
          beats_renew_from_the_time_of_the_report,
          a_node_that_comes_back_has_a_lease_before_an_order,
          a_node_that_hears_nothing_is_lost_in_time,
          a_dead_machine_is_named_by_who_sends_to_it,
          the_rank_that_is_wrong_is_waited_for,
          nothing_is_known_of_a_machine_that_says_nothing,
          a_verdict_during_the_fence_is_heard,
          a_rank_that_is_wrong_is_not_waited_for_without_end,
          a_device_that_fails_ends_the_run_and_blames_no_node,
          an_agent_that_died_has_no_lease,
          copies_are_moved_or_given_up, nodes_are_forgiven_when_none_is_left)
