/* SPDX-License-Identifier: Apache-2.0 */
/* fair_share.h - rates of flows that share links, by max-min fairness: no flow
 * can be faster without making one slower that is not faster than it. */
#ifndef LOCKSTEP_PLANNER_FAIR_SHARE_H
#define LOCKSTEP_PLANNER_FAIR_SHARE_H

#include <stdint.h>

/* `count` flows that do the same, over up to FAIR_LINKS links. */
enum { FAIR_LINKS = 3 };
struct fair_flow {
    int32_t link[FAIR_LINKS]; /* numbers of links; -1: none */
    double times[FAIR_LINKS]; /* of the flows, how many use that link */
    double rate;              /* set: of one of them */
};

struct fair_link {
    double left;              /* its capacity; afterwards what is left of it */
    double growing;           /* of fair_share alone */
};

/* Rates grow alike until a link is full: its flows keep theirs, and the others
 * grow on. A flow without a link has rate 0. */
void fair_share(struct fair_flow *flows, int count, struct fair_link *links,
                int link_count);

#endif
