/* SPDX-License-Identifier: Apache-2.0 */
/* test_courier.c - mirrors src/control/courier.c: a courier connects again when
 * its partner changes, and only then. What couriers carry is tested by
 * tests/drills/agents.sh. */
#include "control/courier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "control/agent_place.h"
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

TEST_MAIN(beats_of_one_partner_change_nothing,
          copies_are_held_once_every_rank_has_one_there)
