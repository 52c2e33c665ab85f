/* SPDX-License-Identifier: Apache-2.0 */
/* exponentials.c - the weights of all tokens from their logits, in float64. */
#include "kernels/cpu/cpu.h"
#include "kernels/elementary64.h"
#include "kernels/isa.h"

void CPU(exponentials)(const struct exponentials *of, double *out);

void CPU(exponentials)(const struct exponentials *of, double *out)
{
    const float *x = of->x;
    const double top = of->top, divisor = of->divisor, least = of->least;

    SIMD for (int64_t i = 0; i < of->count; i++) {
        const double at = ((double)x[i] - top) / divisor;
        const double value = exp_f64(at);

        out[i] = at < least ? 0 : value;
    }
}
