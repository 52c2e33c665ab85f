/* SPDX-License-Identifier: Apache-2.0 */
/* loss_scale.h - the factor that keeps gradients of activations inside the
 * range of float16. Source: Micikevicius et al. 2017, arXiv:1710.03740,
 * section 3.2, with the dynamic choice that is proposed there: large at first,
 * halved after an overflow, doubled after many steps without one.
 *
 * All factors are powers of two, so that in float32 nothing is rounded by
 * them. A step whose gradients are not finite changes no weight and no moment,
 * and is not counted by the optimizer. */
#ifndef LOCKSTEP_STEP_LOSS_SCALE_H
#define LOCKSTEP_STEP_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "tensor/tensor.h"

enum { LOSS_SCALE_GOOD_STEPS = 2000 }; /* until it is doubled */

struct loss_scale {
    double value;     /* of the mean loss; 0: there is none */
    double share;     /* the power of two that stands for 1 / targets */
    bool dynamic;
    int64_t good;     /* steps since the value changed */
    int64_t skipped;  /* steps without an update, of the run */
};

/* train.loss_scale: auto, or a power of two. tokens: of a step. ERR_CONFIG:
 * neither (names the nearest), or the type needs none. */
status loss_scale_parse(struct loss_scale *scale, const char *text,
                        enum dtype dtype, int64_t tokens);
/* The factor of the gradient of a token's loss: 1 without loss scaling. */
double loss_scale_factor(const struct loss_scale *scale);
/* After a step. ERR_NUMERIC: no scale makes the gradients finite. */
status loss_scale_after(struct loss_scale *scale, bool finite);

#endif
