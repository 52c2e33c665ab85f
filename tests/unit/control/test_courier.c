/* SPDX-License-Identifier: Apache-2.0 */
/* test_courier.c - mirrors src/control/courier.c: a courier connects again when
 * its partner changes, and only then. What couriers carry is tested by
 * tests/drills/agents.sh. */
#include "control/courier.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fault.h"
#include "comm/crew.h"
#include "comm/inheritance.h"
#include "control/courier_slots.h"
#include "tests/test.h"

TEST(beats_of_one_partner_change_nothing)
{
    static struct courier courier;
    static struct board board;
    struct agent agent = {.courier = &courier, .board = &board};
    struct node_beat beat = {.echo_ns = 1, .turn = 1,
                             .partners = {{"b", "10.0.0.2:1"}}};

    courier_partners(&agent, &beat);
    EQUAL_INT(atomic_load(&courier.links[0].turn), 1);
    EQUAL_INT(atomic_load(&courier.links[1].turn), 0);
    EQUAL_INT(atomic_load(&board.partners), 1);
    for (int i = 0; i < 5; i++) {
        beat.echo_ns += 100;
        courier_partners(&agent, &beat);
    }
    EQUAL_INT(atomic_load(&courier.links[0].turn), 1);
    beat.partners[0].name[0] = 'c';
    courier_partners(&agent, &beat);
    EQUAL_INT(atomic_load(&courier.links[0].turn), 2);
    snprintf(beat.partners[1].name, sizeof beat.partners[1].name, "d");
    snprintf(beat.partners[1].address, sizeof beat.partners[1].address,
             "10.0.0.4:1");
    courier_partners(&agent, &beat);
    EQUAL_INT(atomic_load(&courier.links[0].turn), 2);
    EQUAL_INT(atomic_load(&courier.links[1].turn), 1);
    EQUAL_INT(atomic_load(&board.partners), 2);
}

/* A partner counts once each rank of the node has a copy there, which was
 * carried since the sender began with that partner. */
TEST(copies_are_held_once_every_rank_has_one_there)
{
    enum { COUNT = 3 };
    static struct courier courier;
    struct place_memory places[COUNT] = {0};
    struct board *board = calloc(1, sizeof *board +
                                        COUNT * sizeof(struct board_page));
    struct agent agent = {.courier = &courier, .board = board,
                          .places = places, .count = COUNT};
    const struct node_beat beat = {
        .partners = {{"b", "10.0.0.2:1"}, {"c", "10.0.0.3:1"}}};

    CHECK(board != NULL);
    courier = (struct courier){.links = {{.turn = 0}}};
    courier_partners(&agent, &beat);
    EQUAL_INT(courier_held(&agent), 0); /* no rank is here */
    for (int i = 0; i < 2; i++) {
        places[i].ordered = 7;
        for (int k = 0; k < PARTNERS_MOST; k++)
            board->pages[i].carried[k] = i + k == 2 ? -1 : 5;
    }
    EQUAL_INT(courier_held(&agent), 0); /* no sender knows its partner yet */
    for (int k = 0; k < PARTNERS_MOST; k++) courier.links[k].seen = 1;
    EQUAL_INT(courier_held(&agent), 1);
    board->pages[1].carried[1] = 5;
    EQUAL_INT(courier_held(&agent), 3);
    places[2].ordered = 8; /* a rank that has not copied anything */
    EQUAL_INT(courier_held(&agent), 0);
    free(board);
}

/* ---- a courier of a node of one rank, and its partner: this process ---- */

enum { SLOT_BYTES = COPY_ROWS + COPY_PAGE, ROWS = 100, RANKS = 2 };

struct stand {
    struct agent agent;
    struct place_memory *place;
    struct board_page *page;
    struct worker worker;
    struct door door;      /* of the partner */
    struct wire wire;      /* what sends to it; descriptor -1: nothing does */
    struct copy_head copy; /* on the way, not answered */
};

