/* SPDX-License-Identifier: Apache-2.0 */
/* summary.h - messages of a run for its user, before the first step and at its
 * end. */
#ifndef LOCKSTEP_TRAIN_SUMMARY_H
#define LOCKSTEP_TRAIN_SUMMARY_H

#include "checkpoint/run_dir.h"
#include "train/feed.h"
#include "observe/observe.h"
#include "observe/profiler.h"
#include "report/report.h"
#include "setup/setup.h"

struct closing {
    const struct setup *setup;
    bool text;      /* the run has a tokenizer */
    const struct pipeline *pipeline;
    const struct run_dir *run;
    int64_t step;   /* reached */
    status result;  /* of the loop */
    const struct profiler *profiler;
    struct observer *observer;
    const struct report_prediction *prediction; /* NULL: none */
    bool json;
};

/* Resident memory of this process; 0 when unknown. */
int64_t closing_resident_bytes(void);
/* A few lines on stderr: model, data, memory, grid. */
void closing_print_start(const struct setup *setup,
                         const struct pipeline *pipeline,
                         const struct feed *feed, int64_t step);
/* --dry-run, on stdout: the whole plan as text or one JSON object. */
status closing_print_plan(const struct setup *setup,
                          const struct pipeline *pipeline, bool json);
/* Writes RUN/report.html and prints where things are. Leaves the trace of a
 * failed loop alone. */
status closing_report(const struct closing *closing);

#endif
