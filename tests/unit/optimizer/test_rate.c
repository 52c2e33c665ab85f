/* SPDX-License-Identifier: Apache-2.0 */
/* test_rate.c - mirrors src/optimizer/rate.c: every curve and every decay
 * against its formula in long double by libm, and what is refused. */
#include <math.h>

#include "optimizer/rate.h"
#include "tests/test.h"

enum { STEPS = 1000, WARMUP = 40 };

static struct rate of(enum rate_curve curve, enum rate_decay decay,
                      double least)
{
    return (struct rate){.curve = curve, .decay = decay, .peak = 3e-3,
                         .least = least, .steps = STEPS, .warmup = WARMUP,
                         .decay_share = 0.3};
}

/* The share of the way from peak to least, by the definitions of the papers. */
static long double fallen(const struct rate *rate, long double p)
{
    const long double peak = (long double)rate->peak;
    const long double least = (long double)rate->least;

    switch (rate->decay) {
    case DECAY_LINEAR: return peak * (1 - p) + least * p;
    case DECAY_SQRT: return peak - (peak - least) * sqrtl(p);
    case DECAY_COSINE:
        return (peak + least) / 2 + (peak - least) / 2 * cosl(acosl(-1) * p);
    case DECAY_EXPONENTIAL:
        return expl((1 - p) * logl(peak) + p * logl(least));
    case DECAY_INVERSE:
        return peak * least / (peak * p + least * (1 - p));
    }
    return 0;
}

static void near(double found, long double exact, double peak)
{
    CHECK(fabsl((long double)found - exact) <= 4e-16L * (long double)peak);
}

TEST(decays_of_wsd)
{
    for (int decay = DECAY_LINEAR; decay <= DECAY_INVERSE; decay++)
        for (int zero = 0; zero < (decay < DECAY_EXPONENTIAL ? 2 : 1); zero++) {
            const struct rate rate = of(RATE_WSD, (enum rate_decay)decay,
                                        zero ? 0 : 3e-5);
            double last = rate.peak;

            for (int64_t step = WARMUP; step <= 700; step++)
                CHECK(rate_at(&rate, step) == rate.peak);
            for (int64_t step = 700; step < STEPS; step++) {
                const double found = rate_at(&rate, step);

                near(found, fallen(&rate, (long double)(step - 700) / 300),
                     rate.peak);
                if (step > 700) CHECK(found < last);
                last = found;
            }
            near(rate_at(&rate, STEPS), (long double)rate.least, rate.peak);
            near(rate_at(&rate, 9 * STEPS), (long double)rate.least, rate.peak);
        }
}

/* Half of the way is another rate for each. */
TEST(halves)
{
    struct rate rate = of(RATE_WSD, DECAY_LINEAR, 3e-5);
    const double expected[] = {0.00151500, 8.99892858e-4, 0.00151500, 3e-4,
                               5.94059406e-5};

    for (int decay = DECAY_LINEAR; decay <= DECAY_INVERSE; decay++) {
        rate.decay = (enum rate_decay)decay;
        CHECK(fabs(rate_at(&rate, 850) - expected[decay]) < 1e-11);
    }
}

/* As MiniCPM's paper writes it: half after each half-life. */
TEST(exponential_halves)
{
    struct rate rate = of(RATE_WSD, DECAY_EXPONENTIAL, 3e-3 / 64);

    for (int half = 0; half <= 6; half++)
        near(rate_at(&rate, 700 + 50 * half), 3e-3L / (1 << half), 3e-3);
}

TEST(other_curves)
{
    struct rate rate = of(RATE_INVERSE_SQRT, DECAY_LINEAR, 1e-3);

    for (int64_t step = 0; step < STEPS; step++) {
        const long double exact =
            step < WARMUP ? 3e-3L * (long double)(step + 1) / WARMUP
                          : 3e-3L * sqrtl((long double)WARMUP /
                                          (long double)(step + 1));

        near(rate_at(&rate, step), exact > 1e-3L ? exact : step < WARMUP ? exact
                                                                 : 1e-3L, 3e-3);
    }
    near(rate_at(&rate, 159), 1.5e-3L, 3e-3);
    CHECK(rate_at(&rate, 999) == 1e-3);
    /* In samples: 8 a step. */
    rate.warmup *= 8;
    near(rate_between(&rate, 8 * 159, 8 * 160), 1.5e-3L, 3e-3);
    rate = of(RATE_COSINE, DECAY_SQRT, 0);
    near(rate_at(&rate, 520), 1.5e-3L, 3e-3);
    rate.curve = RATE_LINEAR;
    near(rate_at(&rate, 520), 1.5e-3L, 3e-3);
    rate.curve = RATE_CONSTANT;
    CHECK(rate_at(&rate, 999) == 3e-3);
}

TEST(names)
{
    enum rate_curve curve;
    enum rate_decay decay;

    IS_OK(rate_curve_parse("inverse_sqrt", &curve));
    EQUAL_INT(curve, RATE_INVERSE_SQRT);
    IS_OK(rate_curve_parse("wsd", &curve));
    EQUAL_INT(curve, RATE_WSD);
    IS_OK(rate_decay_parse("sqrt", &decay));
    EQUAL_INT(decay, DECAY_SQRT);
    IS_OK(rate_decay_parse("inverse", &decay));
    EQUAL_INT(decay, DECAY_INVERSE);
    FAILS(rate_curve_parse("cosin", &curve), ERR_CONFIG, "nearest: cosine");
    FAILS(rate_decay_parse("exponentail", &decay), ERR_CONFIG,
             "nearest: exponential");
}

TEST(contradictions)
{
    struct rate rate = of(RATE_WSD, DECAY_SQRT, 0);

    IS_OK(rate_check(&rate));
    rate.decay = DECAY_EXPONENTIAL;
    FAILS(rate_check(&rate), ERR_CONFIG, "0.0003 is a tenth");
    rate.decay = DECAY_INVERSE;
    FAILS(rate_check(&rate), ERR_CONFIG, "decay_type=inverse never");
    rate.peak = 0;
    FAILS(rate_check(&rate), ERR_CONFIG, "optimizer.lr: 0, but optimizer."
                                         "decay_type=inverse falls");
    rate.decay = DECAY_LINEAR;
    IS_OK(rate_check(&rate));
    rate = of(RATE_COSINE, DECAY_INVERSE, 0);
    IS_OK(rate_check(&rate));
    rate.curve = RATE_INVERSE_SQRT;
    IS_OK(rate_check(&rate));
    rate.warmup = 0;
    FAILS(rate_check(&rate), ERR_CONFIG, "optimizer.warmup: 0");
    rate.least = 4e-3;
    FAILS(rate_check(&rate), ERR_CONFIG, "above the peak");
}

TEST_MAIN(decays_of_wsd, halves, exponential_halves, other_curves, names,
          contradictions)
