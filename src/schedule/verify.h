/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - walks a schedule in an order that its rules allow. The verifier
 * asks whether the walk reaches the end; the simulator gives it a clock. */
#ifndef LOCKSTEP_SCHEDULE_VERIFY_H
#define LOCKSTEP_SCHEDULE_VERIFY_H

#include "schedule/schedule.h"

/* Called once for each bundle, after all that it needs: items[first .. first +
 * count - 1] of the list of `rank`. */
typedef void schedule_visit(void *context, int rank, int first, int count);

/* schedule_verify, calling `visit`; which ranks take turns is not said. */
status schedule_walk(const struct schedule *schedule, schedule_visit *visit,
                     void *context);

#endif
