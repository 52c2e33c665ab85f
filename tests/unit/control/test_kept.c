/* SPDX-License-Identifier: Apache-2.0 */
/* test_kept.c - mirrors src/control/kept.c and watch.c: who is named where some
 * ranks wait for others, and one of them for another node. Ranks are pages that
 * the test writes; the clock is virtual, and passes while the supervisor
 * waits. */
#include "control/watch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "tests/test.h"
#include "tests/unit/control/virtual_poll.h"

enum { RANKS = 3 };

static struct crew_member members[RANKS];
static struct board *board;
static struct fleet fleet;
static struct rank_seat seats[RANKS];
static struct sight sights[RANKS];
static bool beats[RANKS];   /* that rank gets on, */
static bool starved[RANKS]; /* or wants to, and the system does not let it */

void others_act(void) {} /* speak() does */

static int polls(void *of, struct pollfd *all)
{
    (void)of;
    (void)all;
    return 0;
}

/* Their machine says how they are. */
static void speak(void *of)
{
    (void)of;
    for (int i = 0; i < RANKS; i++) {
        if (starved[i])
            members[i].kept.kept_ns += virtual_ns - members[i].heard_ns;
        members[i].heard_ns = virtual_ns;
        if (beats[i]) atomic_fetch_add(&board->pages[i].flight.beats, 1);
    }
}

static struct crew_far far = {.polls = polls, .step = speak};

/* Rank 0 only waits until node b has its copy, rank 1 for rank 0 in a call, and
 * rank 2 computes. A step takes 100 ms, so 2.5 s of silence are a hang. */
static void open_run(struct supervisor *s)
{
    static const struct supervision how = {.ranks = RANKS, .limit_ms = 60000};

    virtual_ns = 1000000000;
    IS_OK(board_make(&board, RANKS, &(int){0}));
    memset(sights, 0, sizeof sights);
    memset(beats, 0, sizeof beats);
    memset(starved, 0, sizeof starved);
    beats[0] = beats[2] = true;
    for (int i = 0; i < RANKS; i++) {
        members[i] = (struct crew_member){
            .process = 4711 + i, .far = true, .lives = true, .state = 'S',
            .descriptor = -1, .heard_ns = virtual_ns};
        atomic_store(&board->pages[i].phase, BOARD_STEPS);
    }
    atomic_store(&board->pages[0].flight.awaits, 1);
    board->pages[1].flight.entries[1] = (struct flight_entry){
        .number = 1, .size = RANKS, .began_ns = virtual_ns};
    fleet.at = seats;
    fleet.nodes[0].partners[0] = 1;
    memcpy(fleet.nodes[1].name, "b", 2);
    *s = (struct supervisor){
        .how = &how, .board = board, .fleet = &fleet, .sights = sights,
        .signals = -1, .usual_ns = 100000000, .looked_ns = virtual_ns,
        .crew = {.size = RANKS, .members = members, .far = &far}};
    s->crew.meeting.door.listener = -1;
    for (int i = 0; i < DOOR_CLIENTS; i++)
        s->crew.meeting.door.clients[i].descriptor = -1;
}

static void close_run(void)
{
    board_close(board);
    virtual_ns = 0;
}

/* Until there is an incident, or so long: seconds. */
static double watch_for(struct supervisor *s, double seconds,
                        struct incident *incident)
{
    const int64_t began = virtual_ns;
    status result;

    while (1e-9 * (double)(virtual_ns - began) < seconds &&
           watch_once(s, incident, &result) == LOOK_ON)
        continue;
    return 1e-9 * (double)(virtual_ns - began);
}

/* It was named as the one that hangs, after 2.5 s. */
TEST(a_rank_that_waits_for_a_partner_does_not_hang)
{
    struct supervisor s;
    struct incident incident = {0};

    open_run(&s);
    CHECK(watch_for(&s, 30, &incident) >= 30);
    atomic_store(&board->pages[0].flight.awaits, 0); /* goes on, and hangs */
    beats[0] = beats[2] = false;
    board->pages[2].flight.entries[1] = board->pages[1].flight.entries[1];
    CHECK(watch_for(&s, 30, &incident) < 3);
    EQUAL_INT(incident.kind, INCIDENT_HANG);
    EQUAL_INT(incident.rank, 0);
    CHECK(strstr(incident.cause, "hangs: no sign of life") != NULL);
    close_run();
}

