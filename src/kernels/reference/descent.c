/* SPDX-License-Identifier: Apache-2.0 */
/* descent.c - the update of weights whose step was computed from whole
 * matrices. */
#include "kernels/reference/real.h"

status NAME(descend)(struct stream *stream, const struct descent *p)
{
    real *weight = p->weight.data;
    const real *step = p->step.data;
    const real rate = (real)-p->rate, keep = (real)p->keep;
    const int64_t count = tensor_count(&p->weight);

    (void)stream;
    CHECK(p->weight.dtype == REAL_DTYPE && p->step.dtype == REAL_DTYPE);
    CHECK(tensor_count(&p->step) == count);
    for (int64_t i = 0; i < count; i++)
        weight[i] = REAL_FMA(rate, step[i], weight[i] * keep);
    return OK;
}
