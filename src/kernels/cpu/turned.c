/* SPDX-License-Identifier: Apache-2.0 */
/* turned.c - Adam in the axes of an eigenbasis: threads take elements. */
#include "kernels/turned.h"

#include "kernels/cpu/cpu.h"

static void moments_body(void *argument, int index, int count)
{
    const struct turned *p = argument;
    const float *restrict x = p->x.data, *restrict g = p->gradient.data;
    float *restrict m = p->m.data, *restrict v = p->v.data;
    int64_t first, last;

    threads_split(tensor_count(&p->x), LANES, index, count, &first, &last);
    SIMD for (int64_t i = first; i < last; i++) {
        m[i] = (float)turned_first((double)m[i], (double)g[i], p->beta1);
        v[i] = (float)turned_second((double)v[i], (double)x[i], p->beta2);
    }
}

static void step_body(void *argument, int index, int count)
{
    const struct turned *p = argument;
    float *restrict x = p->x.data;
    const float *restrict v = p->v.data;
    int64_t first, last;

    threads_split(tensor_count(&p->x), LANES, index, count, &first, &last);
    SIMD for (int64_t i = first; i < last; i++)
        x[i] = (float)turned_step((double)x[i], (double)v[i], p->correction1,
                                  p->correction2, p->epsilon);
}

status CPU(turned)(struct stream *stream, const struct turned *p)
{
    struct turned job = *p;

    CHECK(p->x.dtype == DTYPE_F32 && p->v.dtype == DTYPE_F32);
    cpu_run(stream, tensor_count(&p->x),
            p->gradient.data != NULL ? moments_body : step_body, &job);
    return OK;
}
