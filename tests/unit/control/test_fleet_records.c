/* SPDX-License-Identifier: Apache-2.0 */
/* test_fleet_records.c - mirrors src/control/fleet_records.c and
 * agent_records.c: after an incident the supervisor has the recorders of far
 * ranks, whole, and does not wait for who does not answer. Both sides are the
 * program's, over a wire in this process; the clock is virtual. */
#include "control/fleet.h"
#include "control/agent_place.h"
#include "control/watch.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "tests/test.h"
#include "tests/unit/control/virtual_poll.h"

enum { RANKS = 2, MANY = 5000 };

static struct fleet fleet;
static struct crew crew;
static struct crew_member members[RANKS];
static struct token token;
static struct agent agent;
static struct place_memory places[RANKS];
static bool mute;

void others_act(void)
{
    const struct wire_head *head = NULL;
    const void *bytes;

    if (mute || agent.up.descriptor < 0) return;
    do {
        IS_OK(wire_get(&agent.up, &head, &bytes));
        if (head != NULL && head->kind == WIRE_RECORDS)
            IS_OK(agent_records(&agent, bytes));
    } while (head != NULL);
}

/* A node of two ranks. */
static void open_both(void)
{
    struct node_hello hello = {.name = "a", .slots = RANKS, .places = RANKS};
    int ends[2];

    virtual_ns = 1000000000;
    mute = false;
    IS_OK(token_draw(&token));
    IS_OK(fleet_open(&fleet, "127.0.0.1:0", &token, RANKS, 1));
    memset(members, 0, sizeof members);
    crew = (struct crew){.size = RANKS, .members = members,
                         .far = &fleet.far};
    fleet.crew = &crew;
    IS_OK(board_make(&fleet.board, RANKS, &(int){0}));
    memset(places, 0, sizeof places);
    agent = (struct agent){.places = places, .count = RANKS,
                            .up.descriptor = -1};
    IS_OK(board_make(&agent.board, RANKS, &(int){0}));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    IS_OK(wire_open(&fleet.newcomers[0], ends[0], &token, true));
    IS_OK(wire_open(&agent.up, ends[1], &token, false));
    IS_OK(wire_put(&agent.up, WIRE_HELLO, &hello, sizeof hello));
    for (int i = 0; i < 4; i++) fleet_look(&fleet, 5);
    EQUAL_INT(fleet_nodes(&fleet), 1);
    for (int i = 0; i < RANKS; i++) {
        fleet_believe(&fleet, i, "a", i, (uint64_t)i + 7);
        atomic_store(&places[i].taken, (uint64_t)i + 7);
    }
}

static void close_both(void)
{
    wire_close(&agent.up);
    board_close(agent.board);
    board_close(fleet.board);
    fleet_close(&fleet);
}

/* A call of the rank, in its own page. */
static void call(int rank, uint64_t context, uint64_t number, bool ends)
{
    struct flight *flight = &agent.board->pages[rank].flight;
    const uint64_t count = atomic_load(&flight->count) + 1;

    flight->entries[count % FLIGHT_ENTRIES] = (struct flight_entry){
        .number = count, .call = number, .context = context, .peer = -1,
        .began_ns = 5, .ended_ns = ends ? 6 : 0, .kind = COMM_ALL_REDUCE,
        .channel = CHANNEL_NOW, .size = RANKS, .group = "data"};
    atomic_store(&flight->count, count);
}

/* As a report does. */
static void report(int rank)
{
    const struct flight *flight = &agent.board->pages[rank].flight;
    const uint64_t count = atomic_load(&flight->count);

    for (uint64_t i = 0; i < REPORT_ENTRIES && i < count; i++)
        fleet_note_call(&fleet.board->pages[rank].flight,
                        &flight->entries[(count - i) % FLIGHT_ENTRIES], 0);
}

static int count_calls(int rank)
{
    int count = 0;

    for (int i = 0; i < FLIGHT_ENTRIES; i++)
        count += fleet.board->pages[rank].flight.entries[i].number != 0;
    return count;
}

