/* SPDX-License-Identifier: Apache-2.0 */
/* straggler.h - the rank that its peers wait for, from the flight recorders.
 *
 * The ranks of a group make the same calls. The one that begins a call last
 * computed for longer than its peers since the call before; they wait as long
 * as it comes after the last of them. These waits, over the time of the newest
 * calls, are its cost. No rank sends or measures anything for it. */
#ifndef LOCKSTEP_CONTROL_STRAGGLER_H
#define LOCKSTEP_CONTROL_STRAGGLER_H

#include "control/board.h"

struct straggler {
    int rank;        /* -1: none */
    double share;    /* of the time, that others waited for it */
    double seconds;  /* of that time */
    int calls;       /* that were compared */
};

/* A rank that costs at least 5% of the time and three times as much as any
 * other, in at least 20 calls. Ranks of other machines are not seen. */
struct straggler straggler_find(const struct board *board);
/* Like straggler_find, for ranks of several machines, whose clocks and calls
 * cannot be compared: each rank says how much of its last steps it waited for
 * others, and the one for which they wait waits least. Calls and seconds are
 * 0. */
struct straggler straggler_by_waits(const struct board *board);
/* "the others waited 34% of the last 1.2 s for rank 2 (...)"; "": none. */
void straggler_text(const struct straggler *straggler, char out[120]);

#endif
