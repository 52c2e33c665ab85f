/* SPDX-License-Identifier: Apache-2.0 */
/* descent.c - the update of weights whose step was computed from whole
 * matrices. */
#include "kernels/cpu/cpu.h"
#include "kernels/element.h"

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
