/* SPDX-License-Identifier: Apache-2.0 */
/* mup.c - the factors of the maximal update parametrisation. */
#include "models/mup.h"

#include <math.h>
#include <string.h>

/* True for the weight of the norm that the head reads. */
static bool is_last_gain(const struct param *param)
{
    return param->layer < 0 && (strcmp(param->name, "norm") == 0 ||
                                strcmp(param->name, "norm.weight") == 0);
}

/* As long at every width: gains that all heads share, biases of logits. */
static bool stays(const struct model *model, const struct param *param)
{
    const bool heads = strstr(param->name, "attention.q_norm") != NULL ||
                       strstr(param->name, "attention.k_norm") != NULL;

    return strcmp(param->name, "head.bias") == 0 ||
           (heads &&
            param->spec.rows * param->spec.cols == model->head_width);
}

struct mup mup_of(const struct model *model, const struct param *param)
{
    const double m = model->mup;
    struct mup mup = {1, 1, 1, 1};

    if (m == 0) return mup;
    if (param->layer >= 0 && !param->spec.vector) {
        mup.deviation = 1 / sqrt(m);
        mup.rate = 1 / m;
    } else if (is_last_gain(param) || strcmp(param->name, "norm.bias") == 0) {
        mup.gain = mup.rate = mup.sgd = 1 / m;
    } else if (!stays(model, param)) {
        mup.sgd = m;
    }
    return mup;
}
