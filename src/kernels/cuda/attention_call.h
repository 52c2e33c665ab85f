/* SPDX-License-Identifier: Apache-2.0 */
/* attention_call.h - the numbers that kernels of attention are told, for the
 * files that start them. */
#ifndef LOCKSTEP_KERNELS_CUDA_ATTENTION_CALL_H
#define LOCKSTEP_KERNELS_CUDA_ATTENTION_CALL_H

#include "kernels/cuda/launch.h"

/* All but `tiles`. Slopes lie in memory that cuda_copy gave: for the next
 * kernel. */
status cuda_attention_call(struct stream *stream, const struct attention *p,
                           struct attention_call *out);

#endif
