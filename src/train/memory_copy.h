/* SPDX-License-Identifier: Apache-2.0 */
/* memory_copy.h - the state of a supervised rank, copied into memory that
 * outlives it.
 *
 * After every step, or every few, a rank copies its weights, optimizer states
 * and counters into one of its two slots in memory that its supervisor holds.
 * A rank that finishes step s + 1 has seen all others past their copies of step
 * s, so at any moment all ranks have a whole copy of the same step. After
 * the death of any rank the next generation goes on from there and does at most
 * the steps of one copy again. A slot is invalid while it is written, and has a
 * checksum.
 *
 *   file    [rank 0: slot slot] [rank 1: slot slot] ...
 *   slot    head (step, sizes, checksum, counters as JSON), then the rows of
 *           MEMORY_WEIGHTS, MEMORY_COMPUTE and MEMORY_STATE_... of each stage
 *
 * On a CPU the state itself lies in the slots (two_slots.h): a step writes its
 * copy as it updates.
 *
 * The copy is of the layout that made it; checkpoints know none. */
#ifndef LOCKSTEP_TRAIN_MEMORY_COPY_H
#define LOCKSTEP_TRAIN_MEMORY_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "train/copy_every.h"
#include "train/two_slots.h"

struct copy_slot;
enum { COPIES_AUTO = -1 };

struct memory_copy {
    const struct pipeline *pipeline; /* borrowed */
    struct team *team;               /* borrowed */
    struct train_step *step;         /* borrowed; set before it is opened */
    struct two_slots turns;          /* step NULL: rows are copied */
    double began_s, turn_s;          /* of the step under way */
    bool alike;                      /* it does the work of most */
    struct copy_slot *slots[2]; /* mapped: this rank's; with `turns` their
                          * heads alone; NULL: there are none */
    size_t slot_bytes;   /* of a slot with its head */
    uint64_t layout;     /* of the ranks and the run's history; set before it
                          * is opened, and whenever either changes */
    struct copy_every every; /* `threads` as `layout` */
    bool is_new;         /* the slots are as the system gave them: zeros */
    int64_t done;        /* the last step that was done */
    bool resumed;        /* this process went back to one */
    bool carried;        /* it came from another node */
    int64_t newest;      /* step of the newest made here; -1: none */
    int64_t lent;        /* step of the slot that is the state, while other
                          * numbers lie there; -1: it is none */
    double waited_s;     /* for the other node since the last row of metrics */
    int64_t fenced;      /* step of the copy of the last such wait; -1: none */
};

/* Whether the state is to lie in the slots: stages then have its rows apart. */
bool memory_copy_turns(const struct pipeline *pipeline, int64_t every);
/* Bytes of a copy of that rank's state, without its head. */
size_t memory_copy_bytes(const struct pipeline *pipeline);
/* every: steps; 0: never; COPIES_AUTO: after each step, or so rarely that it
 * costs 1 percent; with a partner on another node, after eight copies, every
 * second step for a while at least, so that steps with and without one can be
 * compared. Does nothing in a process that has no supervisor. A machine without
 * enough memory gets a warning and no copies. Collective. */
status memory_copy_open(struct memory_copy *copy,
                        const struct pipeline *pipeline, struct team *team,
                        int64_t every);
/* At the end of a run: what copies cost, in the log, unless it is said. */
void memory_copy_tell(struct memory_copy *copy);
void memory_copy_close(struct memory_copy *copy);

/* The step of the newest copy that all ranks have whole; -1: none. Collective;
 * the same on all ranks. */
status memory_copy_newest(const struct memory_copy *copy, int64_t *step);
/* Fills the stages with it. *state: its counters, in the slot. */
status memory_copy_restore(struct memory_copy *copy, int64_t step,
                           const char **state, size_t *length);

/* Around a step, whose copies are weighed by its time; alike: it does the work
 * of most steps, so that it can be compared with the one before. */
void memory_copy_step_begins(struct memory_copy *copy, bool alike);
/* step: with this one. */
void memory_copy_step_ended(struct memory_copy *copy, int64_t step);
/* The weights are to change: struct train_step.turn of a struct memory_copy. */
status memory_copy_turn(void *argument);
/* Whether the state of this step is to be copied. Collective at times. */
status memory_copy_due(struct memory_copy *copy, int64_t step, bool *due);
/* state [length]: the counters. */
status memory_copy_make(struct memory_copy *copy, int64_t step,
                        const char *state, size_t length);
/* Before a reduction of all ranks: waits until the node that keeps copies of
 * this one's has the newest. So when a rank is past the reduction, and
 * overwrites its older copy, the newer ones of all ranks are whole twice. The
 * first is of a pass after the step, whose wait may be after the update; an
 * update that writes the older copy comes after the second:
 * struct train_step.turn.ready of a struct memory_copy. */
void memory_copy_fence(struct memory_copy *copy);
void memory_copy_ready(void *argument);
/* Tells what the step waited for other nodes that keep copies, and the share of
 * the bytes that travelled in idle time; unchanged where none do. */
void memory_copy_note(struct memory_copy *copy, double *waited_ms,
                      double *idle_share);
/* Weights become others for a while, if `changes`, as averages do for a
 * validation; then they are back. A copy that they are is not whole meanwhile,
 * nor if they come back other than they were. */
void memory_copy_lend(struct memory_copy *copy, bool changes);
void memory_copy_give_back(struct memory_copy *copy);
/* History changes: what was copied is not to be gone back to. */
void memory_copy_forget(struct memory_copy *copy);
/* The same, before the first weights are set. */
void memory_copy_begin(struct memory_copy *copy);

#endif
