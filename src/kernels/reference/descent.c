/* SPDX-License-Identifier: Apache-2.0 */
/* descent.c - the parts of optimizers that compute a step of whole matrices
 * between them: what goes in, and what becomes of the weights. */
#include "kernels/reference/real.h"

/* The buffer is an average, as torch.optim.Muon has it, not a sum. */
status NAME(momentum)(struct stream *stream, const struct momentum *p)
{
    real *buffer = p->buffer.data, *gradient = p->gradient.data;
    const real scale = (real)p->scale, decay = (real)p->decay;
    const real rest = (real)(1 - p->decay);
    const int64_t count = tensor_count(&p->gradient);

    (void)stream;
    CHECK(p->gradient.dtype == REAL_DTYPE && p->buffer.dtype == REAL_DTYPE);
    CHECK(tensor_count(&p->buffer) == count);
    for (int64_t i = 0; i < count; i++) {
        const real g = gradient[i] * scale;

        buffer[i] = REAL_FMA(decay, buffer[i], rest * g);
        gradient[i] = p->nesterov ? REAL_FMA(decay, buffer[i], rest * g)
                                  : buffer[i];
    }
    return OK;
}

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
