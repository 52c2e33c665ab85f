/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - `bench kernels`: every kernel at the shapes of training, its
 * time, rate, the fraction of what the machine allows, and whether its bits are
 * the reference's. */
#ifndef LOCKSTEP_BENCH_KERNELS_H
#define LOCKSTEP_BENCH_KERNELS_H

#include <stdio.h>

#include "base/json.h"
#include "kernels/kernels.h"

/* The elements that are compared with the reference. */
enum bench_check {
    CHECK_SOME,  /* every element, but of a product one row in 64 */
    CHECK_ALL,   /* takes minutes */
    CHECK_NOTHING
};

struct bench_kernels_settings {
    const char *only; /* kernels whose name contains this; NULL: all */
    double seconds;   /* per kernel; 0: 0.1 */
    int threads;      /* 0: the cores of this process */
    enum isa isa;
    enum dtype dtype; /* float32, bfloat16 or float16 */
    bool every;       /* not `dtype` alone: float32 and bfloat16 */
    enum product product;
    enum bench_check check;
};

/* Prints, or writes to `json` when not NULL, one row per kernel and shape. The
 * limit of a row is the larger of its operations at the measured peak (of
 * products that of the type's own instruction, of all else that of FMAs) and
 * its bytes at the measured bandwidth. Shows oneDNN beside products if it is
 * installed. ERR_VERIFY: bits differ from the reference. ERR_CONFIG: `only`
 * names no kernel. */
status bench_kernels(const struct bench_kernels_settings *settings, FILE *out,
                     struct json_writer *json);

#endif
