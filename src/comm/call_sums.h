/* SPDX-License-Identifier: Apache-2.0 */
/* call_sums.h - checksums of what a rank sends and receives in a step, call by
 * call: where a step is made twice with two results, they say which rank was
 * wrong.
 *
 *             pass 0                    pass 1, rank 1 is wrong
 *   rank 0    sends a, receives s       sends a, receives T
 *   rank 1    sends b, receives s       sends B, receives T
 *
 * A wrong number travels: in the end all ranks have another result. But before
 * anything that a rank received was another, only the one that was wrong has
 * sent something else. Calls have numbers in the order in which the rank's
 * thread made them, the same in each pass; what was sent and received first is
 * told by the order in which it was summed up. */
#ifndef LOCKSTEP_COMM_CALL_SUMS_H
#define LOCKSTEP_COMM_CALL_SUMS_H

#include "comm/message.h"

enum { CALL_SUMS_PASSES = 3,
       CALL_SUMS_MOST = 1 << 16 /* calls of a step; those behind are not kept */
};

/* The first that differs, of a pass beside another one. */
enum call_sums_first { CALL_SUMS_SAME, CALL_SUMS_SENT, CALL_SUMS_RECEIVED };

struct call_sum {
    uint32_t sent, received;       /* CRC-32C */
    uint32_t sent_at, received_at; /* the how many-th sum; 0: none */
};

struct call_sums {
    struct call_sum *calls[CALL_SUMS_PASSES]; /* owned, [CALL_SUMS_MOST] */
    int count[CALL_SUMS_PASSES];
    _Atomic uint32_t sums;     /* so far, of the pass */
    int pass;
    _Atomic bool blind;        /* a library or a device moved bytes that nobody
                                * saw: the first is not known */
    bool flips;                /* a drill: a bit of the next sum's input */
};

status call_sums_build(struct call_sums *sums);
void call_sums_free(struct call_sums *sums); /* zeroed: allowed */
/* All calls of all passes have their sums: where none differs, none did. */
bool call_sums_whole(const struct call_sums *sums);

/* The calls of the group's rank from now on are those of a pass; calls in the
 * background of before are over. */
void call_sums_begin(struct call_sums *sums, struct group *group, int pass);
/* They are of no pass any more. */
void call_sums_end(struct group *group);
enum call_sums_first call_sums_compare(const struct call_sums *sums, int right,
                                       int wrong);

/* For call.c and progress.c. The number of a call, from 1; 0: it is of no
 * pass. */
int call_sums_next(const struct group *group);
/* Before its messages, and after them; the call as messages see it. True: what
 * it sends has a wrong bit now (`flips`). */
bool call_sums_sent(const struct group *group, const struct comm_call *call,
                    int number);
void call_sums_received(const struct group *group,
                        const struct comm_call *call, int number);

#endif