/* A whole copy of the rank. */
static void make_copy(struct stand *s, int64_t step)
{
    const struct copy_memory memory = {s->agent.state_file, RANKS, SLOT_BYTES};
    struct copy_slot *slot = copy_slot_map(&memory, 0, (int)(step % 2),
                                           SLOT_BYTES);

    CHECK(slot != NULL);
    copy_slot_spoil(slot);
    slot->magic = copy_magic;
    slot->ranks = RANKS;
    slot->bytes = ROWS;
    memset((char *)slot + COPY_ROWS, (int)step, ROWS);
    slot->sum = copy_sum((char *)slot + COPY_ROWS, ROWS);
    atomic_store(&slot->step, step);
    munmap(slot, SLOT_BYTES);
    atomic_store(&s->page->slot_bytes, SLOT_BYTES);
    atomic_fetch_add(&s->page->copies, 1);
}

static void seat(struct stand *s, uint64_t number)
{
    s->place->order = (struct order){.number = number, .size = RANKS};
    atomic_store(&s->place->coming, number);
    atomic_store(&s->place->ordered, number);
    memset(s->page, 0, sizeof *s->page);
    atomic_store(&s->place->taken, number);
}

static void stand_open(struct stand *s)
{
    struct node_beat beat = {.partners = {{"b", ""}}};
    struct token token;
    bool child = false;

    *s = (struct stand){.wire.descriptor = -1};
    s->agent = (struct agent){.up.descriptor = -1, .count = 1};
    s->place = mmap(NULL, sizeof *s->place, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s->place != MAP_FAILED);
    s->agent.places = s->place;
    IS_OK(token_draw(&token));
    s->agent.token = token;
    IS_OK(door_open(&s->door, "127.0.0.1:0", &token, 0));
    IS_OK(door_open(&s->agent.door, "127.0.0.1:0", &token, 0));
    s->agent.workers = &s->worker;
    IS_OK(board_make(&s->agent.board, 1, &s->agent.board_file));
    s->page = &s->agent.board->pages[0];
    IS_OK(inherited_memory("lockstep-state", 2 * RANKS * SLOT_BYTES,
                           &s->agent.state_file));
    IS_OK(courier_start(&s->agent, &child));
    if (child) _exit(0);
    snprintf(beat.partners[0].address, DOOR_ADDRESS_BYTES, "%s",
             s->door.address);
    courier_partners(&s->agent, &beat);
}

static void stand_close(struct stand *s)
{
    courier_stop(&s->agent);
    wire_close(&s->wire);
    door_close(&s->door);
    door_close(&s->agent.door);
    board_close(s->agent.board);
    close(s->agent.board_file);
    close(s->agent.state_file);
    munmap(s->place, sizeof *s->place);
}

/* Lets the sender in. */
static void let_in(struct stand *s)
{
    struct pollfd polls[DOOR_POLLS + 1];
    int used = door_polls(&s->door, polls);
    struct visitor visitor;
    int descriptor;

    if (s->wire.descriptor >= 0)
        polls[used++] = (struct pollfd){.fd = s->wire.descriptor,
                                        .events = POLLIN};
    poll(polls, (nfds_t)used, 5);
    if (!door_step(&s->door, &visitor, &descriptor)) return;
    IS_OK(door_answer(&descriptor, NULL));
    wire_close(&s->wire);
    if (wire_open(&s->wire, descriptor, &s->agent.token, true) != OK)
        status_clear();
}

/* Whether a copy has come whole: s->copy. Offers are declined. */
static bool has_come(struct stand *s)
{
    char bytes[ROWS];
    uint64_t end[2];
    const struct wire_head *head;
    const void *got;

    let_in(s);
    if (s->wire.descriptor < 0) return false;
    if (wire_get(&s->wire, &head, &got) != OK) {
        status_clear();
        return false;
    }
    if (head == NULL) return false;
    CHECK(head->bytes == sizeof s->copy);
    memcpy(&s->copy, got, sizeof s->copy);
    if (head->kind == WIRE_OFFER) {
        IS_OK(wire_put(&s->wire, WIRE_COPIED, &s->copy, sizeof s->copy));
        return false;
    }
    EQUAL_INT(head->kind, WIRE_COPY);
    IS_OK(wire_get_bulk(&s->wire, bytes, (size_t)s->copy.state_length));
    IS_OK(wire_get_bulk(&s->wire, bytes, (size_t)s->copy.rows));
    IS_OK(wire_get_bulk(&s->wire, &end, sizeof end));
    return true;
}

