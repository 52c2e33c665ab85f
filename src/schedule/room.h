/* SPDX-License-Identifier: Apache-2.0 */
/* room.h - how much room a schedule asks of a rank. */
#ifndef LOCKSTEP_SCHEDULE_ROOM_H
#define LOCKSTEP_SCHEDULE_ROOM_H

#include "schedule/schedule.h"

/* Most micro-batches of one stage and direction between their F and their W:
 * frames in flight. */
int schedule_held_stage(const struct schedule *schedule, int stage,
                        int direction);

/* Gradients of inputs outlive their micro-batch: they wait to be taken by the
 * B of the stage before, which may be busy. The least number of buffers for
 * each stage with which a lowered schedule cannot stop for want of one. */
status schedule_returns(const struct schedule *schedule, int *out);

#endif
