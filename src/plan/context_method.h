/* SPDX-License-Identifier: Apache-2.0 */
/* context_method.h - how context ranks attend: what is asked, and what a
 * sequence of that length allows. */
#ifndef LOCKSTEP_PLAN_CONTEXT_METHOD_H
#define LOCKSTEP_PLAN_CONTEXT_METHOD_H

#include "plan/stage.h"

/* ERR_CONFIG: a ring is demanded, and a rank's spans are not whole nodes of
 * attention's tree. */
status context_method_check(const struct stage_request *r);
/* The method that the program uses. */
struct context_method context_method_used(const struct stage_request *r);

#endif
