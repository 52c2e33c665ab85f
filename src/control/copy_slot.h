/* SPDX-License-Identifier: Apache-2.0 */
/* copy_slot.h - the head of a copy of a rank's state in memory, which a rank
 * writes (train/memory_copy.h) and agents carry to other nodes.
 *
 *   file    [rank 0: slot slot] [rank 1: slot slot] ...   one for each node
 *   slot    head, counters as JSON; from COPY_ROWS on the rows
 *
 * The place of a slot is the same on all nodes, so a rank that comes to the
 * node which keeps copies of it finds them where its own would be. A slot may
 * come from a rank that was killed while it wrote: nothing in it is used
 * before its checksums were compared.
 *
 * Ranks of replicas have the same rows. Where a node has those of one rank, the
 * slot of its twin has a head and counters only, and names that rank. */
#ifndef LOCKSTEP_CONTROL_COPY_SLOT_H
#define LOCKSTEP_CONTROL_COPY_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/huge_pages.h"
#include "base/range_sum.h"

enum { COPY_STATE_BYTES = 1 << 22, COPY_PAGE = 4096, COPY_SLOTS = 2 };

struct copy_slot {
    uint64_t magic;
    _Atomic int64_t step;   /* -1: not whole */
    _Atomic uint64_t spoilt; /* how often it became that */
    uint64_t ranks, bytes;  /* of the rows */
    uint64_t layout;        /* struct memory_copy */
    uint64_t carried;       /* 1: another node sent it */
    uint64_t twin;          /* the rank, and one more, in whose slot of this
                             * step the rows are; 0: they are in this one */
    uint64_t sum, state_sum; /* copy_sum of the rows, and of `state` */
    uint64_t state_length;
    char state[COPY_STATE_BYTES];
};

/* Rows begin at a huge page. */
enum { COPY_ROWS = (sizeof(struct copy_slot) + HUGE_PAGE_BYTES - 1) /
                   HUGE_PAGE_BYTES * HUGE_PAGE_BYTES };
static const uint64_t copy_magic = 0x6c6f636b636f7032; /* "lockcop2" */
/* The rows are the state of a rank, which writes the other slot in turn
 * (train/two_slots.h); sum is the range_sum of what the rank updates of them.
 * Only that rank, which knows where it lies, can compare it. */
static const uint64_t copy_magic_state = 0x6c6f636b74757232;

/* The file of a node. */
struct copy_memory {
    int file;
    uint64_t ranks, slot_bytes;
};

static inline bool copy_magic_is(uint64_t magic)
{
    return magic == copy_magic || magic == copy_magic_state;
}

/* The range_sum of bytes alone. */
static inline uint64_t copy_sum(const void *bytes, uint64_t length)
{
    const struct range_sum sum = {bytes, 0};

    return range_sum_of(&sum, bytes, bytes, (size_t)length);
}

/* Before anything of it is written: it is not whole from now on. Who reads it
 * meanwhile, as courier_rows_send does, sees that it changed. */
static inline void copy_slot_spoil(struct copy_slot *kept)
{
    atomic_store(&kept->step, -1);
    atomic_fetch_add(&kept->spoilt, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Whether head, counters and rows are what the checksums say, of a copy that a
 * pass made. slot_bytes: of the whole slot. One whose rows are in a twin's slot
 * is not whole. */
bool copy_slot_is_whole(const struct copy_slot *slot, size_t slot_bytes);
/* The first `bytes` of a slot; NULL: the file has none there. */
struct copy_slot *copy_slot_map(const struct copy_memory *memory,
                                uint64_t rank, int index, size_t bytes);
/* Rows are the same where all of these fields are. */
struct copy_rows {
    uint64_t magic;
    int64_t step;
    uint64_t ranks, bytes, layout;
    uint64_t sum;
};

/* Whether the slot itself holds those rows, not its twin. */
bool copy_slot_has(const struct copy_slot *slot, const struct copy_rows *rows);
/* Copies the rows of its twin into the slot, and leaves a slot with rows of its
 * own as it is. If the twin's rows are gone, the slot's step becomes -1. The
 * rank compares rows of a state afterwards. */
void copy_slot_fill(const struct copy_memory *memory, struct copy_slot *slot);

#endif
