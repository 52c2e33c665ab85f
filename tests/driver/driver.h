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
 *   DRIVER, MAJOR, MINOR   what it says of itself (13000, 9, 0)
 *   BROKEN=1           it takes no modules
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

struct CUctx_st { int device; };  /* the primary ones */
struct CUmod_st { int unused; };
struct CUfunc_st { const char *name; size_t bytes; enum cuda_kernel kernel; };
extern struct CUctx_st contexts[GPUS_MOST];

int driver_number(const char *name, int otherwise);
/* CUDA_SUCCESS, the error that a kernel ended with, or INVALID_CONTEXT: the
 * thread has none. */
CUresult driver_ready(void);
int driver_device(void); /* of the thread's context */

/* Where kernels of the device find `bytes` from `at` on; NULL: it has no such
 * memory. */
void *memory_near(int device, CUdeviceptr at, size_t bytes);
bool memory_is_pinned(const void *at);
/* The most bytes that there were at once, of GPUs and pinned. */
size_t memory_most(void);
/* Addresses of a call become those that kernels use. Host memory becomes an
 * address that nobody has. */
void memory_translate(int device, void *call, size_t bytes);

/* All that was given is done. */
void streams_finish(void);
CUresult streams_error(void);

#endif
