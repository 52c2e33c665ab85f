/* SPDX-License-Identifier: Apache-2.0 */
/* mup.c - the factors of the maximal update parametrisation. */
#include "models/mup.h"

#include <math.h>
#include <string.h>

/* Of the norm that the head reads. */
static bool is_last_gain(const struct param *param)
{
    return param->layer < 0 && (strcmp(param->name, "norm") == 0 ||
                                strcmp(param->name, "norm.weight") == 0);
}

struct mup mup_of(const struct model *model, const struct param *param)
{
    const double m = model->mup;
    struct mup mup = {1, 1, 1};

    if (m == 0) return mup;
    if (param->layer >= 0 && !param->spec.vector) {
        mup.deviation = 1 / sqrt(m);
        mup.rate = 1 / m;
    }
    if (is_last_gain(param) || strcmp(param->name, "norm.bias") == 0)
        mup.gain = mup.rate = 1 / m;
    return mup;
}
