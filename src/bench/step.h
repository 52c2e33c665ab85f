/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - `bench step`: whole training steps on random tokens, every kernel
 * measured, beside what this machine can do at the same shapes. */
#ifndef LOCKSTEP_BENCH_STEP_H
#define LOCKSTEP_BENCH_STEP_H

#include <stdio.h>

#include "base/json.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "plan/stage.h"

enum { BENCH_STEPS_MOST = 64 };

struct bench_step_settings {
    const char *model;    /* "gpt2-124m", "llama-58m", "llama-10m",
                           * "llama-1m"; NULL: the first */
    int64_t batch;        /* sequences; 0: the model's usual */
    int64_t micro_batch;  /* sequences at once; 0: as a run chooses */
    int64_t length;       /* tokens of a sequence; 0: the model's usual */
    int steps;            /* measured, after one to warm up; 0: 3 */
    int threads;          /* 0: the cores of this process */
    enum isa isa;
    enum device_kind device;
    bool fast;            /* numerics.gpu of cuda */
    enum attention_by attention; /* numerics.attention, with `fast` */
    bool graphs;          /* device_graphs of cuda: kernels have no times */
    enum dtype dtype;
    enum product product; /* of bfloat16 */
    bool csv;             /* the rows only, instead of text */
    const char *draw;     /* SVG file; NULL: none */
    const char *trace;    /* JSON file of all spans; NULL: none */
};

/* Prints, or writes to `json` when not NULL: milliseconds of a step (median),
 * tokens per second, memory, time from the start of the process to the end of
 * the first step; the profile (train/profile.h) with the limit of each row, and
 * the bound of the step: its matrix products at the better of our own rate and
 * oneDNN's, if that is installed, on the step's own shapes, and the bytes of
 * everything else at the measured bandwidth; and the time by layer and pass.
 * On a device apart rates and bound are its own, and times of layers are left
 * out; with graphs those too.
 * ERR_CONFIG: an unknown model, with the nearest. */
status bench_step(const struct bench_step_settings *settings, FILE *out,
                  struct json_writer *json);

#endif