static void answer(struct stand *s, int whole)
{
    s->copy.whole = whole;
    IS_OK(wire_put(&s->wire, WIRE_COPIED, &s->copy, sizeof s->copy));
}

static bool is_told(struct stand *s, int64_t step)
{
    return atomic_load(&s->page->carried[0]) == step;
}

/* Each copy would keep ranks for as long as they wait for one. */
TEST(ranks_do_not_wait_for_a_partner_that_refuses)
{
    int64_t began, waited_ns;
    struct stand s;

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 5);
    began = waited_ns = clock_ns();
    while (clock_ns() - waited_ns < 1000000000) { /* without waiting */
        CHECK(clock_ns() - began < (int64_t)20 * 1000000000);
        if (has_come(&s)) wire_close(&s.wire);
        if (clock_ns() - began < 1000000000 ||
            atomic_load(&s.agent.board->carries[0]) != 0)
            waited_ns = clock_ns();
    }
    while (!is_told(&s, 5)) { /* it is tried again */
        CHECK(clock_ns() - began < (int64_t)60 * 1000000000);
        if (has_come(&s)) answer(&s, COPY_WHOLE);
    }
    EQUAL_INT(atomic_load(&s.agent.board->carries[0]), 1);
    stand_close(&s);
}

static void await_copy(struct stand *s, int64_t step)
{
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;

    do
        CHECK(clock_ns() < end);
    while (!has_come(s) || s->copy.step != step);
}

static void await_told(struct stand *s, int64_t step)
{
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;

    while (!is_told(s, step)) {
        CHECK(clock_ns() < end);
        poll(NULL, 0, 1);
    }
}

/* A copy that arrived torn although nobody wrote over it was refused. */
TEST(a_torn_copy_is_refused)
{
    struct stand s;

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 5);
    for (int i = 0; i < 2; i++) {
        struct pollfd one = {.events = POLLIN};
        char byte;

        await_copy(&s, 5);
        answer(&s, COPY_TORN);
        one.fd = s.wire.descriptor;
        EQUAL_INT(poll(&one, 1, 10000), 1);
        EQUAL_INT(read(one.fd, &byte, 1), 0); /* the end */
        wire_close(&s.wire);
    }
    stand_close(&s);
}

/* Its last rank ended while a copy was on the way; the new one makes as many
 * copies, which are carried as well. */
TEST(a_new_rank_is_not_told_of_the_last_ones_copies)
{
    struct stand s;

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 9);
    await_copy(&s, 9);
    atomic_store(&s.place->done, 1);
    seat(&s, 2);
    answer(&s, COPY_WHOLE);
    for (int i = 0; i < 100; i++) {
        CHECK(!has_come(&s));
        EQUAL_INT(atomic_load(&s.page->carried[0]), 0);
    }
    make_copy(&s, 10);
    await_copy(&s, 10);
    answer(&s, COPY_WHOLE);
    await_told(&s, 10);
    stand_close(&s);
}

/* The process that takes an order clears the page: until then it says what the
 * last rank had copied. */
TEST(a_page_is_not_read_before_its_rank_has_begun)
{
    struct stand s;

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 9);
    await_copy(&s, 9);
    answer(&s, COPY_WHOLE);
    await_told(&s, 9);
    atomic_store(&s.place->done, 1);
    s.place->order.number = 2;
    atomic_store(&s.place->coming, 2);
    atomic_store(&s.place->ordered, 2);
    for (int i = 0; i < 100; i++) CHECK(!has_come(&s));
    seat(&s, 2);
    make_copy(&s, 10); /* the first, as 9 was */
    await_copy(&s, 10);
    stand_close(&s);
}

/* A rewind while a copy travels. */
TEST(an_undone_step_is_not_told)
{
    struct copy_memory of;
    struct copy_slot *slot;
    struct stand s;

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 9);
    await_copy(&s, 9);
    of = (struct copy_memory){s.agent.state_file, RANKS, SLOT_BYTES};
    slot = copy_slot_map(&of, 0, 1, SLOT_BYTES);
    CHECK(slot != NULL);
    atomic_store(&slot->step, -1);
    atomic_store(&s.page->carried[0], -1);
    munmap(slot, SLOT_BYTES);
    answer(&s, COPY_WHOLE);
    for (int i = 0; i < 50; i++) {
        has_come(&s);
        EQUAL_INT(atomic_load(&s.page->carried[0]), -1);
    }
    stand_close(&s);
}

