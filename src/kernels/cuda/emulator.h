/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.h - runs kernels of CUDA on a processor: for unit tests of kernels
 * (emulated.c), and for the driver that tests of the device cuda have
 * (tests/driver). One thread at a time. */
#ifndef LOCKSTEP_KERNELS_CUDA_EMULATOR_H
#define LOCKSTEP_KERNELS_CUDA_EMULATOR_H

#include "kernels/cuda/launch.h"

/* The call is copied; memory that it points to is this process's. */
void emulator_run(enum cuda_kernel kernel, int64_t blocks, const void *call,
                  size_t bytes);

#endif
