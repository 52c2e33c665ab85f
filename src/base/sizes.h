/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - products and sums of sizes that end at the largest number instead
 * of wrapping around: code that adds up a plan compares the result with that
 * number at the end.
 *
 * Sizes are not negative. The limits below keep all other products of sizes
 * within 63 bits. */
#ifndef LOCKSTEP_BASE_SIZES_H
#define LOCKSTEP_BASE_SIZES_H

#include <stdint.h>

/* Parameters of a model; bytes of one activation of a micro-batch; tokens of a
 * step; bytes of what a stage plans; tokens of a run. */
#define PARAMETERS_MOST ((int64_t)1 << 50)
#define ACTIVATION_BYTES_MOST ((int64_t)1 << 50)
#define STEP_TOKENS_MOST ((int64_t)1 << 40)
#define STAGE_BYTES_MOST ((int64_t)1 << 56)
#define RUN_TOKENS_MOST ((int64_t)1 << 60)

static inline int64_t size_product(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static inline int64_t size_sum(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

#endif
