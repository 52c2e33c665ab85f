/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - how much scratch the fast kernels need: the same for every
 * instruction set, and constant but for the threads. */
#ifndef LOCKSTEP_KERNELS_CPU_SCRATCH_H
#define LOCKSTEP_KERNELS_CPU_SCRATCH_H

#include <stddef.h>
#include "kernels/kernels.h"

/* In floats. Panels of a: 8 of up to 14 rows and 1,024 words, about 450 KB,
 * which with a strip of b fits a second-level cache; 6 of 32 rows and 1,536
 * words for AMX, whose processors have caches of 2 MB. */
enum {
    MATMUL_SLAB = 1024, /* words of the contracted dimension */
    MATMUL_PANELS = 8,
    MATMUL_A_FLOATS = 6 * 32 * 1536 + 64, /* per thread */
    MATMUL_B_FLOATS = 2048 * 1024,
    MATMUL_SLOT_FLOATS = 2048 * 1024,
    MATMUL_THREAD_FLOATS = 256 * 1024 /* of each, at least, beside its panels:
                                       * products of experts share nothing */
};

static inline size_t matmul_scratch_bytes(int threads)
{
    const size_t a = (size_t)threads * MATMUL_A_FLOATS;
    const size_t each = (size_t)threads * MATMUL_THREAD_FLOATS;
    const size_t rest = MATMUL_B_FLOATS + MATMUL_SLOT_FLOATS;

    return (a + (each > rest ? each : rest)) * sizeof(float);
}

/* Forward, for one thread: a block of queries, transposed, and a copy of its
 * rows; scores; the partial results that wait for their neighbours; keys and
 * values of a sequence, where they cannot be read in place: as many granules as
 * fit. Backward works on a whole sequence of one head: the waiting nodes of dq
 * (one per level of the tree), waiting leaves of dk and dv, copies of its
 * queries; and the rest for one granule of queries and one of keys. Rows are
 * HEAD_WIDTH_MAX wide. */
enum {
    ATTENTION_QUERIES = 64,
    ATTENTION_NODES = 18, /* of a tree: 2^24 positions */
    ATTENTION_PACKED_FLOATS = 1 << 19,
    ATTENTION_FORWARD_FLOATS =
        2 * ATTENTION_QUERIES * HEAD_WIDTH_MAX +
        ATTENTION_GRANULE * ATTENTION_QUERIES +
        ATTENTION_NODES * ATTENTION_QUERIES * (HEAD_WIDTH_MAX + 2) +
        ATTENTION_PACKED_FLOATS,
    ATTENTION_WEIGHTS_ROWS = ATTENTION_GRANULE, /* keys whose weights are made
                                                 * together, at most */
    /* queries of a granule and a little more: rows on many sets of the cache */
    ATTENTION_WEIGHTS_STRIDE = ATTENTION_GRANULE + 16,
    ATTENTION_PANELS = 4, /* copies of a granule of queries */
    ATTENTION_LEAF_SLOTS = 4
};

/* Levels of the tree over the granules of `length` positions. */
static inline int attention_levels(int64_t length)
{
    int64_t granules = (length + ATTENTION_GRANULE - 1) / ATTENTION_GRANULE;
    int levels = 1;

    while (granules >> levels) levels++;
    return levels;
}

/* Granules that positions [first, end) lie in. */
static inline int64_t attention_granules(int64_t first, int64_t end)
{
    return (end + ATTENTION_GRANULE - 1) / ATTENTION_GRANULE -
           first / ATTENTION_GRANULE;
}

/* Floats of one thread in a backward pass over `queries` and `keys` granules of
 * sequences of `levels` levels; rows are `padded` wide and `slots` leaves of dk
 * and dv wait. */
static inline int64_t attention_backward_floats(int64_t queries, int64_t keys,
                                                int levels, int padded,
                                                int slots)
{
    int64_t rows = queries * ATTENTION_GRANULE;
    int64_t key_rows = keys * ATTENTION_GRANULE;
    int64_t granule = ATTENTION_GRANULE * (int64_t)padded;

    return (rows * (levels + ATTENTION_PANELS) + 2 * key_rows * slots) *
               padded + 2 * rows + granule * (5 + 2 * (int64_t)levels) +
           (ATTENTION_WEIGHTS_ROWS + ATTENTION_GRANULE) *
               (int64_t)ATTENTION_WEIGHTS_STRIDE;
}

/* length: longest sequence of a backward pass; 0: there is none. It is planned
 * for heads of up to 128 elements with one waiting leaf; larger ones run on
 * fewer threads when sequences are as long as `length`. */
static inline size_t attention_scratch_bytes(int threads, int64_t length)
{
    int64_t floats = ATTENTION_FORWARD_FLOATS;

    if (length > 0) {
        int64_t granules = attention_granules(0, length);
        int64_t backward = attention_backward_floats(
            granules, granules, attention_levels(length), 128, 1);

        if (backward > floats) floats = backward;
    }
    return (size_t)floats * (size_t)threads * sizeof(float);
}

#endif
