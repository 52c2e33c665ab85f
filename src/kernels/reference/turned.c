/* SPDX-License-Identifier: Apache-2.0 */
/* turned.c - Adam in the axes of an eigenbasis: moments, or the step. */
#include "kernels/turned.h"
#include "kernels/reference/real.h"

status NAME(turned)(struct stream *stream, const struct turned *p)
{
    real *x = p->x.data, *v = p->v.data, *m = p->m.data;
    const real *g = p->gradient.data;

    (void)stream;
    CHECK(p->x.dtype == REAL_DTYPE && p->v.dtype == REAL_DTYPE);
    for (int64_t i = 0; i < tensor_count(&p->x); i++) {
        if (g == NULL) {
            x[i] = (real)turned_step((double)x[i], (double)v[i],
                                     p->correction1, p->correction2,
                                     p->epsilon);
            continue;
        }
        m[i] = (real)turned_first((double)m[i], (double)g[i], p->beta1);
        v[i] = (real)turned_second((double)v[i], (double)x[i], p->beta2);
    }
    return OK;
}
