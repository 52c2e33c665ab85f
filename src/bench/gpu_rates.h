/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_rates.h - the best rates of the first GPU, for `doctor`. */
#ifndef LOCKSTEP_BENCH_GPU_RATES_H
#define LOCKSTEP_BENCH_GPU_RATES_H

#include <stdbool.h>
#include "base/status.h"

struct gpu_rates {
    double memory_bytes;   /* a second */
    double float32_flops;  /* of our own kernels */
    double bfloat16_flops; /* by cuBLASLt, or else of our own kernels */
    bool by_library;
};

/* By a process of its own, in a minute at most. ERR_DEVICE, ERR_MEMORY. */
status gpu_rates_measure(struct gpu_rates *out);

#endif