/* ---- what comes to a node where a rank is ---- */

static struct copy_slot *slot_of(const struct stand *s, int rank, int index)
{
    const struct copy_memory memory = {s->agent.state_file, RANKS, SLOT_BYTES};
    struct copy_slot *slot = copy_slot_map(&memory, (uint64_t)rank, index,
                                           SLOT_BYTES);

    CHECK(slot != NULL);
    return slot;
}

/* To the node's receiver. */
static void send_head(const struct stand *s, struct wire *wire,
                      const struct copy_head *head)
{
    const struct visitor self = {.purpose = DOOR_AGENT};
    int descriptor;

    IS_OK(door_knock(&descriptor, s->agent.door.address, &self,
                     &s->agent.token, 10000, NULL));
    IS_OK(wire_open(wire, descriptor, &s->agent.token, false));
    IS_OK(wire_put(wire, WIRE_COPY, head, sizeof *head));
    IS_OK(wire_put_bulk(wire, "", 0)); /* the counters */
}

/* Rows of 77, and what follows them. */
static status send_rows(struct wire *wire)
{
    static char rows[ROWS];
    uint64_t end[2] = {0, 1};

    memset(rows, 77, sizeof rows);
    end[0] = copy_sum(rows, sizeof rows);
    TRY(wire_put_bulk(wire, rows, sizeof rows));
    return wire_put_bulk(wire, end, sizeof end);
}

/* Whether the node took the copy; it says so, or ends the connection. */
static bool is_taken(struct wire *wire)
{
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
    const struct wire_head *head = NULL;
    const void *got;
    status result = OK;

    if (send_rows(wire) != OK) status_clear();
    while (result == OK && head == NULL) {
        struct pollfd one = {.fd = wire->descriptor, .events = POLLIN};

        CHECK(clock_ns() < end);
        poll(&one, 1, 100);
        result = wire_get(wire, &head, &got);
    }
    status_clear();
    return result == OK &&
           ((const struct copy_head *)got)->whole == COPY_WHOLE;
}

/* Before a rank of the node has said how large its slots are, nobody knows
 * where they lie. */
TEST(copies_do_not_come_across_a_rank_that_is_here)
{
    const struct {
        int rank, ranks;
        uint64_t slot_bytes, own_bytes;
        bool taken;
    } cases[] = {{1, RANKS, SLOT_BYTES, SLOT_BYTES, true},
                 {0, RANKS, SLOT_BYTES, SLOT_BYTES, false},
                 {1, RANKS + 1, SLOT_BYTES, SLOT_BYTES, false},
                 {1, RANKS, SLOT_BYTES - COPY_PAGE, SLOT_BYTES, false},
                 {1, RANKS, SLOT_BYTES, SLOT_BYTES + COPY_PAGE, false},
                 {1, RANKS, SLOT_BYTES, 0, false}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct copy_head head = {.rank = cases[i].rank,
                                 .ranks = cases[i].ranks, .step = 3,
                                 .slot_bytes = cases[i].slot_bytes,
                                 .magic = copy_magic_state, .rows = ROWS};
        struct wire wire = {.descriptor = -1};
        struct stand s;

        if (cases[i].slot_bytes < SLOT_BYTES) head.rows = 0;
        stand_open(&s);
        seat(&s, 1);
        atomic_store(&s.page->slot_bytes, cases[i].own_bytes);
        send_head(&s, &wire, &head);
        EQUAL_INT(is_taken(&wire), cases[i].taken);
        wire_close(&wire);
        stand_close(&s);
    }
}

