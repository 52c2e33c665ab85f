/* SPDX-License-Identifier: Apache-2.0 */
/* known_schedules.h - schedules that are made and lowered once, for all threads
 * of a search: layouts that differ in other axes than the pipe have the same
 * ones, of up to a million actions. */
#ifndef LOCKSTEP_SCHEDULE_KNOWN_SCHEDULES_H
#define LOCKSTEP_SCHEDULE_KNOWN_SCHEDULES_H

#include "schedule/build.h"

struct known_schedules;

status known_schedules_open(struct known_schedules **out);
/* Like schedule_make; its lists may be those of `known`, and live no longer.
 * NULL: it is made alone. Any thread may call it. */
status known_schedules_make(struct known_schedules *known,
                            struct schedule *out,
                            const struct schedule_request *request);
/* Like schedule_lower and schedule_returns. */
status known_schedules_lower(struct known_schedules *known,
                             struct schedule *schedule);
void known_schedules_free(struct known_schedules *known); /* NULL allowed */

#endif
