/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - the kernels of CUDA by number: the program and its plug-in each have
 * the list, and compare them (device/plugin.h). */
#ifndef LOCKSTEP_KERNELS_CUDA_LIST_H
#define LOCKSTEP_KERNELS_CUDA_LIST_H

#include "device/plugin.h"
#include "kernels/cuda/launch.h"

#define CUDA_KERNEL_ROW(name) {#name, sizeof(struct name##_call)},

#endif
