/* SPDX-License-Identifier: Apache-2.0 */
/* test_courier.c - mirrors src/control/courier.c: a courier connects again when
 * its partner changes, and only then. What couriers carry is tested by
 * tests/drills/agents.sh. */
#include "control/courier.h"

#include <string.h>
#include "control/agent_place.h"
#include "tests/test.h"

TEST(beats_of_one_partner_change_nothing)
{
    static struct courier courier;
    struct agent agent = {.courier = &courier};
    struct node_beat beat = {.echo_ns = 1, .partner = "b",
                             .address = "10.0.0.2:1"};

    courier_partner(&agent, &beat);
    EQUAL_INT(atomic_load(&courier.turn), 1);
    for (int i = 0; i < 5; i++) {
        beat.echo_ns += 100;
        courier_partner(&agent, &beat);
    }
    EQUAL_INT(atomic_load(&courier.turn), 1);
    beat.partner[0] = 'c';
    courier_partner(&agent, &beat);
    EQUAL_INT(atomic_load(&courier.turn), 2);
}

TEST_MAIN(beats_of_one_partner_change_nothing)
