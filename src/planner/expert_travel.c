/* SPDX-License-Identifier: Apache-2.0 */
/* expert_travel.c - two resources, by the rules of the simulator (simulator.h).
 *
 * Times of arrival are stated as if nothing were computed any more: while a
 * computation goes on, the clock runs by what it takes, and the clock of the
 * messages by what they advance. */
#include "planner/expert_travel.h"

void expert_travel_start(struct expert_travel *t, struct under_way *rows,
                         int half, double seconds)
{
    if (t->free < t->now) t->free = t->now;
    t->free += seconds;
    rows->half[half] = t->free;
}

double expert_travel_compute(struct expert_travel *t, double seconds)
{
    const double slow = t->machine->value[M_COMPUTE_BESIDE];
    const double left = t->free - t->now; /* alone */
    const double beside = left * t->machine->value[M_COMM_BESIDE];
    double longer, sent;

    if (left <= 0) {
        t->now += seconds;
        return 0;
    }
    if (seconds * slow < beside) { /* messages are left over */
        longer = seconds * (slow - 1);
        sent = seconds * slow / t->machine->value[M_COMM_BESIDE];
    } else {
        longer = beside - beside / slow;
        sent = seconds + longer; /* and nothing waits */
    }
    t->now += sent;
    return longer;
}

double expert_travel_await(struct expert_travel *t,
                           const struct under_way *rows, int half)
{
    const double waits = rows->half[half] - t->now;

    if (waits <= 0) return 0;
    t->now += waits;
    return waits;
}