/* Its rows come when the rank is there. */
TEST(a_copy_that_is_coming_ends_before_its_rank_is_seated)
{
    const struct copy_head head = {.rank = 0, .ranks = RANKS, .step = 3,
                                   .slot_bytes = SLOT_BYTES, .rows = ROWS,
                                   .magic = copy_magic_state};
    static const struct order order = {.number = 1, .size = RANKS};
    struct wire wire = {.descriptor = -1};
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
    struct copy_slot *slot;
    struct stand s;

    stand_open(&s);
    slot = slot_of(&s, 0, 0);
    atomic_store(&slot->step, 2);
    send_head(&s, &wire, &head);
    while (atomic_load(&slot->step) != -1) { /* it has begun */
        CHECK(clock_ns() < end);
        poll(NULL, 0, 1);
    }
    workers_order(&s.agent, &order);
    EQUAL_INT(atomic_load(&s.place->ordered), 1);
    memset((char *)slot + COPY_ROWS, 5, ROWS);
    CHECK(!is_taken(&wire));
    for (int i = 0; i < ROWS; i++)
        EQUAL_INT(((const char *)slot)[COPY_ROWS + i], 5);
    wire_close(&wire);
    munmap(slot, SLOT_BYTES);
    stand_close(&s);
}

/* Rows that a copy shares are filled in where it leaves, but not into the state
 * of the rank itself. */
TEST(a_copy_is_not_filled_in_where_its_rank_is)
{
    for (int here = 0; here < 2; here++) {
        const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
        struct node_move move = {.rank = 0};
        struct copy_slot *own, *twin;
        struct stand s;

        stand_open(&s);
        atomic_store(&s.agent.courier->slot_bytes, SLOT_BYTES);
        atomic_store(&s.agent.courier->ranks, RANKS);
        make_copy(&s, 2);
        own = slot_of(&s, 0, 0);
        twin = slot_of(&s, 1, 0);
        memcpy(twin, own, SLOT_BYTES);
        own->twin = 1 + 1;
        memset((char *)own + COPY_ROWS, 5, ROWS);
        if (here) seat(&s, 1);
        atomic_store(&s.page->copies, 0);
        atomic_store(&s.page->slot_bytes, SLOT_BYTES);
        snprintf(move.address, sizeof move.address, "%s", s.door.address);
        courier_move(&s.agent, &move);
        while (!courier_moved(&s.agent, &move)) {
            CHECK(clock_ns() < end);
            if (has_come(&s)) answer(&s, COPY_WHOLE);
        }
        EQUAL_INT(move.whole, !here);
        EQUAL_INT(((const char *)own)[COPY_ROWS], here ? 5 : 2);
        munmap(own, SLOT_BYTES);
        munmap(twin, SLOT_BYTES);
        stand_close(&s);
    }
}

/* Its sender is stopped before it fills in a copy of rank 0, which is seated
 * meanwhile. */
TEST(a_copy_that_is_filled_in_ends_before_its_rank_is_seated)
{
    static const struct order order = {.number = 1, .size = RANKS};
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
    struct node_move move = {.rank = 0};
    struct copy_slot *own, *twin;
    struct stand s;
    pid_t sender;

    IS_OK(fault_arm("courier.fill:1:stop"));
    stand_open(&s);
    IS_OK(fault_arm(NULL));
    sender = s.agent.couriers[0];
    atomic_store(&s.agent.courier->slot_bytes, SLOT_BYTES);
    atomic_store(&s.agent.courier->ranks, RANKS);
    make_copy(&s, 2);
    own = slot_of(&s, 0, 0);
    twin = slot_of(&s, 1, 0);
    memcpy(twin, own, SLOT_BYTES);
    own->twin = 1 + 1;
    atomic_store(&s.page->copies, 0);
    snprintf(move.address, sizeof move.address, "%s", s.door.address);
    courier_move(&s.agent, &move);
    while (crew_state(sender) != 'T') {
        CHECK(clock_ns() < end);
        has_come(&s);
    }
    CHECK(atomic_load(&s.agent.courier->fills));
    workers_order(&s.agent, &order);
    EQUAL_INT(atomic_load(&s.place->ordered), 1);
    memset((char *)own + COPY_ROWS, 5, ROWS);
    if (kill(sender, SIGCONT) == 0) poll(NULL, 0, 300); /* it would go on */
    for (int i = 0; i < ROWS; i++)
        EQUAL_INT(((const char *)own)[COPY_ROWS + i], 5);
    CHECK(!atomic_load(&s.agent.courier->fills));
    EQUAL_INT(s.agent.couriers[0], 0);
    munmap(own, SLOT_BYTES);
    munmap(twin, SLOT_BYTES);
    stand_close(&s);
}

