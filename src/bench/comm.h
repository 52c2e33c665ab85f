/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - `bench comm`: every collective, each way of doing it, beside what a
 * plain copy of the same bytes costs in the same run and, under mpirun, MPI's
 * own sum. */
#ifndef LOCKSTEP_BENCH_COMM_H
#define LOCKSTEP_BENCH_COMM_H

#include <stdio.h>

#include "base/json.h"

struct bench_comm_settings {
    int ranks;      /* 0: 2, or those of the launcher */
    int64_t bytes;  /* of the buffer that is reduced or gathered; 0: 64 KiB,
                     * 1, 16 and 64 MiB */
    double seconds; /* per row; 0: 0.2 */
    int64_t limit_ms; /* longest wait for one message; 0: 60 s */
};

/* Prints, or writes to `json` when not NULL, one row per collective, way and
 * size: the best time on rank 0, the buffer's bytes a second, the bytes that a
 * rank sends a second, and the first of these as a part of a memcpy by all
 * ranks at once. Only rank 0 does. */
status bench_comm(const struct bench_comm_settings *settings, FILE *out,
                  struct json_writer *json);

#endif
