/* SPDX-License-Identifier: Apache-2.0 */
/* test_fleet_seat.c - mirrors src/control/fleet_seat.c: which nodes are used,
 * and which cannot be reached. */
#include "control/fleet.h"

#include <stdio.h>
#include "base/clock.h"
#include "tests/test.h"
#include "tests/unit/control/virtual_poll.h"

void others_act(void) {}

/* In weeks every machine is away twice: all were left out in the end. */
TEST(a_failure_is_forgotten_after_a_day)
{
    static struct node node;
    const int64_t hour_ns = INT64_C(3600) * 1000000000;

    node = (struct node){.failures = 0};
    for (int i = 0; i < 5; i++) {
        virtual_ns += 25 * hour_ns;
        fleet_count_failure(&node);
        EQUAL_INT(node.failures, 1);
    }
    virtual_ns += 23 * hour_ns;
    fleet_count_failure(&node);
    EQUAL_INT(node.failures, NODE_FAILURES_MOST);
    virtual_ns += 25 * hour_ns; /* it is left out, and stays so */
    fleet_count_failure(&node);
    CHECK(node.failures > NODE_FAILURES_MOST);
}

/* Ranks there would listen where no other machine reaches them. */
TEST(an_agent_at_the_loopback_address_is_noticed)
{
    static const char *const places[] = {"127.0.0.1:4", "10.0.0.2:4"};
    static struct fleet other;
    const struct node *from = NULL, *a = &other.nodes[0], *b = &other.nodes[1];

    for (int first = 0; first < 2; first++) {
        other.count = 2;
        for (int i = 0; i < 2; i++) {
            other.nodes[i].wire.descriptor = i;
            snprintf(other.nodes[i].address, sizeof other.nodes[i].address,
                     "%s", places[first ^ i]);
        }
        CHECK(fleet_hidden(&other, b, &from) == (first == 0 ? a : b));
        CHECK(from == (first == 0 ? b : a));
        other.nodes[0].wire.descriptor = -1;
        CHECK(fleet_hidden(&other, b, &from) == NULL);
    }
    other.nodes[0].wire.descriptor = 0;
    snprintf(other.nodes[0].address, sizeof other.nodes[0].address, "[::1]:9");
    CHECK(fleet_hidden(&other, b, &from) == NULL);
    snprintf(other.nodes[1].address, sizeof other.nodes[1].address, "[::2]:9");
    CHECK(fleet_hidden(&other, b, &from) == a);
}

TEST_MAIN(a_failure_is_forgotten_after_a_day,
          an_agent_at_the_loopback_address_is_noticed)
