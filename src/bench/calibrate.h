/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.h - this machine as the planner sees it: every rate with all ranks
 * active, sustained, between two measurements of the same work (sentinels) that
 * tell whether the machine was as fast all the time. */
#ifndef LOCKSTEP_BENCH_CALIBRATE_H
#define LOCKSTEP_BENCH_CALIBRATE_H

#include "kernels/kernels.h"
#include "nn/rounding_kernels.h"
#include "planner/machine.h"

enum { CALIBRATE_SHAPES = 512 };

/* A product that a plan has: C[m, n] = A[m, k] B[k, n]. */
struct wanted_product {
    int64_t m, n, k;
    enum product_kind kind;
    int bits;             /* of an element: 16 or 32 */
    int64_t sequence;     /* tokens; of kind tn, whose k is tokens */
    struct accumulator accumulator; /* of its sums; zeroed: float32 */
};

enum { CALIBRATE_ROUNDINGS = 64 };

struct calibrate_request {
    double seconds;       /* of the whole, about; never more than
                           * CALIBRATE_OVER times that and a fixed part */
    int ranks;            /* active at once: cores */
    const struct wanted_product *wanted; /* measured first; others follow */
    int wanted_count;
    const struct rounded *roundings; /* calls of recipes, all different */
    int rounding_count;
    bool takes[2];        /* tables are for elements of 32 bits, of 16 */
    enum dtype narrow;    /* the type of 16 bits */
    enum product product; /* that it has */
    const char *disk;     /* file to write and remove; NULL: none */
};

/* On a machine with other work rows take longer than planned: from then on no
 * row begins, but one of each kind. */
enum { CALIBRATE_OVER = 4, CALIBRATE_FIXED_S = 8 };

/* `machine` is zeroed. */
status calibrate(struct machine *machine,
                 const struct calibrate_request *request);
/* Collectives between `ranks` ranks as threads: rows for the machine's table,
 * at most `most`; *rate and *latency: of a message. */
struct message_figures { double rate, latency; };
status calibrate_messages(struct measured_collective *rows, int most,
                          int ranks, double seconds, int *count,
                          struct message_figures *figures);
/* The sentinels alone: how fast the machine is now. */
status calibrate_now(const struct calibrate_request *request,
                     struct sentinel *now);

#endif
