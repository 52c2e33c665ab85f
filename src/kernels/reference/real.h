/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - the element type of the reference kernels.
 *
 * Every file of this folder is compiled twice, with REAL_BITS 32 and 64, and
 * defines reference_<kernel>_f32 and reference_<kernel>_f64: NAME(<kernel>). */
#ifndef LOCKSTEP_KERNELS_REFERENCE_REAL_H
#define LOCKSTEP_KERNELS_REFERENCE_REAL_H

#include <math.h>
#include "kernels/elementary.h"
#include "kernels/kernels.h"
#include "kernels/math.h"

#if REAL_BITS == 32
typedef float real;
#define REAL_DTYPE DTYPE_F32
#define REAL_FMA __builtin_fmaf
#define REAL_EXPZ(x) expz_f32(x)
#define REAL_LOG(x) log_f32(x)
#define NAME(kernel) reference_##kernel##_f32
#else
typedef double real;
#define REAL_DTYPE DTYPE_F64
#define REAL_FMA __builtin_fma
#define REAL_EXPZ(x) expz_f64(x)
#define REAL_LOG(x) math_log(x)
#define NAME(kernel) reference_##kernel##_f64
#endif

/* e^x, +0 below -87 as in float32. NaN stays NaN. */
static inline double expz_f64(double x)
{
    return x < -87 ? 0 : math_exp(x);
}

/* Copies of a function with and without FMA instructions, chosen when the
 * program is loaded: the bits are the same, the speed is not. */
#if defined(__x86_64__)
#define REAL_CLONES __attribute__((target_clones("fma", "default")))
#else
#define REAL_CLONES
#endif

status NAME(matmul)(struct stream *stream, const struct matmul *p);
status NAME(attention_forward)(struct stream *stream,
                               const struct attention *p);
status NAME(attention_backward)(struct stream *stream,
                                const struct attention *p);

#endif
