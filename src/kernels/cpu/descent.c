/* SPDX-License-Identifier: Apache-2.0 */
/* descent.c - the parts of optimizers that compute a step of whole matrices
 * between them. */
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"

static void momentum_body(void *argument, int index, int count)
{
    const struct momentum *p = argument;
    float *buffer = p->buffer.data, *gradient = p->gradient.data;
    const float scale = (float)p->scale, decay = (float)p->decay;
    const float rest = (float)(1 - p->decay);
    const bool nesterov = p->nesterov;
    int64_t first, last;

    threads_split(tensor_count(&p->gradient), LANES, index, count, &first,
                  &last);
    SIMD for (int64_t i = first; i < last; i++) {
        const float g = gradient[i] * scale;
        const float b = __builtin_fmaf(decay, buffer[i], rest * g);

        buffer[i] = b;
        gradient[i] = nesterov ? __builtin_fmaf(decay, b, rest * g) : b;
    }
}

status CPU(momentum)(struct stream *stream, const struct momentum *p)
{
    struct momentum job = *p;
    const int64_t count = tensor_count(&p->gradient);

    CHECK(p->gradient.dtype == DTYPE_F32 && p->buffer.dtype == DTYPE_F32);
    CHECK(tensor_count(&p->buffer) == count);
    cpu_run(stream, count, momentum_body, &job);
    return OK;
}

ELEMENTARY void descent_range(enum dtype dtype, const struct descent *p,
                              int64_t first, int64_t last)
{
    float *weight = p->weight.data;
    const float *step = p->step.data;
    const float rate = (float)-p->rate, keep = (float)p->keep;
    void *copy = p->copy.data;

    SIMD for (int64_t i = first; i < last; i++) {
        const float w = __builtin_fmaf(rate, step[i], weight[i] * keep);

        weight[i] = w;
        if (dtype != DTYPE_F32) element_set(copy, dtype, i, w);
    }
}

static void descent_body(void *argument, int index, int count)
{
    const struct descent *p = argument;
    const bool copies = p->copy.data != NULL;
    int64_t first, last;

    threads_split(tensor_count(&p->weight), LANES, index, count, &first,
                  &last);
    ELEMENT_CHOOSE(copies ? p->copy.dtype : DTYPE_F32, descent_range, p,
                   first, last);
}

status CPU(descend)(struct stream *stream, const struct descent *p)
{
    struct descent job = *p;
    const int64_t count = tensor_count(&p->weight);

    CHECK(p->weight.dtype == DTYPE_F32 && p->step.dtype == DTYPE_F32);
    CHECK(tensor_count(&p->step) == count);
    CHECK(!p->copy.data || (dtype_is_narrow(p->copy.dtype) &&
                            tensor_count(&p->copy) == count));
    cpu_run(stream, count, descent_body, &job);
    return OK;
}
