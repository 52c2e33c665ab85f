/* SPDX-License-Identifier: Apache-2.0 */
/* flushing.h - a part of a program in which operations on float32 flush
 * denormal operands and results: MXCSR's modes, where there are such. Elsewhere
 * (MODE_FLUSHES 0) kernels/flush.h does it for each operation.
 *
 * Compilers know nothing of the mode: what should run in it is a call of its
 * own, which they cannot move. */
#ifndef LOCKSTEP_KERNELS_CPU_FLUSHING_H
#define LOCKSTEP_KERNELS_CPU_FLUSHING_H

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define MODE_FLUSHES 1

enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };

/* Returns the modes before. */
static inline unsigned flushing_begin(void)
{
    unsigned before = _mm_getcsr();

    _mm_setcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return before;
}

static inline void flushing_end(unsigned before)
{
    _mm_setcsr(before);
}

/* The same inside a function: operations on a vector that went through
 * FLUSHING_PIN stay behind what came before it, and those that it needs stay
 * in front, for volatile statements keep their order. */
static inline void flushing_set(unsigned modes)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(modes) : "memory");
}

#if defined(__AVX512F__)
#define FLUSHING_PIN(x) __asm__ volatile("" : "+v"(x))
#else
#define FLUSHING_PIN(x) __asm__ volatile("" : "+x"(x))
#endif
#else
#define MODE_FLUSHES 0

static inline unsigned flushing_begin(void)
{
    return 0;
}

static inline void flushing_end(unsigned before)
{
    (void)before;
}
#endif

#endif
