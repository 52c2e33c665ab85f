/* SPDX-License-Identifier: Apache-2.0 */
/* attended.h - attention that a library of the GPU computes
 * (numerics.attention). */
#ifndef LOCKSTEP_KERNELS_CUDA_ATTENDED_H
#define LOCKSTEP_KERNELS_CUDA_ATTENDED_H

#include "device/attended.h"
#include "kernels/cuda/launch.h"

/* Rows of heads of bfloat16 that lie beside each other. */
static inline bool attended_is_heads(const struct tensor *t, int width)
{
    return t->dtype == DTYPE_BF16 && t->stride[2] == 1 &&
           t->stride[1] == width && t->stride[0] % ATTENDED_WIDTH_STEP == 0 &&
           (uintptr_t)t->data % 16 == 0;
}

/* Whole sequences, both halves of them. */
static inline bool attended_is_whole(const struct attention *p)
{
    return p->first_query == 0 && p->first_key == 0 &&
           p->queries == p->keys && p->query_stride == 0 &&
           p->key_stride == 0 && p->denominator.data == NULL &&
           p->half == ATTENTION_WHOLE &&
           p->query_documents == p->key_documents;
}

/* *done: a library has the call, and was given it. False in every layout, or in
 * none. */
status cuda_attended_forward(struct stream *stream, const struct attention *p,
                             bool *done);
status cuda_attended_backward(struct stream *stream,
                              const struct attention *p, bool *done);

#endif
