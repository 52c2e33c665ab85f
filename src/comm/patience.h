/* SPDX-License-Identifier: Apache-2.0 */
/* patience.h - how long a connection may be silent before it counts as broken:
 * at least as long as comm.silence says, and longer where round trips are slow,
 * as the system measures them: a packet that is lost and sent again, twice or
 * three times, costs several of them. */
#ifndef LOCKSTEP_COMM_PATIENCE_H
#define LOCKSTEP_COMM_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_MS = 4000, PATIENCE_MORE_MS = 16000 };

/* The least, for all connections of this process; 0: PATIENCE_MS. */
void patience_set(int64_t least_ms);
/* A round trip as the system measures it; 0: unknown, or no network. */
int64_t patience_round_us(int descriptor);
/* How much longer slow round trips make it: 0 for up to 50 ms, then 8 for each
 * beyond that; at most PATIENCE_MORE_MS. */
int64_t patience_more_ms(int descriptor);
int64_t patience_ms(int descriptor);
/* The other machine lives, as its system acknowledges what it is sent, however
 * little its processes do; for connections on which something is sent each
 * second. False: unknown, too. */
bool patience_is_acknowledged(int descriptor);
/* The system ends the connection a second earlier: then its end is told apart
 * from that of a process which says nothing. */
void patience_tell(int descriptor, int64_t ms);

#endif
