/* SPDX-License-Identifier: Apache-2.0 */
/* recipes.h - `bench recipes`: the three products of a linear layer by every
 * recipe, rounding included, in turns with those of float32 and bfloat16. */
#ifndef LOCKSTEP_BENCH_RECIPES_H
#define LOCKSTEP_BENCH_RECIPES_H

#include <stdio.h>

#include "base/json.h"
#include "kernels/kernels.h"

struct bench_recipes_settings {
    const char *only;   /* recipes whose name contains this; NULL: all */
    int64_t tokens;     /* 0: 4,096; in sequences of 1,024 */
    int64_t in, out;    /* features; 0: 3,072 and 768 */
    int rounds;         /* 0: 5; the best time of each product counts */
    int threads;        /* 0: the cores of this process */
    enum isa isa;
};

/* Prints a row for each product and type or recipe, or writes them to `json`
 * when not NULL. ERR_CONFIG: `only` names no recipe. */
status bench_recipes(const struct bench_recipes_settings *settings, FILE *out,
                     struct json_writer *json);

#endif
