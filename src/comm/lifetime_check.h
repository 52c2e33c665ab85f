/* SPDX-License-Identifier: Apache-2.0 */
/* lifetime_check.h - the checks of LOCKSTEP_CHECK=lives for messages in the
 * background.
 *
 * Between comm_start and comm_wait a call's inputs must not change, its outputs
 * must not be written, and nobody else may use either. The calls of a rank are
 * started and waited for by one thread, which keeps the list of those under
 * way. Without the check nothing here costs more than a comparison. */
#ifndef LOCKSTEP_COMM_LIFETIME_CHECK_H
#define LOCKSTEP_COMM_LIFETIME_CHECK_H

#include "base/check.h"
#include "comm/progress.h"

enum { LIVES_LOOK_MS = 20 }; /* how often lives_stuck is asked */

/* Before a call in the background takes its event: fills its outputs, if they
 * are memory of a device, in the order of its stream. The host does not look
 * at that memory later; whatever a device reads too early is NaN. */
status lives_spoil(const struct group *group, const struct comm_call *call);
/* Before it begins: fills other outputs. ERR_VERIFY: it uses memory of another
 * one under way. */
status lives_start(struct comm_handle *handle);
/* Around each call that the thread of the rank waits in, or its device. */
void lives_wait_begin(struct comm_rank *self);
void lives_wait_end(struct comm_rank *self);
void lives_hold_begin(struct comm_rank *self);
void lives_hold_end(struct comm_rank *self);
/* Whether either has waited for so long that calls which are held back
 * must begin: the ranks that it waits for may themselves wait for these.
 * Without the check calls begin at once, whatever their rank waits for. */
bool lives_stuck(const struct comm_rank *self);
/* Before messages of a call that was held back begin to move, and when they are
 * over: looks at its outputs. */
void lives_release(struct comm_handle *handle);
void lives_done(struct comm_handle *handle);
/* After a fault that was asked for wrote what the call sends. */
void lives_changed(struct comm_handle *handle);
/* Before a call that is held back, and after one that is not, is waited for.
 * ERR_VERIFY: its memory was written meanwhile. */
status lives_wait(struct comm_handle *handle);
/* A call that is made at once: uses no memory of calls under way. */
status lives_call(const struct group *group, const struct comm_call *call);
/* The life of memory ends: nothing is under way there. Fills it. `what` is the
 * word of the sentence. */
status lives_end(void *data, int64_t bytes, const char *what);
/* Fills memory of the host or of a device with NaN. */
status lives_dead(void *data, int64_t bytes);

#endif