TEST(all_that_a_recorder_holds_is_brought)
{
    struct flight_entry *e;

    open_both();
    for (int i = 1; i <= MANY; i++) call(0, 7, (uint64_t)i, i < MANY);
    for (int i = 1; i <= 3; i++) call(1, 7, (uint64_t)i, true);
    const int64_t began = virtual_ns;

    fleet_records(&fleet);
    CHECK(virtual_ns - began < 200000000); /* its time was not over */
    EQUAL_INT(count_calls(0), FLIGHT_ENTRIES);
    EQUAL_INT(count_calls(1), 3);
    for (uint64_t n = MANY - FLIGHT_ENTRIES + 1; n <= MANY; n++) {
        e = &fleet.board->pages[0].flight.entries[n % FLIGHT_ENTRIES];
        EQUAL_INT(e->number, n);
        EQUAL_INT(e->call, n);
    }
    e = &fleet.board->pages[0].flight.entries[MANY % FLIGHT_ENTRIES];
    CHECK(e->ended_ns == 0);
    CHECK(fleet.records == NULL);
    close_both();
}

/* Its last call of the group is longer ago than a report reaches. */
TEST(who_did_not_arrive_is_named_across_machines)
{
    char text[256];

    open_both();
    for (int i = 1; i <= 40; i++) call(0, 7, (uint64_t)i, i < 40);
    for (int i = 1; i <= 39; i++) call(1, 7, (uint64_t)i, true);
    for (int i = 1; i <= 20; i++) call(1, 8, (uint64_t)i, true);
    for (int i = 0; i < RANKS; i++) report(i);
    explain_waits(fleet.board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 40): no record that "
                     "these arrived: rank 1");
    fleet_records(&fleet);
    explain_waits(fleet.board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 40): did not arrive: "
                     "rank 1");
    close_both();
}

TEST(who_does_not_answer_is_not_waited_for)
{
    open_both();
    call(0, 7, 1, true);
    mute = true;
    const int64_t began = virtual_ns;

    fleet_records(&fleet);
    CHECK(virtual_ns - began < 2000000000);
    EQUAL_INT(count_calls(0), 0);
    EQUAL_INT(fleet_nodes(&fleet), 1); /* nor is it lost for that */
    mute = false;
    fleet_records(&fleet);
    EQUAL_INT(count_calls(0), 1);
    close_both();
}

/* The page of a place is that of its next rank by then. */
TEST(calls_of_another_order_are_left_out)
{
    open_both();
    for (int i = 0; i < RANKS; i++) call(i, 7, 1, true);
    atomic_store(&places[1].taken, 99);
    fleet_records(&fleet);
    EQUAL_INT(count_calls(0), 1);
    EQUAL_INT(count_calls(1), 0);
    close_both();
}

static void answer(struct record_answer said, size_t bytes)
{
    struct {
        struct record_answer head;
        struct flight_entry calls[2];
    } all = {.head = said, .calls = {{.number = said.newest, .peer = -1},
                                     {.number = 3000, .peer = -1}}};

    IS_OK(wire_put(&agent.up, WIRE_RECORDS_ANSWER, &all, bytes));
    fleet_look(&fleet, 0);
}

TEST(answers_that_nobody_asked_for_are_none)
{
    struct rank_records wanted[RANKS] = {{.asked = true, .left = 256},
                                         {.asked = true, .left = 256}};
    const struct record_answer sound = {.order = 7, .newest = 9, .count = 2,
                                        .now_ns = 1000000000};
    const size_t head = sizeof sound, e = sizeof(struct flight_entry);
    struct record_answer said = sound;

    open_both();
    answer(sound, head + 2 * e); /* outside of fleet_records */
    fleet.records = wanted;
    mute = true;
    answer(sound, head + e);
    answer(sound, head - 1);
    said.order = 8;
    answer(said, head + 2 * e);
    said = sound;
    said.rank = RANKS;
    answer(said, head + 2 * e);
    said.rank = -1;
    answer(said, head + 2 * e);
    said = sound;
    said.count = -2;
    answer(said, head + 2 * e);
    said = sound;
    said.asked = 5;
    answer(said, head + 2 * e);
    said = sound;
    said.now_ns = INT64_MIN;
    answer(said, head + 2 * e);
    EQUAL_INT(count_calls(0), 0);
    answer(sound, head + 2 * e);
    EQUAL_INT(count_calls(0), 1); /* 3000 is of another piece */
    CHECK(!wanted[0].asked);
    fleet.records = NULL;
    close_both();
}

TEST_MAIN(all_that_a_recorder_holds_is_brought,
          who_did_not_arrive_is_named_across_machines,
          who_does_not_answer_is_not_waited_for,
          calls_of_another_order_are_left_out,
          answers_that_nobody_asked_for_are_none)
