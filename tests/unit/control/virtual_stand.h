/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_stand.h - ranks, or the whole system, that stand still: for one
 * test. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_STAND_H
#define LOCKSTEP_TESTS_VIRTUAL_STAND_H

#include "tests/unit/control/virtual_cluster.h"

enum { WORK_MOST_NS = 80000000,
       SOON_NS = 250000000 /* looks, and what else the supervisor does */ };

/* usual_ns: of V_WORKS, which is one instruction here; 0: of another. */
static void begin_instruction(int rank, int64_t usual_ns)
{
    struct flight *flight = &page_of(rank)->flight;

    flight_mirror(flight, &(struct flight_doing){
        .turn = atomic_load(&flight->turn) + 1, .usual_ns = usual_ns,
        .number = 7, .name = "backward"});
}

/* The rank is stopped for good; within an instruction, if it does not wait. */
static void stand(struct virtual_rank *r)
{
    if (r->phase == V_WORKS && r->until_ns != INT64_MAX && r->stands_ns == 0)
        r->stands_ns = cluster.now_ns;
}

/* Whether the supervisor noticed by the instruction's deadline. */
static bool stands_soon(void)
{
    for (int i = 0; i < cluster.ranks; i++) {
        const struct virtual_rank *r = &cluster.rank[i];

        if (r->phase != V_DEAD && r->stands_ns > 0 &&
            cluster.now_ns - r->stands_ns >=
                HANG_FACTOR * WORK_MOST_NS +
                    (int64_t)HANG_EXTRA_MS * 1000000 + SOON_NS)
            return false;
    }
    return true;
}

/* Nobody runs for a while, nor does what is to happen happen. */
static void stand_still(int64_t ns)
{
    cluster.now_ns += ns;
    for (int i = 0; i < cluster.ranks; i++) {
        struct virtual_rank *r = &cluster.rank[i];

        if (r->until_ns != INT64_MAX) r->until_ns += ns;
        if (r->pause_ns > 0) r->pause_ns += ns;
        if (r->stands_ns > 0) r->stands_ns += ns;
    }
    for (int i = cluster.fault_next; i < cluster.fault_count; i++)
        cluster.faults[i].when_ns += ns;
}

#endif
