/* SPDX-License-Identifier: Apache-2.0 */
/* mup.c - the factors of the maximal update parametrisation. */
#include "models/mup.h"

#include <math.h>

/* As long at every width: gains that all heads share, biases of logits. */
static bool stays(const struct model *model, const struct param *param)
{
    return param->spec.role == ROLE_LOGIT_BIAS ||
           (param->spec.role == ROLE_HEADS_GAIN &&
            param->spec.rows * param->spec.cols == model->head_width);
}

/* Grows with the width in rows and columns. */
static bool is_hidden(const struct param *param)
{
    return param->layer >= 0 && !param->spec.vector &&
           param->spec.role != ROLE_EXPERT_BIASES &&
           param->spec.role != ROLE_SELECTION_BIAS;
}

struct mup mup_of(const struct model *model, const struct param *param)
{
    const double m = model->mup;
    struct mup mup = {1, 1, 1, 1};

    if (m == 0) return mup;
    if (param->spec.role == ROLE_ROUTER) {
        mup.deviation = mup.rate = mup.sgd = mup.gain = 1 / m;
    } else if (is_hidden(param)) {
        mup.deviation = 1 / sqrt(m);
        mup.rate = 1 / m;
    } else if (param->spec.role == ROLE_LAST_GAIN ||
               param->spec.role == ROLE_LAST_BIAS) {
        mup.gain = mup.rate = mup.sgd = 1 / m;
    } else if (!stays(model, param)) {
        mup.sgd = m;
    }
    return mup;
}