/* Ranks waited 30 s for it at each copy. The time passes by hand. */
TEST(a_sender_that_stays_stopped_is_ended)
{
    const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
    struct stand s;
    pid_t sender;

    stand_open(&s);
    sender = s.agent.couriers[0];
    while (atomic_load(&s.agent.board->carries[0]) == 0) {
        CHECK(clock_ns() < end);
        let_in(&s);
    }
    CHECK(kill(sender, SIGSTOP) == 0);
    while (crew_state(sender) != 'T') CHECK(clock_ns() < end);
    for (int i = 0; i < 3; i++) CHECK(!courier_look(&s.agent));
    EQUAL_INT(crew_state(sender), 'T');
    EQUAL_INT(atomic_load(&s.agent.board->carries[0]), 1);
    CHECK(s.agent.courier_stopped_ns[0] > 0);
    s.agent.courier_stopped_ns[0] -= (int64_t)31 * 1000000000;
    s.agent.courier_next_ns[0] = end; /* no other is started */
    while (s.agent.couriers[0] == sender) {
        CHECK(clock_ns() < end);
        CHECK(!courier_look(&s.agent));
    }
    EQUAL_INT(s.agent.couriers[0], 0);
    EQUAL_INT(atomic_load(&s.agent.board->carries[0]), 0);
    CHECK(!courier_look(&s.agent));
    EQUAL_INT(s.agent.courier_stopped_ns[0], 0);
    stand_close(&s);
}

static void spoil(const struct stand *s, int64_t step)
{
    struct copy_slot *slot = slot_of(s, 0, (int)(step % 2));

    copy_slot_spoil(slot);
    munmap(slot, SLOT_BYTES);
}

/* The partner could not but refuse it, and gets the next one by the same
 * connection. */
TEST(a_copy_that_was_spoilt_on_its_way_was_not_refused)
{
    struct stand s;
    unsigned char session[sizeof s.wire.session];

    stand_open(&s);
    seat(&s, 1);
    make_copy(&s, 5);
    await_copy(&s, 5);
    memcpy(session, s.wire.session, sizeof session);
    spoil(&s, 5);
    answer(&s, COPY_TORN);
    make_copy(&s, 6);
    await_copy(&s, 6);
    EQUAL_BYTES(s.wire.session, session, sizeof session);
    EQUAL_INT(s.copy.step, 6);
    answer(&s, COPY_WHOLE);
    await_told(&s, 6);
    EQUAL_INT(atomic_load(&s.agent.board->carries[0]), 1);
    stand_close(&s);
}

/* The partner has what it was when it left, and nobody waits for that. */
TEST(a_copy_that_was_spoilt_on_its_way_did_not_move)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        const int64_t end = clock_ns() + (int64_t)20 * 1000000000;
        struct node_move move = {.rank = 0};
        struct stand s;

        stand_open(&s);
        atomic_store(&s.agent.courier->slot_bytes, SLOT_BYTES);
        atomic_store(&s.agent.courier->ranks, RANKS);
        make_copy(&s, 2);
        snprintf(move.address, sizeof move.address, "%s", s.door.address);
        courier_move(&s.agent, &move);
        while (!courier_moved(&s.agent, &move)) {
            CHECK(clock_ns() < end);
            if (!has_come(&s)) continue;
            if (spoilt) spoil(&s, 2);
            answer(&s, COPY_WHOLE);
        }
        EQUAL_INT(move.whole, !spoilt);
        stand_close(&s);
    }
}

TEST_MAIN(a_copy_that_is_filled_in_ends_before_its_rank_is_seated,
          a_sender_that_stays_stopped_is_ended,
          a_copy_that_was_spoilt_on_its_way_was_not_refused,
          a_copy_that_was_spoilt_on_its_way_did_not_move,
          beats_of_one_partner_change_nothing,
          copies_are_held_once_every_rank_has_one_there,
          ranks_do_not_wait_for_a_partner_that_refuses,
          a_torn_copy_is_refused,
          a_new_rank_is_not_told_of_the_last_ones_copies,
          a_page_is_not_read_before_its_rank_has_begun,
          an_undone_step_is_not_told,
          copies_do_not_come_across_a_rank_that_is_here,
          a_copy_that_is_coming_ends_before_its_rank_is_seated,
          a_copy_is_not_filled_in_where_its_rank_is)
