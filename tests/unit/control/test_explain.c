/* SPDX-License-Identifier: Apache-2.0 */
/* test_explain.c - mirrors src/control/explain.c, board.c and comm/flight.c:
 * the records say where ranks are and which one did not come, also if a dying
 * rank left nonsense in them. */
#include <unistd.h>

#include "comm/rank.h"
#include "control/watch.h"
#include "tests/test.h"

enum { RANKS = 3 };

static struct board *open_board(int *file)
{
    struct board *board;

    IS_OK(board_make(&board, RANKS, file));
    return board;
}

static int size = RANKS; /* of the group */
static enum channel channel = CHANNEL_NOW;

static void enter(struct board *board, int rank, uint64_t call, bool ends)
{
    static struct comm_rank self;
    struct group group = {.context = 99, .size = size, .label = "data",
                          .self = &self};
    const struct comm_call all = {.kind = COMM_ALL_REDUCE};
    const struct operation op = {.group = &group, .call = &all, .tag = call,
                                 .channel = channel};
    uint64_t entry;

    board_sit(board, rank);
    entry = flight_enter(&op);
    if (ends) flight_leave(entry, &op, OK);
}

TEST(the_missing_rank_is_named)
{
    int file;
    struct board *board = open_board(&file);
    char text[256], position[160];

    for (int rank = 0; rank < RANKS; rank++) enter(board, rank, 7, true);
    explain_waits(board, text);
    EQUAL_TEXT(text, "");
    enter(board, 0, 8, false);
    enter(board, 2, 8, false);
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 8): did not arrive: "
                     "rank 1");
    position_text(board, 0, 0, position);
    CHECK(strstr(position, "in all-reduce on group data (call 8)") != NULL);
    position_text(board, 1, 0, position);
    CHECK(strstr(position, "after all-reduce on group data (call 7)") != NULL);
    enter(board, 1, 8, false);
    explain_waits(board, text);
    CHECK(strstr(text, "all ranks arrived") != NULL);
    flight_attach(NULL);
    board_close(board);
    close(file);
}

/* Rank 0 has sent nothing, and stands still. */
TEST(who_waits_for_a_message_says_for_whose)
{
    int file, world[RANKS] = {0, 1, 2};
    struct board *board = open_board(&file);
    struct group group = {.context = 99, .size = 2, .label = "pipe"};
    char text[256], position[160];

    for (int rank = 1; rank < RANKS; rank++) {
        const struct comm_call call = {.kind = COMM_RECV, .peer = 0};
        const struct operation op = {.group = &group, .call = &call, .tag = 5};

        group.members = &world[rank - 1];
        board_sit(board, rank);
        (void)flight_enter(&op);
    }
    position_text(board, 2, 0, position);
    CHECK(strstr(position, "in receive from rank 1 on group pipe (call 5)") !=
          NULL);
    explain_waits(board, text);
    EQUAL_TEXT(text, "receive from rank 0 on group pipe (call 5): rank 1 "
                     "waits");
    /* Rank 2 has waited for longest. */
    board->pages[2].flight.entries[1].began_ns = 1;
    explain_waits(board, text);
    EQUAL_TEXT(text, "receive from rank 1 on group pipe (call 5): rank 2 "
                     "waits, in the end for rank 0");
    board->pages[1].flight.entries[1].peer = 2;
    explain_waits(board, text);
    EQUAL_TEXT(text, "receive from rank 1 on group pipe (call 5): rank 2 "
                     "waits, and ranks wait in a circle");
    flight_attach(NULL);
    board_close(board);
    close(file);
}

/* Calls of the group before are long ago, or were not in the reports of its
 * machine: "all ranks arrived" was said. */
TEST(a_rank_without_a_record_did_not_arrive)
{
    int file;
    struct board *board = open_board(&file);
    char text[256];

    enter(board, 0, 8, false);
    enter(board, 2, 8, false);
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 8): no record that these "
                     "arrived: rank 1");
    board_clear(board);
    size = 2;
    enter(board, 0, 8, false);
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 8): 1 of its 2 ranks: no "
                     "record that they arrived");
    enter(board, 2, 9, true); /* it was in call 8, of which nobody reported */
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 8): all ranks arrived");
    size = RANKS;
    flight_attach(NULL);
    board_close(board);
    close(file);
}

/* A rank was at step 144, and was said to miss a call of step 140, of which no
 * report had a word. */
