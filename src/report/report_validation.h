/* SPDX-License-Identifier: Apache-2.0 */
/* report_validation.h - the part of a run's report about named sets, tasks and
 * continued prompts. */
#ifndef LOCKSTEP_REPORT_REPORT_VALIDATION_H
#define LOCKSTEP_REPORT_REPORT_VALIDATION_H

#include "observe/metrics.h"

/* A curve for each set and task, and their last values with standard errors;
 * nothing where there are none. */
status report_validation(struct text *out, struct arena *arena,
                         const struct metrics_table *table);
/* Prints the texts of the run's last validation, with the earlier texts behind
 * a fold. path: RUN/samples.jsonl; NULL or not there: nothing. */
status report_samples(struct text *out, const char *path);

#endif
