/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - frequencies of rotary positions, plain and stretched. */
#include "nn/rope.h"

#include <math.h>
#include <string.h>

#include "kernels/math.h"

#define TWO_PI 0x1.921fb54442d18p+2

bool rope_scaling_same(const struct rope_scaling *a,
                       const struct rope_scaling *b)
{
    return a->kind == b->kind && a->factor == b->factor && a->low == b->low &&
           a->high == b->high && a->original == b->original &&
           a->attention == b->attention && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
           a->mscale_all == b->mscale_all && a->truncate == b->truncate &&
           a->near_scale == b->near_scale && a->far_scale == b->far_scale &&
           a->pairs == b->pairs &&
           memcmp(a->near, b->near, sizeof a->near) == 0 &&
           memcmp(a->far, b->far, sizeof a->far) == 0;
}

/* Waves longer than original / low are stretched, shorter than original / high
 * kept, a straight line of turns between them.
 * Source: Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.2, in the
 * form that the released models were trained with. */
static double llama3(const struct rope_scaling *s, double frequency)
{
    const double wave = TWO_PI / frequency;

    if (wave < s->original / s->high) return frequency;
    if (wave > s->original / s->low) return frequency / s->factor;
    if (s->high == s->low) return frequency;
    const double keep = (s->original / wave - s->low) / (s->high - s->low);

    return (1 - keep) * frequency / s->factor + keep * frequency;
}

/* The pair, as a real number, that turns `turns` times in the old length. */
static double pair_of(const struct rope_scaling *s, double base, int rotary,
                      double turns)
{
    const double most = 1e15; /* integers beyond are not all represented */
    const double pair = rotary * math_log(s->original / (turns * TWO_PI)) /
                        (2 * math_log(base));

    return pair < -most ? -most : pair > most ? most : pair;
}

static double round_down(double x)
{
    const double cut = (double)(int64_t)x;

    return cut > x ? cut - 1 : cut;
}

/* Source: Peng et al. 2023, arXiv:2309.00071, section 3.2, with bounds rounded
 * outwards as in the released code. */
static double yarn(const struct rope_scaling *s, double base, int rotary,
                   int pair, double frequency)
{
    double low = pair_of(s, base, rotary, s->beta_fast);
    double high = pair_of(s, base, rotary, s->beta_slow);

    if (s->truncate != 0) {
        low = round_down(low);
        high = -round_down(-high);
    }
    if (low < 0) low = 0;
    if (high > rotary - 1) high = rotary - 1;
    if (low == high) high += 0.001;
    double stretch = (pair - low) / (high - low);

    if (stretch < 0) stretch = 0;
    if (stretch > 1) stretch = 1;
    return frequency / s->factor * stretch + frequency * (1 - stretch);
}

/* Each pair has a factor of its own. Source: Ding et al. 2024,
 * arXiv:2402.13753, section 3, in the form that Phi-3 was released with. */
static double stretched(const struct rope_scaling *s, int pair, int64_t length,
                        double frequency)
{
    return frequency / ((double)length > s->original ? s->far[pair]
                                                     : s->near[pair]);
}

/* A larger base for sequences beyond the old length, so that the slowest pair
 * turns as far in all of them as in that length times a factor. Source: "NTK
 * aware" scaling, Peng et al. 2023, arXiv:2309.00071, sections 3.1 and B.1,
 * with the quotient that the released models were run with. */
static double dynamic_base(const struct rope_scaling *s, double base,
                           int rotary, int64_t length)
{
    const double quotient = (double)length / s->original;

    if (quotient <= 1) return base;
    return base * math_pow(s->factor * quotient - (s->factor - 1),
                           rotary / (rotary - 2.0));
}

/* base^(-2 pair / rotary). Source: Su et al. 2021, arXiv:2104.09864, section
 * 3.2.2; linear: Chen et al. 2023, arXiv:2306.15595, section 3.2. */
double rope_frequency(const struct rope_scaling *scaling, double base,
                      int rotary, int pair, int64_t length)
{
    const double own = scaling->kind == ROPE_DYNAMIC
                           ? dynamic_base(scaling, base, rotary, length)
                           : base;
    const double plain = math_pow(own, -2.0 * pair / (double)rotary);

    switch (scaling->kind) {
    case ROPE_LINEAR: return plain / scaling->factor;
    case ROPE_LLAMA3: return llama3(scaling, plain);
    case ROPE_YARN: return yarn(scaling, base, rotary, pair, plain);
    case ROPE_LONG: return stretched(scaling, pair, length, plain);
    case ROPE_PLAIN:
    case ROPE_DYNAMIC:
    case ROPE_KINDS: break;
    }
    return plain;
}

static double yarn_scale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * math_log(factor) + 1;
}

double rope_attention_factor(const struct rope_scaling *s, int64_t length)
{
    if (s->kind != ROPE_YARN && s->kind != ROPE_LONG) return 1;
    if (s->near_scale != 0)
        return (double)length > s->original ? s->far_scale : s->near_scale;
    if (s->attention != 0) return s->attention;
    if (s->kind == ROPE_LONG)
        return s->factor <= 1 ? 1
                              : sqrt(1 + math_log(s->factor) /
                                             math_log(s->original));
    if (s->mscale != 0 && s->mscale_all != 0)
        return yarn_scale(s->factor, s->mscale) /
               yarn_scale(s->factor, s->mscale_all);
    return yarn_scale(s->factor, 1);
}
