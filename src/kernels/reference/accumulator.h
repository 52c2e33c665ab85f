/* SPDX-License-Identifier: Apache-2.0 */
/* accumulator.h - sums of a matrix unit that keeps few bits (docs/numerics.md,
 * "Accumulators of hardware"). */
#ifndef LOCKSTEP_KERNELS_REFERENCE_ACCUMULATOR_H
#define LOCKSTEP_KERNELS_REFERENCE_ACCUMULATOR_H

#include "kernels/kernels.h"

enum { ACCUMULATOR_COLUMNS = 32 }; /* that are computed at a time */

/* The operands of a granule, widened: bfloat16 numbers. */
struct widened {
    float a[GRANULE], b[GRANULE][ACCUMULATOR_COLUMNS];
};

/* c [ACCUMULATOR_COLUMNS] = cut(c + the granule of `count` elements). */
void reference_accumulate(int bits, const struct widened *w, int64_t count,
                          double *c);

#endif
