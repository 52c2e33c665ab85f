/* SPDX-License-Identifier: Apache-2.0 */
/* test_straggler.c - mirrors src/control/straggler.c: calls with times that the
 * test writes into the flight recorders. */
#include <unistd.h>

#include "control/straggler.h"
#include "tests/test.h"

enum { RANKS = 4 };
static const int64_t step_ns = 100000000;

static struct board *open_board(int *file)
{
    struct board *board;

    IS_OK(board_make(&board, RANKS, file));
    return board;
}

/* A call that the rank begins so late in its step. */
static void call(struct board *board, int rank, uint64_t number,
                 int64_t late_ns)
{
    struct flight *flight = &board->pages[rank].flight;
    const uint64_t count = atomic_fetch_add(&flight->count, 1) + 1;

    flight->entries[count % FLIGHT_ENTRIES] = (struct flight_entry){
        .number = count, .call = number, .context = 5, .size = RANKS,
        .began_ns = (int64_t)number * step_ns + late_ns,
        .ended_ns = (int64_t)(number + 1) * step_ns,
        .kind = COMM_ALL_REDUCE, .channel = CHANNEL_NOW};
}

/* 30 steps in which one rank is late. */
static struct straggler with_late(int rank, int64_t late_ns, int steps)
{
    int file;
    struct board *board = open_board(&file);
    struct straggler found;

    for (int step = 1; step <= steps; step++)
        for (int i = 0; i < RANKS; i++)
            call(board, i, (uint64_t)step,
                 i == rank ? late_ns : (step * 7 + i * 3) % 5 * 100000);
    found = straggler_find(board);
    board_close(board);
    close(file);
    return found;
}

TEST(the_rank_that_comes_last_is_named)
{
    for (int rank = 0; rank < RANKS; rank++) {
        const struct straggler s = with_late(rank, 30000000, 30);
        char text[120];

        CHECK(s.rank == rank && s.calls == 30);
        CHECK(s.share > 0.29 && s.share < 0.32);
        straggler_text(&s, text);
        CHECK(strstr(text, "for rank") != NULL);
    }
}

TEST(small_delays_and_few_calls_are_no_straggler)
{
    char text[120];
    const struct straggler equal = with_late(-1, 0, 30);

    CHECK(equal.rank < 0);
    straggler_text(&equal, text);
    EQUAL_TEXT(text, "");
    CHECK(with_late(2, 3000000, 30).rank < 0);  /* 3% */
    CHECK(with_late(2, 30000000, 19).rank < 0);
}

/* Two ranks that are late in turn: it is not one of them. */
TEST(a_fault_that_wanders_is_no_straggler)
{
    int file;
    struct board *board = open_board(&file);

    for (int step = 1; step <= 40; step++)
        for (int i = 0; i < RANKS; i++)
            call(board, i, (uint64_t)step,
                 i == step % 2 ? 30000000 : 100000 * i);
    CHECK(straggler_find(board).rank < 0);
    board_close(board);
    close(file);
}

/* Spares have moved ranks: the pages of an agent's board are of places. */
TEST(a_rank_on_another_place_is_named_by_its_number)
{
    int file;
    struct board *board = open_board(&file);

    for (int step = 1; step <= 40; step++)
        for (int i = 0; i < RANKS; i++)
            call(board, i, (uint64_t)step, i == 1 ? 30000000 : 100000);
    EQUAL_INT(straggler_find(board).rank, 1);
    atomic_store(&board->pages[1].seated, 1); /* rank 0 */
    EQUAL_INT(straggler_find(board).rank, 0);
    board_close(board);
    close(file);
}

/* A dying rank may leave anything; some ranks are not here. */
TEST(nonsense_is_no_straggler)
{
    int file;
    struct board *board = open_board(&file);

    CHECK(straggler_find(board).rank < 0);
    memset(&board->pages[1].flight, 0xff, sizeof board->pages[1].flight);
    memset(&board->pages[2].flight, 0x7f, sizeof board->pages[2].flight);
    CHECK(straggler_find(board).rank < 0);
    board_close(board);
    close(file);
}

/* Clocks of machines differ: each rank says how much it waited. */
static int by_waits(const int64_t ppm[RANKS], int64_t steps)
{
    int file;
    struct board *board = open_board(&file);
    struct straggler found;

    for (int i = 0; i < RANKS; i++) {
        atomic_store(&board->pages[i].phase, BOARD_STEPS);
        atomic_store(&board->pages[i].step, steps);
        atomic_store(&board->pages[i].met_ppm, ppm[i]);
    }
    found = straggler_by_waits(board);
    board_close(board);
    close(file);
    CHECK(found.rank < 0 || found.share >= 0.05);
    return found.rank;
}

TEST(the_rank_that_waits_least_is_named)
{
    for (int rank = 0; rank < RANKS; rank++) {
        int64_t ppm[RANKS] = {300000, 310000, 290000, 305000};

        EQUAL_INT(by_waits(ppm, 50), -1);
        ppm[rank] = 40000;
        EQUAL_INT(by_waits(ppm, 50), rank);
        EQUAL_INT(by_waits(ppm, 10), -1); /* too few steps */
        ppm[rank] = 270000; /* too little */
        EQUAL_INT(by_waits(ppm, 50), -1);
        ppm[rank] = 0; /* two are slow */
        ppm[(rank + 1) % RANKS] = 60000;
        EQUAL_INT(by_waits(ppm, 50), -1);
    }
}

TEST_MAIN(the_rank_that_comes_last_is_named,
          small_delays_and_few_calls_are_no_straggler,
          a_fault_that_wanders_is_no_straggler, nonsense_is_no_straggler,
          a_rank_on_another_place_is_named_by_its_number,
          the_rank_that_waits_least_is_named)
