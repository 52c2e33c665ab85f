/* SPDX-License-Identifier: Apache-2.0 */
/* test_courier_pace.c - mirrors src/control/courier_pace.c: a piece of a copy
 * lets messages of the step go first, for as long as it may. */
#include "control/courier_pace.h"

#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "tests/test.h"

enum { RANKS = 2 };
static const int64_t second = 1000000000;

/* A node of two ranks. */
struct stand {
    struct agent agent;
    struct place_memory places[RANKS];
    struct copy_pace pace;
};

static void stand_open(struct stand *s)
{
    struct board *board =
        calloc(1, sizeof *board + RANKS * sizeof(struct board_page));

    CHECK(board != NULL);
    *s = (struct stand){.agent = {.board = board, .count = RANKS}};
    s->agent.places = s->places;
    atomic_store(&board->partners, 1);
    for (int i = 0; i < RANKS; i++)
        s->places[i].ordered = s->places[i].taken = 7;
    s->pace.agent = &s->agent;
}

static void stand_close(struct stand *s)
{
    free(s->agent.board);
}

static struct board_page *page_of(struct stand *s, int rank)
{
    return &s->agent.board->pages[rank];
}

/* The last step ended at `ended_ns`, its copy is needed a second later; a byte
 * takes 1 ns. */
static void know(struct stand *s, int64_t ended_ns)
{
    for (int i = 0; i < RANKS; i++) {
        atomic_store(&page_of(s, i)->step_ns, ended_ns);
        atomic_store(&page_of(s, i)->needs_copy_ns, second);
    }
    s->pace.bytes_per_ns = 1;
}

TEST(a_copy_leaves_at_once_until_its_time_is_known)
{
    struct stand s;

    stand_open(&s);
    copy_pace_begin(&s.pace, 0, 1000, 0);
    EQUAL_INT(copy_pace_latest(&s.pace), 0);
    know(&s, 6 * second);
    CHECK(copy_pace_latest(&s.pace) > 6 * second);
    s.pace.bytes_per_ns = 0;
    EQUAL_INT(copy_pace_latest(&s.pace), 0); /* no copy was sent */
    know(&s, 6 * second);
    atomic_store(&page_of(&s, 0)->needs_copy_ns, 0);
    EQUAL_INT(copy_pace_latest(&s.pace), 0); /* no rank came to wait */
    stand_close(&s);
}

/* 0.9 of the time less that of what is left, and a quarter of it. */
TEST(what_is_left_is_there_before_ranks_wait)
{
    struct stand s;
    int64_t all, half;

    stand_open(&s);
    know(&s, 50 * second);
    copy_pace_begin(&s.pace, 0, 200000000, 0);
    all = copy_pace_latest(&s.pace);
    CHECK(llabs(all - (50 * second + 650000000)) < 1000);
    copy_pace_begin(&s.pace, 0, 100000000, 0);
    half = copy_pace_latest(&s.pace);
    CHECK(llabs(half - all - 125000000) < 1000);
    copy_pace_begin(&s.pace, 0, 100000000, 100000000); /* and another */
    EQUAL_INT(copy_pace_latest(&s.pace), all);
    copy_pace_begin(&s.pace, 0, 900000000, 0); /* takes longer than a step */
    EQUAL_INT(copy_pace_latest(&s.pace), 0);
    copy_pace_begin(&s.pace, 0, 100000000, 0);
    atomic_store(&s.agent.board->partners, 2); /* another node sends, too */
    CHECK(llabs(copy_pace_latest(&s.pace) - (half - 450000000)) < 1000);
    stand_close(&s);
}

