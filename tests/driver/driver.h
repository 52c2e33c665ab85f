/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - a driver of GPUs that are not there, for tests of the device cuda:
 * a libcuda.so.1 whose GPUs run kernels under the emulator.
 *
 * Memory of a GPU has addresses that nobody can use; kernels and copies use a
 * second place. Work happens later, by one thread, stream by stream in an order
 * that is drawn: LOCKSTEP_DRIVER=late (the default), when somebody waits for it
 * and no more than that; early, as soon as it may. Events alone order streams.
 *
 *   GPUS, GPU_BYTES    how many there are (1), memory of one (8 GiB)
 *   DRIVER, GPU_NAME, MAJOR, MINOR   what it says of itself (13000, a test, 9,
 *                      0)
 *   BROKEN=1           it takes no modules
 *   ONLY_OWN=1         it takes no machine code of other kinds of GPUs; else
 *                      that counts as its own (a test's build may have one
 *                      kind)
 *   LAUNCH_US          so long a kernel lasts at least (0)
 *   DRIVER_COUNTS=FILE what was asked of it (work.h) and the most memory are
 *                      added to the file */
#ifndef LOCKSTEP_TESTS_DRIVER_H
#define LOCKSTEP_TESTS_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/cuda/emulator.h"

#define EXPORTED __attribute__((visibility("default")))
enum { GPUS_MOST = 64 };

struct CUctx_st { int device; uint32_t stack; };  /* the primary ones */
struct CUmod_st { const char *elf; /* in the fatbin */ };
/* A kernel's registers of a thread, threads of a block at most, bytes of memory
 * of a block, of a thread's own (stack), and of its call, as nvcc made them. */
struct kernel_image { uint32_t registers, threads, shared, local, call; };
struct CUfunc_st {
    const char *name;
    size_t bytes;
    enum cuda_kernel kernel;
    struct kernel_image image;
    bool loaded;
};
extern struct CUctx_st contexts[GPUS_MOST];

int driver_number(const char *name, int otherwise);
/* CUDA_SUCCESS, the error that a kernel ended with, or INVALID_CONTEXT: the
 * thread has none. */
CUresult driver_ready(void);
int driver_device(void); /* of the thread's context */
uint32_t driver_stack(void); /* a thread's, in that context */

/* ---- images.c ---- */

CUresult image_choose(const void *fatbin, struct CUmod_st *out);
bool image_kernel(const struct CUmod_st *module, const char *name,
                  struct kernel_image *out);
/* Whether a GPU starts blocks of it, with so many bytes of dynamic memory. */
CUresult image_starts(const struct CUfunc_st *function, uint32_t threads,
                      uint32_t shared);

/* Where kernels of the device find `bytes` from `at` on; NULL: it has no such
 * memory. */
void *memory_near(int device, CUdeviceptr at, size_t bytes);
bool memory_is_pinned(const void *at);
void memory_foreign(int device, int64_t bytes);
/* The most bytes that there were at once, of GPUs and pinned. */
size_t memory_most(void);
/* Addresses of a call become those that kernels use. Host memory becomes an
 * address that nobody has. */
void memory_translate(int device, void *call, size_t bytes);

/* All that was given is done. */
void streams_finish(void);
CUresult streams_error(void);

#endif
