/* SPDX-License-Identifier: Apache-2.0 */
/* step_print.h - the results of `bench step` as text, as comma-separated values
 * and as JSON. */
#ifndef LOCKSTEP_BENCH_STEP_PRINT_H
#define LOCKSTEP_BENCH_STEP_PRINT_H

#include "bench/bound.h"
#include "bench/step.h"

struct step_figures {
    const struct bench_step_settings *settings;
    const char *name;
    struct stage *stage;       /* borrowed, open */
    struct meter meter;        /* owned */
    double *spent;             /* owned, [events] seconds */
    double step_ms[BENCH_STEPS_MOST]; /* ascending */
    int steps;
    double median_ms;
    double first_step_s;       /* since the process began; 0: unknown */
    size_t planned_bytes, resident_bytes;
    struct profile profile, shapes; /* by kernel; products by shape too */
    struct bound bound;
};

status step_print(const struct step_figures *figures, FILE *out);
status step_print_csv(const struct step_figures *figures, FILE *out);
status step_write(const struct step_figures *figures,
                  struct json_writer *json);

#endif
