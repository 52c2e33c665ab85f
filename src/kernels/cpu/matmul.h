/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.h - the parts of the fast matrix product.
 *
 *   matmul_chunk.c  cuts the contracted dimension into chunks and each chunk
 *                   into steps: granules and where their sums go
 *   matmul_pack.c   copies a chunk of a into panels of TILE_ROWS rows and of b
 *                   into strips of TILE_COLUMNS columns, element by element of
 *                   the contracted dimension
 *   matmul_tile.c   runs the steps of a chunk for one tile of c
 *   matmul.c        loops over tiles and threads
 *
 * The tree over leaves is a stack of tiles: a finished leaf is pushed and
 * merges with its left neighbours as a binary counter carries. */
#ifndef LOCKSTEP_KERNELS_CPU_MATMUL_H
#define LOCKSTEP_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

enum {
    CHUNK_STEPS = 64,
    SLOTS = 8,             /* of the stack: log2(LEAVES_MAX) + 2 */
    TILE = TILE_ROWS * TILE_COLUMNS
};

struct matmul_step {
    int64_t first; /* index in the contracted dimension */
    int offset;    /* the same in the chunk */
    int length;    /* elements, at most GRANULE */
    int slot;      /* of the stack, where the granule goes */
    bool assign;   /* else added */
    int merges;    /* then: so many times the top is added to the one below */
};

struct matmul_chunk {
    struct matmul_step steps[CHUNK_STEPS];
    int count, elements;
    int slots_before, slots_after; /* of the stack */
    bool last;
};

struct matmul_cursor {
    const struct sum_order *order;
    int64_t segment, done; /* next segment, elements of it that are done */
    int slots;             /* of the stack now */
    bool unfinished;       /* slot 0 is a leaf that goes on */
};

void CPU(matmul_cursor_init)(struct matmul_cursor *cursor,
                             const struct sum_order *order, bool continues);
/* false: nothing is left. */
bool CPU(matmul_chunk_next)(struct matmul_cursor *cursor,
                            struct matmul_chunk *out);

/* Panels of TILE_ROWS rows, one after the other: panel[e * TILE_ROWS + i] =
 * from[i * stride + e * step] for the elements e of a chunk (in order of its
 * steps); rows from `count` on are anything. One of the strides is 1. May write
 * WIDTH elements past the last panel. */
void CPU(matmul_pack_rows)(float *out, const float *from, int64_t stride,
                           int64_t step, int count,
                           const struct matmul_chunk *chunk);
/* One strip, the same with columns of b; from `count` on they are +0. */
void CPU(matmul_pack_columns)(float *out, const float *from, int64_t stride,
                              int64_t step, int count,
                              const struct matmul_chunk *chunk);

/* One tile of c and where its stack lives between chunks. */
struct matmul_tile {
    const struct matmul_chunk *chunk;
    const float *a, *b;      /* panel and strip */
    int rows, columns;
    float *c;
    int64_t c_stride;
    float *slots;            /* of the blocks: slot s at + s * slot_size, */
    int64_t slot_stride, slot_size; /* row i at + i * slot_stride */
    bool keep_first;         /* slot 0 between chunks: in slots, else in c */
    const float *bias, *left; /* at this tile, or NULL */
    int64_t left_stride;
};
void CPU(matmul_tile_run)(const struct matmul_tile *tile);

#endif
