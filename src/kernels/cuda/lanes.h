/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - sums of rows in LANES lanes, for kernels of CUDA: a block has
 * BLOCK_ROWS rows, and LANES threads for each. */
#ifndef LOCKSTEP_KERNELS_CUDA_LANES_H
#define LOCKSTEP_KERNELS_CUDA_LANES_H

#include "kernels/cuda/words.h"

enum { BLOCK_ROWS = BLOCK_THREADS / LANES };
struct lanes_shared { float lanes[BLOCK_ROWS][LANES]; };

/* Every thread of the block gets the sum of its row's lanes. */
DEVICE float lanes_of_row(struct lanes_shared *s, float value)
{
    const int row = THREAD / LANES, lane = THREAD % LANES;

    BARRIER; /* the sum before was read */
    s->lanes[row][lane] = value;
    for (int half = LANES / 2; half > 0; half /= 2) {
        BARRIER;
        if (lane < half)
            s->lanes[row][lane] =
                s->lanes[row][lane] + s->lanes[row][lane + half];
    }
    BARRIER;
    return s->lanes[row][0];
}

/* Like lanes_of_row, in float64. */
struct lanes64_shared { double lanes[BLOCK_ROWS][LANES]; };

DEVICE double lanes64_of_row(struct lanes64_shared *s, double value)
{
    const int row = THREAD / LANES, lane = THREAD % LANES;

    BARRIER;
    s->lanes[row][lane] = value;
    for (int half = LANES / 2; half > 0; half /= 2) {
        BARRIER;
        if (lane < half)
            s->lanes[row][lane] =
                s->lanes[row][lane] + s->lanes[row][lane + half];
    }
    BARRIER;
    return s->lanes[row][0];
}

/* squares_sum (kernels/sums.h) by one block, level by level. */
DEVICE void squares_fold(double *sums, int64_t count)
{
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t i = 2 * width * THREAD; i + width < count;
             i += 2 * width * BLOCK_THREADS)
            sums[i] = sums[i] + sums[i + width];
        BARRIER;
    }
}

#endif
