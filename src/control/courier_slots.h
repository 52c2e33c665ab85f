/* SPDX-License-Identifier: Apache-2.0 */
/* courier_slots.h - the memory of a node, as those see it who carry copies.
 * Private to courier*.c. */
#ifndef LOCKSTEP_CONTROL_COURIER_SLOTS_H
#define LOCKSTEP_CONTROL_COURIER_SLOTS_H

#include "control/agent_place.h"
#include "control/copy_slot.h"
#include "control/courier_pace.h"

/* copy_head.whole, in an answer. */
enum { COPY_TORN, COPY_WHOLE,
       COPY_LATER /* ranks of the node have not come to that step yet */ };

/* A slot on its way. */
struct copy_head {
    int32_t rank, ranks, index, whole;
    uint64_t slot_bytes;
    int64_t step;
    uint64_t rows, layout, state_length;
    uint64_t twin;        /* copy_slot.twin: then no rows are sent */
    uint64_t sum, state_sum;
    uint64_t magic;
    uint64_t spoilt;      /* copy_slot.spoilt, when this was read */
};

bool head_is_sound(const struct copy_head *head);
/* Fills it with what the head of the slot says. */
void head_from_slot(struct copy_head *head, const struct copy_slot *slot);
/* Whether the place's page is that of the order: its rank has begun. */
bool is_page_of(const struct place_memory *place, uint64_t number);
/* Whether the slot is of no rank that is seated here, or comes to be
 * (place_memory.coming), and lies across none of theirs. */
bool courier_may_write(const struct agent *agent, const struct copy_head *head);
/* Adds the processors' time that this process took since. */
void courier_used(struct agent *agent, double *used_s);
/* A slot of the node's file, mapped until this process ends, or until another
 * one takes its place here: by then its pages need not be found anew. NULL: the
 * file has none there. */
struct copy_slot *courier_slot(int file, const struct copy_head *head,
                               bool grows);
/* The rows, and behind them their copy_sum as they left, and whether nothing
 * was written over them until then. pace NULL: at once. */
status courier_rows_send(struct wire *wire, const struct copy_slot *slot,
                         const struct copy_head *head, struct copy_pace *pace);
/* *whole: they are as they were in the sender's slot when it was whole. */
status courier_rows_receive(struct wire *wire, const struct copy_head *head,
                            struct copy_slot *slot, bool *whole);
/* The receiver has whole rows of that rank. */
void courier_slot_kept(int rank);
/* copy_slot.twin for that copy; 0: none has its rows. *behind: a rank of this
 * node may have them soon. */
uint64_t courier_slot_twin(const struct agent *agent,
                           const struct copy_head *head, bool *behind);

#endif
