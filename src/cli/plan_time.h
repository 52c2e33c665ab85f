/* SPDX-License-Identifier: Apache-2.0 */
/* plan_time.h - `plan --time`: a step before it runs. */
#ifndef LOCKSTEP_CLI_PLAN_TIME_H
#define LOCKSTEP_CLI_PLAN_TIME_H

#include "cli/command.h"

/* ERR_FIT, after everything was printed: the largest rank does not fit. */
status plan_time(struct arguments *arguments);

#endif
