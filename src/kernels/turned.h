/* SPDX-License-Identifier: Apache-2.0 */
/* turned.h - Adam in the axes of an eigenbasis (SOAP): the numbers that every
 * back end computes alike. Vyas et al. 2024, arXiv:2409.11321, algorithm 3. */
#ifndef LOCKSTEP_KERNELS_TURNED_H
#define LOCKSTEP_KERNELS_TURNED_H

#include "tensor/tensor.h"

/* One of two halves of a step. With a gradient, moments: m of the gradient as
 * it is, v of x, the gradient in the turned axes. Without one x, which is m in
 * those axes, becomes the step there. All are [n] real. docs/numerics.md. */
struct turned {
    struct tensor x, v;
    struct tensor m, gradient; /* data NULL, both: x becomes the step */
    double beta1, beta2;
    double correction1, correction2; /* 1 - beta^t */
    double epsilon;
};

static inline double turned_first(double old, double gradient, double beta)
{
    return beta * old + (1 - beta) * gradient;
}

static inline double turned_second(double old, double x, double beta)
{
    return beta * old + (1 - beta) * x * x;
}

static inline double turned_step(double m, double v, double correction1,
                                 double correction2, double epsilon)
{
    return m / correction1 /
           (__builtin_sqrt(v / correction2) + epsilon);
}

#endif
