/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h - passes from schedule to schedule: what the generators leave out. */
#ifndef LOCKSTEP_SCHEDULE_LOWER_H
#define LOCKSTEP_SCHEDULE_LOWER_H

#include "schedule/schedule.h"

/* Adds the transfers between ranks. A send stands right after the bundle
 * that makes the data; a receive before the bundle ahead of the one that
 * needs it, so that the transfer has one bundle to hide behind. Both are
 * posted: the bundle that needs the data waits, not the list. Between two
 * ranks one transfer of each kind exists for each stage and micro-batch,
 * which is its tag. */
status schedule_lower(struct schedule *schedule);

#endif
