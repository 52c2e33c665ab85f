/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - how much scratch the fast kernels need: the same for every
 * instruction set, and constant but for the threads. */
#ifndef LOCKSTEP_KERNELS_CPU_SCRATCH_H
#define LOCKSTEP_KERNELS_CPU_SCRATCH_H

#include <stddef.h>

/* In floats. Panels of a: 8 of up to 14 rows and 1,024 elements, about 450 KB,
 * which with a strip of b fits a second-level cache. */
enum {
    MATMUL_CHUNK = 1024, /* elements of the contracted dimension */
    MATMUL_PANELS = 8,
    MATMUL_A_FLOATS = MATMUL_PANELS * 14 * MATMUL_CHUNK + 64, /* per thread */
    MATMUL_B_FLOATS = 2048 * 1024,
    MATMUL_SLOT_FLOATS = 2048 * 1024
};

static inline size_t matmul_scratch_bytes(int threads)
{
    size_t a = (size_t)threads * MATMUL_A_FLOATS;

    return (a + MATMUL_B_FLOATS + MATMUL_SLOT_FLOATS) * sizeof(float);
}

#endif
