/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - what the two directions of the reference attention share. */
#ifndef LOCKSTEP_KERNELS_REFERENCE_ATTENTION_H
#define LOCKSTEP_KERNELS_REFERENCE_ATTENTION_H

#include "kernels/reference/real.h"

enum { ATTENTION_LEVELS = 24 }; /* of a tree: 2^31 positions */

/* out[j] = chain over `width` elements of x[e] * rows[j * stride + e]. */
void NAME(attention_dots)(real *out, const real *x, const real *rows,
                          int64_t stride, int count, int width);
/* Sum of a[e] * b[e] (FMAs) in LANES lanes. */
real NAME(attention_lanes)(const real *a, const real *b, int width);
/* Whether the key at this position is seen; both are positions in the
 * sequence. */
bool NAME(attention_sees)(const struct attention *p, int64_t sequence,
                          int64_t query, int64_t key);
/* Whether the granule of keys from `first` on lies before the query's window.
 */
bool NAME(attention_before)(const struct attention *p, int64_t query,
                            int64_t first);
/* What dropout multiplies the weight of a pair by; 1 without it. */
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

/* Row of a key or query from its position. */
static inline int64_t attention_key_row(const struct attention *p,
                                        int64_t sequence, int64_t key)
{
    return sequence * (p->key_stride ? p->key_stride : p->keys) + key -
           p->first_key;
}

static inline int64_t attention_query_row(const struct attention *p,
                                          int64_t sequence, int64_t query)
{
    return sequence * (p->query_stride ? p->query_stride : p->queries) +
           query - p->first_query;
}

#endif
