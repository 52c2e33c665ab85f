/* SPDX-License-Identifier: Apache-2.0 */
/* plan_experts.h - `plan --explain experts`: the mixture of experts of a
 * configuration, and what it costs a rank. */
#ifndef LOCKSTEP_CLI_PLAN_EXPERTS_H
#define LOCKSTEP_CLI_PLAN_EXPERTS_H

#include "cli/table.h"
#include "setup/setup.h"

/* ERR_CONFIG: a family without experts. */
status plan_experts(const struct setup *setup, const struct stage *stage,
                    struct table *table);

#endif
