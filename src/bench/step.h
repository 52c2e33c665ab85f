/* SPDX-License-Identifier: Apache-2.0 */
/* step.h - `bench step`: whole training steps on random tokens, beside the
 * time that their matrix products alone would take. */
#ifndef LOCKSTEP_BENCH_STEP_H
#define LOCKSTEP_BENCH_STEP_H

#include <stdio.h>

#include "base/json.h"
#include "kernels/kernels.h"

struct bench_step_settings {
    const char *model;    /* "gpt2-124m", "llama-58m", "llama-10m",
                           * "llama-1m"; NULL: the first */
    int64_t batch;        /* sequences; 0: the model's usual */
    int64_t length;       /* tokens of a sequence; 0: the model's usual */
    int steps;            /* measured, after one to warm up; 0: 3 */
    int threads;          /* 0: the cores of this process */
    enum isa isa;
};

/* Prints, or writes to `json` when not NULL: milliseconds of a step (median),
 * tokens per second, the same by kind of layer and pass, the products' own
 * rate on the step's shapes in the same run, the bound that follows from it (6
 * FLOPs per parameter and token) and the fraction that the step reaches.
 * ERR_CONFIG: an unknown model, with the nearest. */
status bench_step(const struct bench_step_settings *settings, FILE *out,
                  struct json_writer *json);

#endif
