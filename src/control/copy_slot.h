/* SPDX-License-Identifier: Apache-2.0 */
/* copy_slot.h - the head of a copy of a rank's state in memory, which a rank
 * writes (train/memory_copy.h) and agents carry to other nodes.
 *
 *   file    [rank 0: slot slot] [rank 1: slot slot] ...   one for each node
 *   slot    head, counters as JSON; from COPY_ROWS on the rows
 *
 * The place of a slot is the same on all nodes, so a rank that comes to the
 * node which keeps copies of it finds them where its own would be. A slot may
 * come from a rank that was killed while it wrote: nothing in it is believed
 * before its checksums were compared. */
#ifndef LOCKSTEP_CONTROL_COPY_SLOT_H
#define LOCKSTEP_CONTROL_COPY_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COPY_STATE_BYTES = 1 << 22, COPY_PAGE = 4096, COPY_SLOTS = 2 };

struct copy_slot {
    uint64_t magic;
    _Atomic int64_t step;   /* -1: not whole */
    uint64_t ranks, bytes;  /* of the rows */
    uint64_t layout;        /* struct memory_copy */
    uint64_t carried;       /* 1: another node sent it */
    uint32_t crc, state_crc;
    uint64_t state_length;
    char state[COPY_STATE_BYTES];
};

enum { COPY_ROWS = (sizeof(struct copy_slot) + COPY_PAGE - 1) / COPY_PAGE *
                   COPY_PAGE };
static const uint64_t copy_magic = 0x6c6f636b636f7079; /* "lockcopy" */

/* Whether head, counters and rows are what the checksums say. slot_bytes: of
 * the whole slot. */
bool copy_slot_is_whole(const struct copy_slot *slot, size_t slot_bytes);

#endif
