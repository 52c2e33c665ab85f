/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c - the learning rate as a function of the step alone. */
#include "optimizer/rate.h"

#include <string.h>

#include "base/text.h"
#include "kernels/math.h"

static const char *const names[] = {"constant", "linear", "cosine", "wsd"};

status rate_curve_parse(const char *name, enum rate_curve *out)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out = (enum rate_curve)i;
        return OK;
    }
    const char *near = text_nearest(name, names, 4);

    FAIL(ERR_CONFIG, "optimizer.schedule: %s is not constant, linear, cosine "
                     "or wsd%s%s", name, near ? "; nearest: " : "",
         near ? near : "");
}

double rate_at(const struct rate *rate, int64_t step)
{
    return rate_between(rate, step, step + 1);
}

double rate_between(const struct rate *rate, int64_t step, int64_t next)
{
    const double pi = 0x1.921fb54442d18p+1;
    const int64_t after = rate->steps - rate->warmup;
    double progress, fall;

    if (step < rate->warmup)
        return rate->peak * (double)next / (double)rate->warmup;
    progress = after > 0 ? (double)(step - rate->warmup) / (double)after : 1;
    if (progress > 1) progress = 1;
    switch (rate->curve) {
    case RATE_CONSTANT:
        return rate->peak;
    case RATE_LINEAR:
        return rate->peak + (rate->least - rate->peak) * progress;
    case RATE_COSINE:
        return rate->least + (rate->peak - rate->least) *
                                 (1 + math_cos(pi * progress)) / 2;
    case RATE_WSD:
        fall = (double)rate->steps * rate->decay_share;
        progress = ((double)step - ((double)rate->steps - fall)) /
                   (fall > 0 ? fall : 1);
        if (progress <= 0) return rate->peak;
        if (progress > 1) progress = 1;
        return rate->peak + (rate->least - rate->peak) * progress;
    }
    return rate->peak;
}
