/* SPDX-License-Identifier: Apache-2.0 */
/* courier_pace.h - when the next piece of a copy may leave: while no rank of
 * the node talks to others. Private to courier*.c.
 *
 *   step      F F B F B B   [all-reduce]   F B ...     norm: waits for the copy
 *   copy      === ====== ==              ==== ====
 *
 * A piece that waits goes after all once the rest would not be there before
 * ranks wait for it, or one waits already, or after YIELD_MOST_MS. */
#ifndef LOCKSTEP_CONTROL_COURIER_PACE_H
#define LOCKSTEP_CONTROL_COURIER_PACE_H

#include "control/agent_place.h"

enum { PIECE_BYTES = 1 << 18, YIELD_MOST_MS = 500 };

struct copy_pace {
    const struct agent *agent;   /* borrowed */
    double bytes_per_ns;         /* while it sends; 0: not known */
    int place;                   /* of the copy that is sent */
    uint64_t left;               /* bytes of it and of those behind it */
    int64_t began_ns, yielded_ns;
    uint64_t sent;
};

/* Sends no more than this ahead of the network, so that a message of the step
 * is not behind it. */
void copy_pace_open(struct copy_pace *pace, const struct agent *agent,
                    int descriptor);
/* A copy of so many bytes is sent, and `behind` more after it. */
void copy_pace_begin(struct copy_pace *pace, int place, uint64_t bytes,
                     uint64_t behind);
/* Until the next piece may leave. */
void copy_pace_piece(struct copy_pace *pace, size_t bytes);
/* It is there. */
void copy_pace_end(struct copy_pace *pace);
/* By when the piece leaves, whoever talks; 0: at once. */
int64_t copy_pace_latest(const struct copy_pace *pace);

#endif
