/* SPDX-License-Identifier: Apache-2.0 */
/* two_slots.h - the state of a rank lies in the two slots of its copies, in
 * turns. An update after a copy reads one and writes the other
 * (optimizer/carry.h), so the one that it leaves is the copy of the step
 * before, and no pass over the state makes copies. Where not every step is
 * copied, the next updates are made in place, in the other one, and the last of
 * them adds up what it writes.
 *
 *   where the rows are        slot 0, 1, 0, 1 ...: the state
 *   stage->kept.other behind  the other one: the newest copy, or the last
 *
 * The slots change places as pages do, in page tables: addresses stay, and no
 * byte moves. A death in the midst of an update leaves the other slot whole. */
#ifndef LOCKSTEP_TRAIN_TWO_SLOTS_H
#define LOCKSTEP_TRAIN_TWO_SLOTS_H

#include <sys/types.h>
#include "step/step.h"

struct two_slots {
    struct train_step *step; /* borrowed; NULL: the state lies elsewhere */
    int file;
    off_t rows[2];  /* where the rows of the slots begin in it */
    int now;        /* the slot that is the state */
    bool lacks;     /* the other one lacks what updates do not write */
    bool updated;   /* since the last two_slots_settle, */
    bool counted;   /* of which kernels made the sum, in the last update */
    uint64_t still; /* the sum of what no update writes */
};

/* Bytes of the rows in a slot: whole huge pages; 0: the stages do not have them
 * apart. */
size_t two_slots_bytes(const struct pipeline *pipeline);
/* Addresses for the other slot of slots->step; false: the system has none, and
 * two_slots_close gives back those of other stages. */
bool two_slots_reserve(const struct two_slots *slots);
/* Slot 0 is where the rows are from now on, with what is in it. */
status two_slots_open(struct two_slots *slots, int file, const off_t rows[2]);
void two_slots_close(struct two_slots *slots);

/* Weights are to change. keep: the state of before is to stay, so the slots
 * change places, and what no kernel writes is copied; else it is updated in
 * place. counts: kernels are to add up what they write, as the checksum of the
 * new state will be asked for; else that takes a pass. */
status two_slots_turn(struct two_slots *slots, bool keep, bool counts);
/* A step is done: the checksum of the state. */
status two_slots_settle(struct two_slots *slots, uint64_t *sum);
/* The checksum of what is in a slot. */
uint64_t two_slots_sum(const struct two_slots *slots, int index);
/* That slot is the state from now on. */
status two_slots_take(struct two_slots *slots, int index);
/* All of the state is zero, as memory is that nobody used. */
void two_slots_clear(struct two_slots *slots);

#endif
