/* SPDX-License-Identifier: Apache-2.0 */
/* copy_delay.h - how much longer a step takes while a copy of the state travels
 * to another node. The processors that carry it are only a part of that: its
 * packets lie before those of the step, and the step waits for its slowest
 * rank. */
#ifndef LOCKSTEP_TRAIN_COPY_DELAY_H
#define LOCKSTEP_TRAIN_COPY_DELAY_H

#include <stdbool.h>

enum { DELAY_PAIRS = 16, /* the last ones */
       DELAY_KNOWN = 6 /* at least */ };

/* The zero value has seen no step. */
struct copy_delay {
    double before_s; /* the last step without one; 0: it has its pair */
    double more_s[DELAY_PAIRS]; /* of a step with one, than that */
    int pairs;
};

/* A step of so many seconds; travelled: a copy did meanwhile. 0 s, without one:
 * the next step is compared with none. */
void copy_delay_add(struct copy_delay *delay, double took_s, bool travelled);
/* The median of the pairs, in seconds. 0: there are too few, or fewer than
 * three of four took longer, so that it may be chance. */
double copy_delay_s(const struct copy_delay *delay);

#endif
