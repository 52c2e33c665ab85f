/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - the decisions made before the first step, part by part, as text:
 * `plan CONFIG --explain PART`. */
#ifndef LOCKSTEP_PLAN_EXPLAIN_H
#define LOCKSTEP_PLAN_EXPLAIN_H

#include "plan/pipeline.h"

/* Appends one part of what a rank has: "parameters", "program", "memory",
 * "schedule" or "numerics". ERR_USAGE: another word, with the nearest. */
status plan_explain(const struct pipeline *pipeline, const char *part,
                    struct text *out);

#endif
