/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_amx.h - products on the processor's tiles: registers, and work on sums
 * that waits until the next granule is under way.
 *
 * A granule's sums are first stored in the first-level cache. From there they
 * must be added to earlier sums, or become c. If that were done at once, the
 * tiles would have to wait; so the next granule does it, a part in each of its
 * blocks and the rest before it stores sums of its own. Therefore no more than
 * one granule's sums ever wait, and all earlier sums are complete. */
#ifndef LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_AMX_H
#define LOCKSTEP_KERNELS_CPU_MATMUL_MATMUL_AMX_H

#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul/matmul.h"

enum {
    STRIDE = TILE_COLUMNS * 4,  /* bytes of a row of a strip, of dense sums */
    WORKS = SLOTS + 2,
    PART = 4                    /* rows of sums that are done at a time */
};

/* Rows of c that sums become. */
struct matmul_result {
    char *c;
    const char *left, *bias; /* or NULL */
    int64_t c_stride, left_stride; /* bytes */
    enum dtype c_type, left_type;
    bool past; /* the caches */
};

/* to += from, both dense; or to + from (from NULL: to) becomes the result.
 * Parts read the fields one by one (volatile): where a compiler makes one load
 * of two that were just stored, the processor waits until both stores are done,
 * and so for all tiles before them. */
struct matmul_work {
    float *to;
    const float *from;
    int row, rows; /* done, and all */
    bool finishes;
};

/* Lines of memory to be asked for: `rows` rows of `lines` each, `stride` bytes
 * apart, counting the one in work. */
struct matmul_lines {
    const char *row;
    int64_t stride, rows;
    int line, lines;
    int each; /* so many in a block; 0: none */
};
enum { LINES_STRIP, LINES_RESULT, LINES_LEFT, LINES_COUNT };

struct matmul_later {
    struct matmul_work works[WORKS]; /* in this order */
    int first, count;
    struct matmul_result result; /* of the one work that finishes */
    struct matmul_lines lines[LINES_COUNT];
    float sums[TILE] __attribute__((aligned(64)));
    float stacks[TOGETHER_MAX][SLOTS][TILE] __attribute__((aligned(64)));
};

/* Does a part of the first work that is left, if any is. */
void CPU(matmul_later_part)(struct matmul_later *later);
/* How many parts there are to do. */
int CPU(matmul_later_parts)(const struct matmul_later *later);

#endif
