/* SPDX-License-Identifier: Apache-2.0 */
/* length.c - how many steps a run has, and the learning rate of each. */
#include <string.h>

#include "base/sizes.h"
#include "setup/setup.h"

status setup_read_rate(struct setup *setup, const struct options *o)
{
    struct rate *rate = &setup->rate;

    *rate = (struct rate){.peak = o->optimizer.lr, .least = o->optimizer.min_lr,
                          .warmup = o->optimizer.warmup,
                          .decay_share = o->optimizer.decay_share};
    TRY(rate_curve_parse(o->optimizer.schedule, &rate->curve));
    TRY(rate_decay_parse(o->optimizer.decay_type, &rate->decay));
    setup->rate_by_tokens = strcmp(o->optimizer.schedule_by, "tokens") == 0;
    if (!setup->rate_by_tokens && strcmp(o->optimizer.schedule_by, "steps"))
        FAIL(ERR_CONFIG, "optimizer.schedule_by: %s is not steps or tokens",
             o->optimizer.schedule_by);
    return rate_check(rate);
}

double setup_rate(const struct setup *setup, int64_t step)
{
    const struct ramp *ramp = &setup->ramp;
    struct rate rate = setup->rate;

    if (!ramp_changes(ramp) || !setup->rate_by_tokens)
        return rate_at(&rate, step);
    rate.steps = ramp_samples(ramp, rate.steps);
    rate.warmup = ramp_samples(ramp, rate.warmup);
    return rate_between(&rate, ramp_samples(ramp, step),
                        ramp_samples(ramp, step + 1));
}

/* The least whole number that is no smaller. */
static int64_t least_whole(double number)
{
    const int64_t whole = (int64_t)number;

    return (double)whole < number ? whole + 1 : whole;
}

status setup_check_length(const struct options *o)
{
    const int given = (o->train.steps > 0) + (o->train.tokens > 0) +
                      (o->train.epochs > 0);

    if (given == 1) return OK;
    FAIL(ERR_CONFIG, "the length of the run: set one of train.steps, "
                     "train.tokens and train.epochs; %d are set", given);
}

status setup_length(struct setup *setup, int64_t samples)
{
    const struct options *o = &setup->set->values;
    const int64_t length = o->data.sequence;

    TRY(setup_check_length(o));
    setup->rate.steps = o->train.steps;
    if (o->train.tokens > 0)
        setup->rate.steps = ramp_steps(
            &setup->ramp, (o->train.tokens + length - 1) / length);
    if (o->train.epochs > 0 && ramp_changes(&setup->ramp))
        setup->rate.steps =
            ramp_steps(&setup->ramp,
                       least_whole(o->train.epochs * (double)samples));
    else if (o->train.epochs > 0)
        setup->rate.steps = least_whole(o->train.epochs * (double)samples /
                                        (double)o->train.batch);
    if (setup->rate.steps > RUN_TOKENS_MOST / (setup->batch * length))
        FAIL(ERR_CONFIG, "%lld steps of %lld tokens are more than the 2^60 "
                         "tokens that a run may have",
             (long long)setup->rate.steps, (long long)(setup->batch * length));
    /* The setup may be given another length later. */
    setup->rate.warmup = o->optimizer.warmup < setup->rate.steps
                             ? o->optimizer.warmup : setup->rate.steps;
    return OK;
}
