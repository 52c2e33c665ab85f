/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - declarations shared by the two directions of the reference
 * attention. */
#ifndef LOCKSTEP_KERNELS_REFERENCE_ATTENTION_H
#define LOCKSTEP_KERNELS_REFERENCE_ATTENTION_H

#include "kernels/reference/real.h"

enum { ATTENTION_LEVELS = 24 }; /* of a tree: 2^31 positions */

/* Rows `stride` apart, of a head. */
struct attention_rows {
    const real *data;
    int64_t stride;
    int first; /* its number in its granule; asked for in sums over rows */
    int count;
};
/* out[j] = product of x and row j, in chains or tiles. */
void NAME(attention_dots)(const struct attention *p, real *out, const real *x,
                          struct attention_rows rows);
/* sum[e] = sum over rows of weights[j] * rows[j][e], and + (+0). */
void NAME(attention_sum)(const struct attention *p, real *sum,
                         const real *weights, struct attention_rows rows);
/* A weight, or gradient of a score, as the product that takes it sees it:
 * rounded to bfloat16 in tiles. */
real NAME(attention_operand)(const struct attention *p, real x);
/* Sum of a[e] * b[e] (FMAs) in LANES lanes. */
real NAME(attention_lanes)(const real *a, const real *b, int width);
/* Whether the key at this position is seen; both are positions in the
 * sequence. */
bool NAME(attention_sees)(const struct attention *p, int64_t sequence,
                          int64_t query, int64_t key);
/* Whether the granule of keys from `first` on lies before the query's window or
 * attention chunk. */
bool NAME(attention_before)(const struct attention *p, int64_t query,
                            int64_t first);
/* The dropout factor of the weight of a pair; 1 without dropout. */
real NAME(attention_keep)(const struct attention *p, int64_t sequence,
                          int64_t query, int64_t key, int head);
/* Adds what linear biases add to a head's products with `count` keys from the
 * one at position `key` on; nothing without them. */
void NAME(attention_lean)(const struct attention *p, int64_t sequence,
                          int64_t key, int count, int head, real *products);
void NAME(attention_check)(const struct attention *p, bool backward);

/* First element of query, key or output row and head. */
static inline real *attention_at(const struct tensor *t, int64_t row, int head)
{
    return (real *)t->data + row * t->stride[0] + head * t->stride[1];
}

/* `count` rows from `row` of a head. */
static inline struct attention_rows attention_rows(const struct tensor *t,
                                                   int64_t row, int head,
                                                   int first, int count)
{
    return (struct attention_rows){attention_at(t, row, head), t->stride[0],
                                   first, count};
}

#endif