TEST(a_rank_that_reports_left_out_may_have_arrived)
{
    int file;
    struct board *board = open_board(&file);
    struct flight *flight = &board->pages[1].flight;
    char text[256];

    enter(board, 1, 4, true);
    flight->entries[5] = (struct flight_entry){
        .number = 90, .call = 3, .context = 7, .began_ns = 1, .ended_ns = 2};
    enter(board, 0, 50, false);
    enter(board, 2, 50, false);
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 50): no record that these "
                     "arrived: rank 1");
    flight->entries[5].number = 2; /* the next call: none is left out */
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 50): did not arrive: "
                     "rank 1");
    flight_attach(NULL);
    board_close(board);
    close(file);
}

/* Ranks that wait for gathers in the background are in no call: nothing was
 * said. */
TEST(a_rank_that_is_late_in_the_background_is_named)
{
    int file;
    struct board *board = open_board(&file);
    char text[256];

    for (int rank = 0; rank < RANKS; rank++) enter(board, rank, 7, true);
    channel = CHANNEL_BACKGROUND;
    for (int rank = 0; rank < RANKS; rank++) enter(board, rank, 3, true);
    enter(board, 0, 4, false);
    enter(board, 0, 5, false);
    enter(board, 1, 4, false);
    explain_waits(board, text);
    EQUAL_TEXT(text, "all-reduce on group data (call 4): did not arrive: "
                     "rank 2");
    channel = CHANNEL_NOW;
    enter(board, 0, 8, false);
    explain_waits(board, text);
    CHECK(strstr(text, "(call 8): did not arrive: rank 1, rank 2") != NULL);
    flight_attach(NULL);
    board_close(board);
    close(file);
}

TEST(the_newest_sign_of_life_counts)
{
    int file;
    struct board *board = open_board(&file);
    struct board_page *page = &board->pages[1];

    CHECK(sign_of_life_ms(board, 1, 5000000) < 0); /* none */
    atomic_store(&page->step_ns, 2000000);
    CHECK(sign_of_life_ms(board, 1, 5000000) == 3);
    page->flight.entries[7].number = 7;
    page->flight.entries[7].began_ns = 3000000;
    CHECK(sign_of_life_ms(board, 1, 5000000) == 2);
    page->flight.entries[7].ended_ns = 4000000;
    CHECK(sign_of_life_ms(board, 1, 5000000) == 1);
    CHECK(sign_of_life_ms(board, 1, 3500000) < 0); /* of another clock */
    board_close(board);
    close(file);
}

TEST(old_entries_give_way_to_new_ones)
{
    int file;
    struct board *board = open_board(&file);
    struct flight_entry last;

    for (uint64_t i = 0; i < 3 * FLIGHT_ENTRIES; i++) enter(board, 0, i, true);
    last = flight_position(&board->pages[0].flight);
    EQUAL_INT(last.call, 3 * FLIGHT_ENTRIES - 1);
    EQUAL_INT(last.number, 3 * FLIGHT_ENTRIES);
    flight_attach(NULL);
    board_close(board);
    close(file);
}

TEST(nonsense_in_a_page_is_no_harm)
{
    int file;
    struct board *board = open_board(&file);
    char text[256], position[160];
    uint64_t x = 88172645463325252u;
    unsigned char *bytes = (unsigned char *)board->pages;

    for (size_t i = 0; i < RANKS * sizeof *board->pages; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (unsigned char)(x >> 24);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        position_text(board, rank, 5, position);
        for (const char *c = position; *c != '\0'; c++) CHECK(*c >= ' ');
    }
    explain_waits(board, text);
    board_close(board);
    close(file);
}

/* A list that was cut looked as if it were all. */
TEST(many_missing_ranks_are_counted)
{
    enum { MANY = 60 };
    struct board *board;
    char text[256];
    int file, named = 1;

    IS_OK(board_make(&board, MANY, &file));
    size = MANY;
    for (int rank = 0; rank < MANY; rank++) enter(board, rank, 7, true);
    enter(board, 0, 8, false);
    explain_waits(board, text);
    const char *more = strstr(text, " and ");

    CHECK(more != NULL);
    CHECK(strstr(text, "did not arrive: rank 1, rank 2,") != NULL);
    for (const char *at = text; at < more; at++) named += *at == ',';
    EQUAL_INT(atoi(more + strlen(" and ")), MANY - 1 - named);
    CHECK(strcmp(more + strlen(more) - strlen(" more"), " more") == 0);
    size = RANKS;
    flight_attach(NULL);
    board_close(board);
    close(file);
}

TEST_MAIN(the_missing_rank_is_named, many_missing_ranks_are_counted,
          who_waits_for_a_message_says_for_whose,
          a_rank_without_a_record_did_not_arrive,
          a_rank_that_reports_left_out_may_have_arrived,
          a_rank_that_is_late_in_the_background_is_named,
          the_newest_sign_of_life_counts,
          old_entries_give_way_to_new_ones,
          nonsense_in_a_page_is_no_harm)