/* When ranks come to need a copy: sooner counts at once, later by and by. */
TEST(ranks_say_when_they_need_a_copy)
{
    int file;
    struct board *board;
    struct board_page *page;
    int64_t before;

    IS_OK(board_make(&board, 1, &file));
    page = &board->pages[0];
    board_sit(board, 0);
    CHECK(!board_await_carried(1)); /* no node keeps copies */
    EQUAL_INT(page->needs_copy_ns, 0);
    atomic_store(&board->carries[0], 1);
    atomic_store(&page->carried[0], 9);
    CHECK(board_await_carried(1));
    EQUAL_INT(page->needs_copy_ns, 0); /* no step has ended */
    atomic_store(&page->step_ns, clock_ns() - 100 * second);
    CHECK(board_await_carried(1));
    before = page->needs_copy_ns;
    CHECK(before >= 100 * second);
    atomic_store(&page->step_ns, clock_ns() - 1000 * second);
    CHECK(board_await_carried(1));
    EQUAL_INT(page->needs_copy_ns, before + before / 8);
    atomic_store(&page->step_ns, clock_ns() - 50 * second);
    CHECK(board_await_carried(1));
    CHECK(page->needs_copy_ns >= 50 * second &&
          page->needs_copy_ns < before);
    board_end(OK, "");
    board_close(board);
    close(file);
}

/* How long the shortest of some pieces waited: a busy machine may let one
 * wait. */
static int64_t shortest_wait(struct stand *s)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 20; i++) {
        know(s, clock_ns());
        copy_pace_begin(&s->pace, 0, PIECE_BYTES, 0);
        copy_pace_piece(&s->pace, PIECE_BYTES);
        if (s->pace.yielded_ns < least) least = s->pace.yielded_ns;
    }
    return least;
}

TEST(a_piece_waits_while_ranks_talk)
{
    struct stand s;
    int64_t latest;

    stand_open(&s);
    atomic_store(&page_of(&s, 1)->flight.talks, 1);
    know(&s, clock_ns() + 60000000000); /* not until then */
    copy_pace_begin(&s.pace, 0, 2 * PIECE_BYTES, 0);
    copy_pace_piece(&s.pace, PIECE_BYTES);
    CHECK(s.pace.yielded_ns >= YIELD_MOST_MS * 1000000ll); /* no longer */
    EQUAL_INT(s.pace.left, PIECE_BYTES);
    EQUAL_INT(s.agent.board->courier_bytes, PIECE_BYTES);
    EQUAL_INT(s.agent.board->courier_idle_bytes, 0);
    know(&s, clock_ns() - 600000000);
    latest = copy_pace_latest(&s.pace);
    CHECK(latest > clock_ns() - 600000000);
    copy_pace_piece(&s.pace, PIECE_BYTES); /* until 0.9 of the time */
    CHECK(clock_ns() >= latest);
    stand_close(&s);
}

TEST(a_piece_leaves_at_once)
{
    struct stand s;

    stand_open(&s);
    CHECK(shortest_wait(&s) < 50000000); /* nobody talks */
    EQUAL_INT(s.agent.board->courier_idle_bytes,
              s.agent.board->courier_bytes);
    atomic_store(&page_of(&s, 0)->flight.talks, 1);
    atomic_store(&page_of(&s, 1)->flight.awaits, 1);
    CHECK(shortest_wait(&s) < 50000000); /* a rank waits for its copy */
    atomic_store(&page_of(&s, 1)->flight.awaits, 0);
    s.places[0].done = 7; /* what that page says is of no rank */
    CHECK(shortest_wait(&s) < 50000000);
    stand_close(&s);
}

TEST(the_rate_is_that_of_sending)
{
    struct stand s;

    stand_open(&s);
    copy_pace_begin(&s.pace, 0, 1 << 20, 0);
    for (int i = 0; i < 4; i++) copy_pace_piece(&s.pace, PIECE_BYTES);
    s.pace.began_ns = clock_ns() - second;
    s.pace.yielded_ns = second / 2;
    copy_pace_end(&s.pace);
    CHECK(s.pace.bytes_per_ns > 0 &&
          s.pace.bytes_per_ns <= (double)(1 << 20) / (0.5 * (double)second));
    stand_close(&s);
}

TEST_MAIN(a_copy_leaves_at_once_until_its_time_is_known,
          what_is_left_is_there_before_ranks_wait,
          ranks_say_when_they_need_a_copy,
          a_piece_waits_while_ranks_talk, a_piece_leaves_at_once,
          the_rate_is_that_of_sending)
