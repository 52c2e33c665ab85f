/* SPDX-License-Identifier: Apache-2.0 */
/* tallies.h - counts of what the roundings of a recipe did to its operands in a
 * step, and ranges, which no order of work can show. Ranks that have the same
 * elements all count them, so that shares are right and sums are not. */
#ifndef LOCKSTEP_NN_TALLIES_H
#define LOCKSTEP_NN_TALLIES_H

#include "nn/operand_peaks.h"

/* Operands of a whole model, numbered by operand_peaks_value; 0: nobody may
 * ask. */
int64_t tallies_count(const struct program *program);
size_t tallies_bytes(const struct program *program);
void tallies_reset(const struct run *run);
/* Adds counts to sums [count][3]: elements, cut, zeroed; raises most
 * [count][3]: the largest magnitude, the largest scale, less the smallest scale
 * (minus infinity: there is none). */
void tallies_collect(const struct run *run, double *sums, double *most);

#endif
