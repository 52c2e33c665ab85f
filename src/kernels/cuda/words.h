/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - the words that files of kernels (.cu) are written in, so that both
 * nvcc and a C compiler read them.
 *
 *   CUDA_KERNEL(name) { ... }   a kernel; `p` is its struct name_call
 *   CUDA_WIDE_KERNEL(name)      the same; may take all registers, so that a
 *                               multiprocessor may have one block at a time
 *   DEVICE                      in front of a function that kernels call
 *   SHARED(type, name)          memory of the block, one object in a kernel;
 *                               name points to it
 *   BARRIER                     every thread of the block waits for all others
 *   UNROLLED                    in front of a loop: nvcc writes it out, so that
 *                               arrays stay in registers; LOOPED: it does not
 *   THREAD, BLOCK, BLOCKS       index of the thread in its block, of the block,
 *                               number of blocks
 *
 * Each multiply-add is __builtin_fmaf; nvcc gets -fmad=false, so it makes no
 * others. Division and square root are those of IEEE 754, its defaults. */
#ifndef LOCKSTEP_KERNELS_CUDA_WORDS_H
#define LOCKSTEP_KERNELS_CUDA_WORDS_H

#ifdef __CUDACC__
/* Inline functions of the program's headers are for both sides; calls were
 * CHECKed before a kernel starts. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#undef CHECK
#define CHECK(claim) ((void)0)
#define inline __inline__ __host__ __device__
#define __builtin_fmaf fmaf
#define __builtin_fma fma
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_inff() (1.0f / 0.0f)
#define __builtin_nanf(text) nanf(text)

#define DEVICE static __device__ __forceinline__
#define CUDA_KERNEL_BOUND(name, ...)                                       \
    DEVICE void name##_body(const struct name##_call *p);                  \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)              \
        name(const __grid_constant__ struct name##_call call)              \
    {                                                                      \
        name##_body(&call);                                                \
    }                                                                      \
    DEVICE void name##_body(const struct name##_call *p)
#define CUDA_KERNEL(name) CUDA_KERNEL_BOUND(name, 256)
#define CUDA_WIDE_KERNEL(name) CUDA_KERNEL_BOUND(name, 256, 1)
#define SHARED(type, name)                                                 \
    __shared__ type name##_object;                                         \
    type *const name = &name##_object
#define UNROLLED _Pragma("unroll")
#define LOOPED _Pragma("unroll 1")
#define BARRIER __syncthreads()
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int64_t)blockIdx.x)
#define BLOCKS ((int64_t)gridDim.x)
#else
#include <stddef.h>
#include <stdint.h>

/* Where the running thread stands (emulator.c). */
struct emulated {
    int thread;
    int64_t block, blocks;
};
extern struct emulated emulated;
/* Memory of the block, which holds NaN when the block begins. */
void *emulated_shared(size_t bytes);
/* All threads of the block must come to the same line. */
void emulated_barrier(const char *file, int line);

/* For warp.h. All threads of the warp come to the same line, each with so many
 * bytes; returns those of all, which stay until the thread's next call. */
enum { EMULATED_BOX = 32, EMULATED_WARP = 32 };
typedef unsigned char emulated_box[EMULATED_BOX];
const emulated_box *emulated_warp(const char *file, int line, const void *mine,
                                  size_t bytes);
/* 16 bytes of the block's memory hold NaN until the thread has waited; from
 * NULL: then zeros. */
void emulated_copy_late(void *to, const void *from);
/* Copies since the last call are a group. */
void emulated_copies_close(void);
/* All groups but the last `open` ones are there. */
void emulated_copies_wait(int open);

#define DEVICE static inline
#define CUDA_KERNEL(name)                                                  \
    static void name##_body(const struct name##_call *p);                  \
    void emulated_##name(const void *call);                                \
    void emulated_##name(const void *call)                                 \
    {                                                                      \
        name##_body((const struct name##_call *)call);                     \
    }                                                                      \
    static void name##_body(const struct name##_call *p)
#define CUDA_WIDE_KERNEL(name) CUDA_KERNEL(name)
#define SHARED(type, name)                                                 \
    type *const name = (type *)emulated_shared(sizeof(type))
#define UNROLLED
#define LOOPED
#define BARRIER emulated_barrier(__FILE__, __LINE__)
#define THREAD (emulated.thread)
#define BLOCK (emulated.block)
#define BLOCKS (emulated.blocks)
#endif

#include "kernels/cuda/launch.h"
#include "kernels/element.h"

/* A number that blocks share becomes the larger one. */
DEVICE void number_raise(float *at, float value)
{
#ifdef __CUDACC__
    int *const bits = (int *)at;
    int old = *(volatile int *)bits;

    while (value > __int_as_float(old)) {
        const int seen = atomicCAS(bits, old, __float_as_int(value));

        if (seen == old) return;
        old = seen;
    }
#else
    if (value > *at) *at = value;
#endif
}

/* Like number_raise, for the smaller one, where 0 stands for none. */
DEVICE void number_lower(float *at, float value)
{
#ifdef __CUDACC__
    int *const bits = (int *)at;
    int old = *(volatile int *)bits;

    while (value > 0 && (!(__int_as_float(old) > 0) ||
                         value < __int_as_float(old))) {
        const int seen = atomicCAS(bits, old, __float_as_int(value));

        if (seen == old) return;
        old = seen;
    }
#else
    if (value > 0 && (!(*at > 0) || value < *at)) *at = value;
#endif
}

/* A count that blocks share. */
DEVICE void count_add(int64_t *at, int64_t value)
{
#ifdef __CUDACC__
    atomicAdd((unsigned long long *)at, (unsigned long long)value);
#else
    *at += value;
#endif
}

/* Element of a view whose numbers may be narrow, widened. */
DEVICE float value_get(struct view view, int64_t row, int64_t column)
{
    return element_get(view.data, view.dtype, row * view.stride + column);
}

/* Rounded once. */
DEVICE void value_set(struct view view, int64_t row, int64_t column,
                      float value)
{
    element_set(view.data, view.dtype, row * view.stride + column, value);
}

/* Element of a view of float32. */
DEVICE float *view_at(struct view view, int64_t row, int64_t column)
{
    return (float *)view.data + row * view.stride + column;
}

#endif
