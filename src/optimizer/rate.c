/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c - the learning rate as a function of the step alone. */
#include "optimizer/rate.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "kernels/math.h"

static const char *const curves[] = {"constant", "linear", "cosine", "wsd",
                                     "inverse_sqrt"};
static const char *const decays[] = {"linear", "sqrt", "cosine", "exponential",
                                     "inverse"};
enum { CURVES = sizeof curves / sizeof curves[0],
       DECAYS = sizeof decays / sizeof decays[0] };

struct choice {
    const char *option, *words; /* words: all names, for people */
    const char *const *names;
    int count;
};

static status find(int *at, const char *name, const struct choice *c)
{
    const char *near;

    for (*at = 0; *at < c->count; ++*at)
        if (strcmp(c->names[*at], name) == 0) return OK;
    near = text_nearest(name, c->names, c->count);
    FAIL(ERR_CONFIG, "%s: %s is not %s%s%s", c->option, name, c->words,
         near ? "; nearest: " : "", near ? near : "");
}

status rate_curve_parse(const char *name, enum rate_curve *out)
{
    int at;

    TRY(find(&at, name, &(struct choice){
        "optimizer.schedule", "constant, linear, cosine, wsd or inverse_sqrt",
        curves, CURVES}));
    *out = (enum rate_curve)at;
    return OK;
}

status rate_decay_parse(const char *name, enum rate_decay *out)
{
    int at;

    TRY(find(&at, name, &(struct choice){
        "optimizer.decay_type", "linear, sqrt, cosine, exponential or inverse",
        decays, DECAYS}));
    *out = (enum rate_decay)at;
    return OK;
}

status rate_check(const struct rate *rate)
{
    if (rate->least > rate->peak)
        FAIL(ERR_CONFIG, "optimizer.min_lr: %g is above the peak, optimizer.lr "
                         "= %g", rate->least, rate->peak);
    if (rate->curve == RATE_WSD && rate->decay >= DECAY_EXPONENTIAL &&
        rate->peak == 0)
        FAIL(ERR_CONFIG, "optimizer.lr: 0, but optimizer.decay_type=%s falls "
                         "by factors; linear, sqrt and cosine take 0",
             decays[rate->decay]);
    if (rate->curve == RATE_WSD && rate->decay >= DECAY_EXPONENTIAL &&
        rate->least == 0)
        FAIL(ERR_CONFIG, "optimizer.min_lr: 0, but optimizer.decay_type=%s "
                         "never gets there; %g is a tenth of optimizer.lr, and "
                         "linear, sqrt and cosine end at 0",
             decays[rate->decay], rate->peak / 10);
    if (rate->curve == RATE_INVERSE_SQRT && rate->warmup == 0)
        FAIL(ERR_CONFIG, "optimizer.warmup: 0, but optimizer.schedule="
                         "inverse_sqrt is optimizer.lr sqrt(warmup / step); "
                         "set the steps of its warm-up");
    return OK;
}

/* The rate where a share p of the decay is over. */
static double decayed(const struct rate *rate, double p)
{
    const double pi = 0x1.921fb54442d18p+1;
    const double peak = rate->peak, least = rate->least;

    switch (rate->decay) {
    case DECAY_LINEAR:
        return peak + (least - peak) * p;
    case DECAY_SQRT:
        return least + (peak - least) * (1 - sqrt(p));
    case DECAY_COSINE:
        return least + (peak - least) * (1 + math_cos(pi * p)) / 2;
    case DECAY_EXPONENTIAL:
        return peak * math_pow(least / peak, p);
    case DECAY_INVERSE:
        return 1 / (p / least + (1 - p) / peak);
    }
    return peak;
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
        return decayed(rate, progress < 1 ? progress : 1);
    case RATE_INVERSE_SQRT:
        fall = rate->peak * sqrt((double)rate->warmup / (double)next);
        return fall > rate->least ? fall : rate->least;
    }
    return rate->peak;
}
