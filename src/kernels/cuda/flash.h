/* SPDX-License-Identifier: Apache-2.0 */
/* flash.h - attention by our own kernels on tensor cores (numerics.attention):
 * flash_forward.cu, flash_backward.cu. */
#ifndef LOCKSTEP_KERNELS_CUDA_FLASH_H
#define LOCKSTEP_KERNELS_CUDA_FLASH_H

#include "kernels/cuda/launch.h"

/* Whether they have the call: bfloat16, whole sequences or windows of them.
 * Forward, any window of keys makes a node; backward, any window makes parts of
 * gradients. How sequences are cut in windows shows in the bits of what is
 * merged. */
bool cuda_flash_takes(const struct attention *p);
bool cuda_flash_takes_back(const struct attention *p);
/* Rows from the first sequence's first key to the last one's last. */
static inline int64_t flash_key_rows(const struct attention *p)
{
    return p->sequences * (p->key_stride ? p->key_stride : p->keys);
}
status cuda_flash_forward(struct stream *stream, const struct attention *p);
/* room: flash_bytes. */
status cuda_flash_backward(struct stream *stream, const struct attention *p,
                           float *room);

#endif
