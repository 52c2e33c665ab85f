/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - one HTML file about a run, complete in itself: no script, no
 * link, no font from elsewhere. It reads metrics.jsonl; the rest is given. */
#ifndef LOCKSTEP_REPORT_REPORT_H
#define LOCKSTEP_REPORT_REPORT_H

#include <stdint.h>
#include "base/options.h"
#include "base/status.h"
#include "observe/profile.h"
#include "planner/sentinel.h"

struct report_fact {
    const char *name, *value;
};

struct report_memory {
    const char *name;
    int64_t bytes;
};

/* An instruction of rank 0, mean over the measured steps. */
enum { REPORT_DIFFERENCES = 3 };
struct report_difference {
    int instruction;
    char what[64];            /* "F of stage 0, micro-batch 2" */
    double measured_ms, predicted_ms;
};
/* A cause of a step: the thread of rank 0, measured and predicted. */
enum { REPORT_CAUSES = 6 };
struct report_cause {
    const char *name;
    double measured_ms, predicted_ms;
};
struct report_prediction {
    const char *machine;
    double predicted_ms, measured_ms, guessed_share;
    int64_t steps;            /* measured; 0: none */
    char noise[SENTINEL_NOISE]; /* why nothing can be judged; "": it can */
    struct report_difference items[REPORT_DIFFERENCES]; /* largest first */
    int count;
    struct report_cause causes[REPORT_CAUSES];
    int cause_count;
};

/* Everything is borrowed for the call; texts may be NULL. */
struct report_input {
    const char *title;        /* "runs/first" */
    const char *metrics_path;
    const char *samples_path; /* may be missing */
    const char *run;          /* whose ledger is shown; NULL: none */
    const char *layers_path;  /* layers.jsonl, which may not exist */
    const char *outcome;      /* "finished", "stopped on SIGTERM at step 120;
                               * resume with ..." */
    int exit_code;            /* of the process */
    int64_t steps_planned;
    int64_t vocab;            /* 0: no ln V line */
    const struct report_fact *model, *machine;
    int model_count, machine_count;
    const struct report_memory *memory; /* as planned */
    int memory_count;
    const char *memory_picture; /* svg elements; NULL: none */
    const struct options_set *options;  /* NULL: left out */
    const char *prompt, *sample;        /* text that the model wrote */
    const struct profile *profile;      /* of rank 0; NULL: none */
    const struct report_prediction *prediction; /* NULL: none */
    const double *rank_kinds;           /* [ranks][METER_KINDS] ms */
    int ranks;
};

/* Writes the file whole or not at all. */
status report_write(const struct report_input *input, const char *path);

#endif
