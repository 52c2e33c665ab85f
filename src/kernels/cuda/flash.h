/* SPDX-License-Identifier: Apache-2.0 */
/* flash.h - attention by our own kernels on tensor cores (numerics.attention):
 * flash_forward.cu, flash_backward.cu. */
#ifndef LOCKSTEP_KERNELS_CUDA_FLASH_H
#define LOCKSTEP_KERNELS_CUDA_FLASH_H

#include "kernels/cuda/launch.h"

/* Whether they have the call: whole sequences of bfloat16. */
bool cuda_flash_takes(const struct attention *p);
bool cuda_flash_takes_back(const struct attention *p);
status cuda_flash_forward(struct stream *stream, const struct attention *p);
/* room: flash_bytes. */
status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *room);

#endif
