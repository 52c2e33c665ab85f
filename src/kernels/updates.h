/* SPDX-License-Identifier: Apache-2.0 */
/* updates.h - the calls that update weights. "real" and narrow tables as in
 * kernels.h. */
#ifndef LOCKSTEP_KERNELS_UPDATES_H
#define LOCKSTEP_KERNELS_UPDATES_H

#include <stdbool.h>
#include "kernels/masters.h"
#include "kernels/sums.h"
#include "tensor/tensor.h"

struct range_sum; /* base/range_sum.h */

struct adamw {
    struct tensor weight, m, v; /* [n] real */
    struct tensor gradient;     /* [n] real, already averaged and clipped by
                                 * `scale` below */
    double scale;               /* gradient factor: clip; rounded once */
    double lr, beta1, beta2, epsilon, decay;
    double correction1, correction2; /* 1 - beta^t, from pow by squaring */
    struct tensor copy;         /* [n] narrow: the new weights, rounded; data
                                 * NULL: none */
};

/* Updates of elements; adamw's row is one of them, with float32 moments.
 * docs/numerics.md has the expressions.
 *   states    0                        1
 *   ADAMW     first moment             second moment
 *   LION      momentum
 *   SGD       momentum (Nesterov)
 *   MOMENTUM  average of gradients; `weight`, which may be the gradient, is
 *             set to it, or, with a share, to what it becomes next (Nesterov)
 *   FREE      weights that are stepped second moment   (schedule-free)
 *   TOWARDS   where to, a share of the way; nothing else happens
 *   AVERAGE   the same, with a product and a sum in place of the FMA */
enum update_formula { UPDATE_ADAMW, UPDATE_LION, UPDATE_SGD, UPDATE_MOMENTUM,
                      UPDATE_FREE, UPDATE_TOWARDS, UPDATE_AVERAGE };
enum { UPDATE_STATES = 2, UPDATE_BLOCK = SQUARES_BLOCK };

/* One state. In 8 bits (kernels/code8.h) blocks of UPDATE_BLOCK elements have
 * a scale each. */
struct element_state {
    struct tensor values; /* [n]: real, bfloat16 beside float32, or u8: codes;
                           * data NULL: the formula has no such state */
    float *scales;        /* [blocks] of codes */
    bool positive;        /* codes of numbers that are never below zero */
};

struct element_update {
    enum update_formula formula;
    struct tensor weight, gradient; /* n elements, a vector or a matrix whose
                                     * rows may lie apart; real */
    struct tensor copy;             /* the same, narrow; data NULL: none */
    struct element_state states[UPDATE_STATES];
    double scale;                   /* of the gradient; rounded once */
    double lr, beta1, beta2, epsilon, decay;
    double correction1, correction2; /* as adamw */
    double share;                   /* FREE: of the new point in the average;
                                     * TOWARDS, AVERAGE */
    /* Not on a device. Old weights and states, of what is written, lie so many
     * bytes behind the place of the new ones; 0: at it. */
    int64_t from;
    struct range_sum *sum;          /* of the new ones; NULL: not asked for */
    struct masters masters;         /* [n], whose bits begin with a byte, in
                                     * place of the weight, a vector without
                                     * data, and its copy; weights.data NULL:
                                     * none. Not with `from` or `sum` */
};

/* A step of a whole matrix, from the elements that a rank has of it. */
struct descent {
    struct tensor weight, step; /* [n] real */
    double rate, keep;          /* rounded once */
    struct tensor copy;         /* as adamw's */
};

#endif
