/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_plights.h - runs of the simulator that nobody draws: one fault each,
 * that was found elsewhere. Part of test_simulator.c. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_PLIGHTS_H
#define LOCKSTEP_TESTS_VIRTUAL_PLIGHTS_H

#include "tests/unit/control/virtual_cluster.h"

/* A run whose generations get two steps far, after all copies were lost at the
 * 45th. */
static status short_lives(int lives, bool flaps)
{
    status result;

    begin_virtual();
    cluster_draw(1);
    cluster.ranks = 2;
    cluster.steps = 60;
    cluster.every = 1000;
    cluster.fault_count = 0;
    cluster.dies_at = 45;
    cluster.short_lives = lives;
    cluster.flaps = flaps;
    cluster.begun = begun;
    result = one_supervisor(true, fresh);
    end_virtual();
    EQUAL_TEXT(cluster.broken != NULL ? cluster.broken : "", "");
    return result;
}

/* A rank that waits for pages so long, in steps of 80 ms. */
static int incidents_of_kept(int64_t kept_ns)
{
    status result;

    begin_virtual();
    cluster_draw(1);
    cluster.ranks = 3;
    cluster.steps = 40;
    cluster.every = 10;
    cluster.faults[0].when_ns = (int64_t)2500 * 1000000;
    cluster.faults[0].kind = FAULT_KEPT;
    cluster.faults[0].rank = 1;
    cluster.fault_count = 1;
    cluster.kept_ns = kept_ns;
    result = cluster_run(fresh, begun);
    end_virtual();
    EQUAL_INT(result, OK);
    EQUAL_INT(cluster.consumed_count, 40);
    return cluster.incidents;
}

#endif
