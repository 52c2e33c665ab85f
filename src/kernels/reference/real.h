/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - the element type of the reference kernels.
 *
 * Every file of this folder is compiled twice, with REAL_BITS 32 and 64, and
 * defines reference_<kernel>_f32 and reference_<kernel>_f64: NAME(<kernel>). */
#ifndef LOCKSTEP_KERNELS_REFERENCE_REAL_H
#define LOCKSTEP_KERNELS_REFERENCE_REAL_H

#include <math.h>
#include "kernels/elementary.h"
#include "kernels/math.h"
#include "kernels/kernels.h"

#if REAL_BITS == 32
typedef float real;
#define REAL_DTYPE DTYPE_F32
#define REAL_FMA __builtin_fmaf
#define REAL_SQRT(x) __builtin_sqrtf(x)
#define REAL_EXP(x) exp_f32(x)
#define REAL_EXPZ(x) expz_f32(x)
#define REAL_LOG(x) log_f32(x)
#define REAL_TANH(x) tanh_f32(x)
#define REAL_ERF(x) erf_f32(x)
#define NAME(kernel) reference_##kernel##_f32
#else
typedef double real;
#define REAL_DTYPE DTYPE_F64
#define REAL_FMA __builtin_fma
#define REAL_SQRT(x) __builtin_sqrt(x)
#define REAL_EXP(x) math_exp(x)
#define REAL_EXPZ(x) expz_f64(x)
#define REAL_LOG(x) math_log(x)
#define REAL_TANH(x) math_tanh(x)
#define REAL_ERF(x) math_erf(x)
#define NAME(kernel) reference_##kernel##_f64
#endif

/* e^x, +0 below -87 as in float32. NaN stays NaN. */
static inline double expz_f64(double x)
{
    return x < -87 ? 0 : math_exp(x);
}

/* Copies of a function with and without FMA instructions, chosen when the
 * program is loaded: the bits are the same, the speed is not. Only where it
 * works: clang gives the choosers of static functions names that collide, and
 * sanitizers are not ready yet when the choice is made. */
#if defined(__x86_64__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define REAL_CLONES __attribute__((target_clones("fma", "default")))
#else
#define REAL_CLONES
#endif

/* The sum of a row is kept in LANES lanes: element j goes to lane j % LANES.
 * Folds them: halves added, 8, 4, 2, 1. */
static inline real real_lanes_fold(real *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] = lanes[j] + lanes[j + half];
    return lanes[0];
}

#define REAL_DECLARE(row) extern KERNELS_TYPE(row) NAME(row);
KERNELS_ROWS(REAL_DECLARE)
#undef REAL_DECLARE

#endif
