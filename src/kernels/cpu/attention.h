/* SPDX-License-Identifier: Apache-2.0 */
/* attention.h - the parts that the two directions of the fast attention share.
 *
 * Letters: G = ATTENTION_GRANULE positions. `width` is head_width, `padded`
 * the same in whole vectors: tails of rows are +0 and never reach a chain over
 * the width, which has exactly head_width elements. */
#ifndef LOCKSTEP_KERNELS_CPU_ATTENTION_H
#define LOCKSTEP_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector.h"
#include "kernels/element.h"

#if defined(__AVX512F__)
enum { BLOCK_ROWS = 8 };
#else
enum { BLOCK_ROWS = 4 };
#endif
enum {
    BLOCK_VECTORS = 2,
    BLOCK_COLUMNS = BLOCK_VECTORS * WIDTH,
    G = ATTENTION_GRANULE
};

/* c[i][j] = (chain over e of a[i * a_row + e * a_step] * b[e * b_step + j])
 * + (+0), for BLOCK_ROWS rows i and any number of columns in whole vectors.
 * a_row or a_step is 1. */
struct chains {
    int length;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t b_step;
    float *c;
    int64_t c_row;
};
void CPU(attention_chains)(const struct chains *chains, int columns);

/* out[strip][e][j] = element e of row strip * BLOCK_COLUMNS + j, for `count`
 * rows of x; absent rows of the last strip are +0. */
void CPU(attention_pack_columns)(float *out, const float *x, int64_t stride,
                                 int count, int width);
/* out[row][padded] = `count` rows of x, then +0 up to a multiple of BLOCK_ROWS;
 * tails are +0. */
void CPU(attention_pack_rows)(float *out, const float *x, int64_t stride,
                              int64_t count, int width);

static inline int attention_padded(int width)
{
    return (width + WIDTH - 1) / WIDTH * WIDTH;
}

/* First row of a sequence's queries. */
static inline int64_t attention_query_first(const struct attention *p,
                                            int64_t sequence)
{
    return sequence * (p->query_stride ? p->query_stride : p->queries);
}

/* First element of a row and head. */
static inline void *attention_row(const struct tensor *t, int64_t row,
                                  int head)
{
    return element_at(t->data, t->dtype,
                      row * t->stride[0] + head * t->stride[1]);
}

/* Rows [row, row + count) of a head as float32, *stride apart: where they are,
 * or widened into `copy` [count, head_width]. */
const float *CPU(attention_rows)(const struct tensor *t, int64_t row, int head,
                                 int64_t count, float *copy, int64_t *stride);
/* `width` elements as a row of t, rounded where it is narrow. */
void CPU(attention_write)(const struct tensor *t, void *row, const float *from,
                          int width);

static inline int64_t attention_key_first(const struct attention *p,
                                          int64_t sequence)
{
    return sequence * (p->key_stride ? p->key_stride : p->keys);
}

#endif
