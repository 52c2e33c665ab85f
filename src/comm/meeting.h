/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.h - where the ranks of a generation find each other.
 *
 * Every rank knocks (comm/handshake.h) and says where it listens. When all are
 * there, each is told all addresses, and the meeting is over. A rank of another
 * generation or size, or a second one of a number, is sent away with a
 * sentence. When the process of a number has gone, another one may come with
 * that number. */
#ifndef LOCKSTEP_COMM_MEETING_H
#define LOCKSTEP_COMM_MEETING_H

#include "comm/process.h"

struct meeting {
    struct door door;
    int size, present;
    uint64_t generation;
    struct meeting_seat {
        int descriptor;       /* -1: not here */
        char address[DOOR_ADDRESS_BYTES];
    } *seats;                 /* owned, [size] */
};

/* address: as door_open; the door stays open from generation to generation. */
status meeting_open(struct meeting *meeting, const char *address,
                    const struct token *token, uint64_t job);
/* Now `size` ranks of that generation are awaited; others are sent away. */
status meeting_begin(struct meeting *meeting, int size, uint64_t generation);
int meeting_polls(const struct meeting *meeting, struct pollfd *polls);
/* Never waits for anybody. *complete: all came, and were told. */
status meeting_step(struct meeting *meeting, bool *complete);
void meeting_close(struct meeting *meeting); /* zeroed: allowed */

#endif
