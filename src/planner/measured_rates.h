/* SPDX-License-Identifier: Apache-2.0 */
/* measured_rates.h - rates of sizes that a machine's tables do not have: means
 * of rows of the same kind, weighted by how near their sizes are. */
#ifndef LOCKSTEP_PLANNER_MEASURED_RATES_H
#define LOCKSTEP_PLANNER_MEASURED_RATES_H

#include "planner/machine.h"

/* C[m, n] = A[m, k] B[k, n]. */
struct product_size {
    double m, n, k;
    enum product_kind kind;
    struct accumulator accumulator;
};
/* FLOP/s; 0: no row has these bits and sums. *exact: a row has these sizes. */
double measured_product_rate(const struct machine *machine,
                             const struct product_size *size, int bits,
                             int threads, bool *exact);
/* FLOP/s of attention, bytes/s of others; 0: the machine has no such row. Where
 * nothing was measured with so many bits, rows of 32 bits stand for it. */
double measured_work_rate(const struct machine *machine, enum work work,
                          double rows, double width, int bits, int threads);
/* Whether the profile has rows left out, and none of these sizes. */
bool measured_work_is_guess(const struct machine *machine, enum work work,
                            double rows, double width, int bits, int threads);
/* A call that rounds a matrix (rounded_code); threads: of the rank. */
struct rounded_size { uint64_t code; double rows, width; int threads; };
/* Elements/s; 0: no row is of such calls. *guess: the profile has rows left
 * out, and none of these sizes. */
double measured_rounding_rate(const struct machine *machine,
                              const struct rounded_size *size, bool *guess);

#endif
