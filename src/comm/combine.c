/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - the arithmetic of reductions: one rounding for each element. */
#include "comm/message.h"

static void sum_f32(float *dst, const float *a, const float *b, int64_t n)
{
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) dst[i] = a[i] + b[i];
}

static void sum_f64(double *dst, const double *a, const double *b, int64_t n)
{
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) dst[i] = a[i] + b[i];
}

/* Wraps: gaps between sums may hold anything. */
static void sum_i64(uint64_t *dst, const uint64_t *a, const uint64_t *b,
                    int64_t n)
{
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) dst[i] = a[i] + b[i];
}

static void max_f32(float *dst, const float *a, const float *b, int64_t n)
{
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) dst[i] = a[i] > b[i] ? a[i] : b[i];
}

static void max_f64(double *dst, const double *a, const double *b, int64_t n)
{
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) dst[i] = a[i] > b[i] ? a[i] : b[i];
}

void combine(const struct comm_call *call, void *dst, const void *a,
             const void *b, int64_t bytes)
{
    const bool sums = call->reduction == REDUCE_SUM;
    const int64_t n = bytes / dtype_bytes(call->out.dtype);

    if (call->out.dtype == DTYPE_F32)
        (sums ? sum_f32 : max_f32)(dst, a, b, n);
    else if (call->out.dtype == DTYPE_I64)
        sum_i64(dst, a, b, n);
    else
        (sums ? sum_f64 : max_f64)(dst, a, b, n);
}
