/* SPDX-License-Identifier: Apache-2.0 */
/* difference.h - the operands of a kernel beside those of the reference. */
#ifndef LOCKSTEP_BENCH_DIFFERENCE_H
#define LOCKSTEP_BENCH_DIFFERENCE_H

#include "bench/cases.h"

/* The first element that is not as the reference has it. */
struct difference {
    bool is;
    int operand; /* of the call, in the order of the case; -1: a float64 */
    int64_t element;
    double found, expected;
};

/* Compares bits; NaNs are equal. Both were prepared by the same case and run,
 * `theirs` by the reference. Where ours is narrow, theirs may be float32 that
 * was not rounded yet. Of a product, only rows that theirs made. */
struct difference difference_find(const struct operands *ours,
                                  const struct operands *theirs);

#endif
