/* SPDX-License-Identifier: Apache-2.0 */
/* operand_peaks.h - the largest magnitudes of operands over the micro-batches
 * of a step, for scales that come from the steps before (docs/precision.md). A
 * maximum is exact, so that no order of work can show.
 *
 *   value   parameter in model order x product x operand
 *           (left: x or dy; right: the weight, or x of dW)                   */
#ifndef LOCKSTEP_NN_OPERAND_PEAKS_H
#define LOCKSTEP_NN_OPERAND_PEAKS_H

#include "nn/run.h"

enum { LATE_USES = 3, LATE_OPERANDS = 2 };

/* Values of a whole model, the same for each of its stages; 0: no scale is
 * late. */
int64_t operand_peaks_values(const struct program *program);
/* Room for run->late.known and run->late.seen, bytes. */
size_t operand_peaks_bytes(const struct program *program);
/* Hands the run that room; nothing is known. */
void operand_peaks_place(struct run *run, void *room);
/* The number of an operand among them; use: enum product_use. */
static inline int64_t operand_peaks_value(const struct param *param, int use,
                                          bool right)
{
    return ((int64_t)param->order * LATE_USES + use) * LATE_OPERANDS + right;
}
/* The rule of a late scale in this step, and the largest magnitude that it is
 * of: while none is known, each region has its own scale. */
static inline enum scale_rule operand_peaks_scale(const struct run *run,
                                                  int64_t value,
                                                  enum scale_rule rule,
                                                  float *known)
{
    *known = run->late.known[value];
    if (*known > 0) return rule;
    return rule == SCALE_LATE ? SCALE_CEIL : SCALE_TWO;
}
/* Largest magnitudes that are known, NULL: none; and nothing is seen. */
void operand_peaks_set(const struct run *run, const double *known);
/* Raises table [operand_peaks_values] to what this rank saw. */
void operand_peaks_collect(const struct run *run, double *table);

#endif
