/* SPDX-License-Identifier: Apache-2.0 */
/* newton_schulz.h - a matrix with its singular values brought near 1, by
 * products alone.
 *
 * X0 = X / |X| (Frobenius), then `steps` times, with A = Xk Xk^T:
 *   Xk+1 = a Xk + (b A + c A A) Xk,  a, b, c = 3.4445, -4.7750, 2.0315
 * A tall matrix is treated as its transpose is. Five steps bring singular
 * values above about 1e-3 of the norm to between 0.68 and 1.14; they do not
 * converge to 1, and need not. Source: Jordan et al. 2024, "Muon: an optimizer
 * for hidden layers in neural networks"; the iteration is that of Kovarik 1970
 * and Bjorck and Bowie 1971. */
#ifndef LOCKSTEP_OPTIMIZER_NEWTON_SCHULZ_H
#define LOCKSTEP_OPTIMIZER_NEWTON_SCHULZ_H

#include "kernels/kernels.h"

struct newton_schulz {
    const struct kernels *kernels; /* of the matrix's type, real */
    struct stream *stream;
    struct tensor x;   /* [rows, cols], dense; becomes the result */
    void *scratch;     /* [newton_schulz_elements] */
    int steps;
};

/* Elements of scratch. */
int64_t newton_schulz_elements(int64_t rows, int64_t cols);
status newton_schulz(const struct newton_schulz *of);

#endif
