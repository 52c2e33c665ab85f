/* SPDX-License-Identifier: Apache-2.0 */
/* loss_scale.c - the factor that keeps gradients of activations inside the
 * range of float16. */
#include "step/loss_scale.h"

#include <stdlib.h>
#include <string.h>

static const double first_scale = 0x1p16, most_scale = 0x1p40,
                    least_scale = 0x1p-24;

/* The largest power of two up to x. */
static double power_below(double x)
{
    double power = least_scale;

    while (2 * power <= x) power *= 2;
    return power;
}

status loss_scale_parse(struct loss_scale *scale, const char *text,
                        enum dtype dtype, int64_t tokens)
{
    char *end;
    const double number = strtod(text, &end);

    *scale = (struct loss_scale){0};
    if (strcmp(text, "auto") == 0) {
        if (dtype != DTYPE_F16) return OK;
        scale->value = first_scale;
        scale->dynamic = true;
    } else {
        if (end == text || *end != 0 || !(number > 0))
            FAIL(ERR_CONFIG, "train.loss_scale: %s is not auto or a power of "
                             "two", text);
        if (dtype != DTYPE_F16)
            FAIL(ERR_CONFIG, "train.loss_scale: %s is of use to float16 alone; "
                             "train.dtype is %s", text, dtype_name(dtype));
        if (number > most_scale || power_below(number) != number)
            FAIL(ERR_CONFIG, "train.loss_scale: %s is not a power of two up to "
                             "2^40; %.17g is", text,
                 power_below(number < most_scale ? number : most_scale));
        scale->value = number;
    }
    scale->share = 1;
    while (scale->share * (double)tokens > 1) scale->share /= 2;
    return OK;
}

double loss_scale_factor(const struct loss_scale *scale)
{
    return scale->value > 0 ? scale->value * scale->share : 1;
}

status loss_scale_after(struct loss_scale *scale, bool finite)
{
    if (scale->value <= 0) return OK;
    if (!finite) {
        scale->skipped++;
        scale->good = 0;
        scale->value /= 2;
        if (scale->value >= least_scale) return OK;
        FAIL(ERR_NUMERIC, "gradients are not finite whatever the loss scale: "
                          "it fell to %g; use train.dtype=bfloat16",
             scale->value);
    }
    scale->good++;
    if (!scale->dynamic || scale->good < LOSS_SCALE_GOOD_STEPS) return OK;
    scale->good = 0;
    if (scale->value < most_scale) scale->value *= 2;
    return OK;
}
