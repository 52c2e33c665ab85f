/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - how kernels of CUDA are started on the device cuda: what
 * kernels/cuda/launch.h is made of. In the work of a queue alone, whose end all
 * that is copied here lives to see. */
#ifndef LOCKSTEP_DEVICE_GPU_H
#define LOCKSTEP_DEVICE_GPU_H

#include "device/device.h"

/* `kernel` is the number that the plug-in knows it by. */
status gpu_launch(struct device *device, int kernel, int64_t blocks,
                  const void *call, size_t bytes);
/* A copy of the host's memory where kernels find it. */
status gpu_copy(struct device *device, const void *data, size_t bytes,
                const void **out);

#endif