/* Its own process may be stopped, or gone from the system's view. */
TEST(a_rank_that_waits_for_a_partner_must_get_on)
{
    for (int stopped = 0; stopped < 2; stopped++) {
        struct supervisor s;
        struct incident incident = {0};

        open_run(&s);
        CHECK(watch_for(&s, 10, &incident) >= 10);
        beats[0] = false;
        if (stopped) members[0].state = 'T';
        CHECK(watch_for(&s, 30, &incident) < 3.5);
        EQUAL_INT(incident.rank, 0);
        close_run();
    }
}

/* The system may keep it from running meanwhile; then it gets on, or not. */
TEST(a_rank_that_waits_for_a_partner_may_be_starved)
{
    struct supervisor s;
    struct incident incident = {0};

    open_run(&s);
    CHECK(watch_for(&s, 10, &incident) >= 10);
    beats[0] = false;
    starved[0] = true;
    CHECK(watch_for(&s, 30, &incident) >= 30);
    starved[0] = false;
    beats[0] = true;
    CHECK(watch_for(&s, 10, &incident) >= 10);
    beats[0] = false;
    CHECK(watch_for(&s, 30, &incident) < 3.5);
    EQUAL_INT(incident.rank, 0);
    close_run();
}

/* One in a call that is stopped waits for nobody. */
TEST(a_stopped_rank_is_named_while_another_waits_for_a_partner)
{
    struct supervisor s;
    struct incident incident = {0};

    open_run(&s);
    CHECK(watch_for(&s, 10, &incident) >= 10);
    members[1].state = 'T';
    CHECK(watch_for(&s, 30, &incident) < 3.5);
    EQUAL_INT(incident.kind, INCIDENT_HANG);
    EQUAL_INT(incident.rank, 1);
    CHECK(strstr(incident.cause, "hangs (stopped)") != NULL);
    close_run();
}

TEST(the_node_is_named_that_is_waited_for_without_end)
{
    struct supervisor s;
    struct incident incident = {0};
    double seconds;

    open_run(&s);
    beats[2] = false;
    board->pages[2].flight.entries[1] = board->pages[1].flight.entries[1];
    seconds = watch_for(&s, 90, &incident);
    CHECK(seconds > 60 && seconds < 64); /* comm.limit, and 2.5 s */
    EQUAL_INT(incident.kind, INCIDENT_HANG);
    EQUAL_INT(incident.rank, 0);
    CHECK(strstr(incident.cause, "no copy of its state has reached node b;") !=
          NULL);
    close_run();
}

/* One that hangs by itself is named in time, whoever waits for a partner, and
 * also after such a wait was too long. */
TEST(a_rank_that_hangs_is_named_while_another_waits_for_a_partner)
{
    static const double after_s[] = {0, 58, 61};

    for (int i = 0; i < ROWS(after_s); i++) {
        struct supervisor s;
        struct incident incident = {0};

        open_run(&s);
        CHECK(watch_for(&s, after_s[i], &incident) >= after_s[i]);
        beats[2] = false;
        CHECK(watch_for(&s, 30, &incident) < 5);
        EQUAL_INT(incident.kind, INCIDENT_HANG);
        EQUAL_INT(incident.rank, 2);
        CHECK(strstr(incident.cause, "hangs: no sign of life") != NULL);
        close_run();
    }
}

/* Waits of one step after the other are none that is too long. */
TEST(each_step_may_wait_for_a_partner)
{
    struct supervisor s;
    struct incident incident = {0};

    open_run(&s);
    for (int step = 1; step < 8; step++) {
        atomic_store(&board->pages[0].step, step);
        CHECK(watch_for(&s, 20, &incident) >= 20);
    }
    close_run();
}

TEST_MAIN(a_rank_that_waits_for_a_partner_does_not_hang,
          a_rank_that_waits_for_a_partner_must_get_on,
          a_rank_that_waits_for_a_partner_may_be_starved,
          a_stopped_rank_is_named_while_another_waits_for_a_partner,
          the_node_is_named_that_is_waited_for_without_end,
          a_rank_that_hangs_is_named_while_another_waits_for_a_partner,
          each_step_may_wait_for_a_partner)
