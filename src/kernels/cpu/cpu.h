/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - names of the fast kernels.
 *
 * Every file of this folder is compiled once per instruction set with ISA
 * defined as plain, avx2, avx512 or neon, and defines cpu_<kernel>_<isa>:
 * CPU(<kernel>). The bits are those of kernels/reference. */
#ifndef LOCKSTEP_KERNELS_CPU_CPU_H
#define LOCKSTEP_KERNELS_CPU_CPU_H

#include "kernels/elementary.h"
#include "kernels/kernels.h"

#define CPU_PASTE(kernel, isa) cpu_##kernel##_##isa
#define CPU_NAME(kernel, isa) CPU_PASTE(kernel, isa)
#define CPU(kernel) CPU_NAME(kernel, ISA)

#define CPU_DECLARE(row) extern KERNELS_TYPE(row) CPU(row);
KERNELS_ROWS(CPU_DECLARE)
#undef CPU_DECLARE
extern KERNELS_TYPE(cross_entropy) CPU(cross_entropy_bf16);
extern KERNELS_TYPE(cross_entropy) CPU(cross_entropy_f16);

/* Before a loop over independent elements: makes vectors of it at every
 * optimisation level, changes no bit. */
#define SIMD _Pragma("omp simd")

enum {
    CPU_WORK_MIN = 8192, /* elements worth waking other threads for */
    LINE = 64            /* bytes, of a cache */
};

/* Splits work over the threads of the stream, unless it is too little. */
static inline void cpu_run(struct stream *stream, int64_t elements,
                           void (*body)(void *argument, int index, int count),
                           void *argument)
{
    threads_run(elements < CPU_WORK_MIN ? NULL : stream->threads, body,
                argument);
}

/* peak = the larger one, whatever other threads do with it. bits: of a
 * magnitude. */
static inline void magnitude_raise(float *peak, uint32_t bits)
{
    float have;

    __atomic_load(peak, &have, __ATOMIC_RELAXED);
    while (bits > bits_of_f32(have)) {
        float want = f32_of_bits(bits);

        if (__atomic_compare_exchange(peak, &have, &want, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    }
}

#endif
