/* SPDX-License-Identifier: Apache-2.0 */
/* attended.h - attention that a library of the GPU computes
 * (numerics.attention). */
#ifndef LOCKSTEP_KERNELS_CUDA_ATTENDED_H
#define LOCKSTEP_KERNELS_CUDA_ATTENDED_H

#include "kernels/cuda/launch.h"

/* *done: a library has the call, and was given it. False in every layout, or in
 * none. */
status cuda_attended_forward(struct stream *stream, const struct attention *p,
                             bool *done);
status cuda_attended_backward(struct stream *stream,
                              const struct attention *p, bool *done);

#endif
