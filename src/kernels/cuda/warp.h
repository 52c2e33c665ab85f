/* SPDX-License-Identifier: Apache-2.0 */
/* warp.h - work that 32 threads, a warp, do together, for kernels of CUDA:
 * products on tensor cores, their operands from memory of the block, and copies
 * to it that arrive later.
 *
 *   WARP, LANE                 number of the warp in its block, of the thread
 *                              in its warp
 *   MMA(c, a, b)               c += a b: a [16, 16], b [16, 8] bfloat16, c
 *                              [16, 8] float32, spread over the warp
 *   MATRICES(at, turned, out)  four matrices [8, 8] of 16 bits from memory of
 *                              the block: row i of matrix m begins at the `at`
 *                              of lane 8 m + i
 *   WARP_XOR(x, mask)          x of lane LANE ^ mask
 *   COPY_LATE(to, from, there) 16 bytes to memory of the block, or zeros
 *   COPIES_CLOSE               those since the last one are a group
 *   COPIES_WAIT(open)          all groups but the last `open` ones are there:
 *                              this thread's own, so a BARRIER follows
 *
 * All threads of a warp come to the same word. With g = LANE / 4 and
 * t = LANE % 4, a thread has (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *   a[0], a[2]   row g, columns 2 t, 2 t + 1 and those 8 further
 *   a[1], a[3]   the same of row g + 8
 *   b[0], b[1]   column g, rows 2 t, 2 t + 1 and those 8 further
 *   c[0], c[1]   row g, columns 2 t, 2 t + 1; c[2], c[3]: the same of row g + 8
 * and of matrix m in out[m] row g, columns 2 t, 2 t + 1, or turned column g,
 * rows 2 t, 2 t + 1. The lower half of a word comes first.
 *
 * The order in which tensor cores add 16 products to c, and how they round
 * between, is not said anywhere; it is the same in each call. The emulator adds
 * them in float64 and rounds once. */
#ifndef LOCKSTEP_KERNELS_CUDA_WARP_H
#define LOCKSTEP_KERNELS_CUDA_WARP_H

#include "kernels/cuda/words.h"

enum { WARP_THREADS = 32, WARPS = BLOCK_THREADS / WARP_THREADS };
#define WARP (THREAD / WARP_THREADS)
#define LANE (THREAD % WARP_THREADS)

/* Two numbers in a word, each rounded to bfloat16. */
DEVICE uint32_t bfloats(float first, float second)
{
#ifdef __CUDACC__
    uint32_t word;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return element_to_bf16(second) << 16 | element_to_bf16(first);
#endif
}

#ifdef __CUDACC__
DEVICE void warp_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    /* volatile: no compiler moves it to where some threads of the warp are. */
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void warp_matrices(const uint16_t *at, bool turned, uint32_t out[4])
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(at);

    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                     "{%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(address) : "memory");
}

DEVICE void warp_copy_late(void *to, const void *from, bool there)
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(address), "l"(__cvta_generic_to_global(from)),
                    "r"(there ? 16 : 0) : "memory");
}

#define MMA(c, a, b) warp_mma(c, a, b)
#define MATRICES(at, turned, out) warp_matrices(at, turned, out)
#define WARP_XOR(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)
#define COPY_LATE(to, from, there) warp_copy_late(to, from, there)
#define COPIES_CLOSE asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT(open)                                                  \
    asm volatile("cp.async.wait_group %0;" :: "n"(open) : "memory")
#else
#include <string.h>

/* A number of matrix [rows, 16] whose words lie as a thread of each row and
 * pair of columns has them. */
static inline double warp_number(const emulated_box *all, int row, int column,
                                 bool is_b)
{
    const int lane = row % 8 * 4 + column % 8 / 2;
    const int word = is_b ? column / 8 : row / 8 + column / 8 * 2;
    uint32_t pair;

    memcpy(&pair, all[lane] + (is_b ? 16 : 0) + 4 * word, sizeof pair);
    return (double)f32_of_bits(column % 2 ? pair & 0xffff0000u : pair << 16);
}

static inline void warp_mma(const char *file, int line, float c[4],
                            const uint32_t a[4], const uint32_t b[2])
{
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const emulated_box *all = emulated_warp(file, line, mine, sizeof mine);

    for (int i = 0; i < 4; i++) {
        const int row = LANE / 4 + i / 2 * 8, column = LANE % 4 * 2 + i % 2;
        double sum = (double)c[i];

        for (int k = 0; k < 16; k++)
            sum += warp_number(all, row, k, false) *
                   warp_number(all, column, k, true);
        c[i] = (float)sum;
    }
}

static inline void warp_matrices(const char *file, int line, const void *at,
                                 bool turned, uint32_t out[4])
{
    const emulated_box *all = emulated_warp(file, line, &at, sizeof at);
    const int g = LANE / 4, t = LANE % 4 * 2;

    CHECK((uintptr_t)at % 16 == 0);
    for (int m = 0; m < 4; m++) {
        uint16_t two[2];

        for (int i = 0; i < 2; i++) {
            const uint16_t *row;

            memcpy(&row, all[8 * m + (turned ? t + i : g)], sizeof row);
            two[i] = row[turned ? g : t + i];
        }
        out[m] = (uint32_t)two[1] << 16 | two[0];
    }
}

static inline float warp_xor(const char *file, int line, float x, int mask)
{
    const emulated_box *all = emulated_warp(file, line, &x, sizeof x);

    memcpy(&x, all[LANE ^ mask], sizeof x);
    return x;
}

#define MMA(c, a, b) warp_mma(__FILE__, __LINE__, c, a, b)
#define MATRICES(at, turned, out)                                          \
    warp_matrices(__FILE__, __LINE__, at, turned, out)
#define WARP_XOR(x, mask) warp_xor(__FILE__, __LINE__, x, mask)
#define COPY_LATE(to, from, there)                                         \
    emulated_copy_late(to, (there) ? (from) : NULL)
#define COPIES_CLOSE emulated_copies_close()
#define COPIES_WAIT(open) emulated_copies_wait(open)
#endif

#endif
