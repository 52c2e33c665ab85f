/* SPDX-License-Identifier: Apache-2.0 */
/* rate.h - the learning rate as a function of the step alone. */
#ifndef LOCKSTEP_OPTIMIZER_RATE_H
#define LOCKSTEP_OPTIMIZER_RATE_H

#include <stdint.h>
#include "base/status.h"

enum rate_curve { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE, RATE_WSD,
                  RATE_INVERSE_SQRT };
enum rate_decay { DECAY_LINEAR, DECAY_SQRT, DECAY_COSINE, DECAY_EXPONENTIAL,
                  DECAY_INVERSE };

struct rate {
    enum rate_curve curve;
    enum rate_decay decay; /* wsd: how it falls */
    double peak, least;    /* learning rates */
    int64_t steps;         /* of the run */
    int64_t warmup;        /* steps */
    double decay_share;    /* wsd: share of the steps in which it falls */
};

/* ERR_CONFIG names the nearest curve, or the nearest decay. */
status rate_curve_parse(const char *name, enum rate_curve *out);
status rate_decay_parse(const char *name, enum rate_decay *out);
/* ERR_CONFIG: least is above peak, or 0 where the decay must end above 0, or
 * there is no warmup where the curve depends on it. */
status rate_check(const struct rate *rate);

/* Step counts from 0. Below warmup: peak (step + 1) / warmup. Then, with
 * progress = (step - warmup) / (steps - warmup):
 *   constant  peak
 *   linear    peak + (least - peak) progress
 *   cosine    least + (peak - least) (1 + cos(pi progress)) / 2
 *             Source: Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5
 *   inverse_sqrt  peak sqrt(warmup / (step + 1)), but no less than least
 *             Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 3
 *   wsd       peak until the last decay_share of the steps, then to least.
 *             Source: Hu et al. 2024, arXiv:2404.06395, section 4.1
 * The decay of wsd, with p = 0 to 1 in those steps and fall = peak - least:
 *   linear       peak - fall p
 *   sqrt         least + fall (1 - sqrt(p)). Source: Haegele et al. 2024,
 *                arXiv:2405.18392, section 4 (there "1-sqrt")
 *   cosine       least + fall (1 + cos(pi p)) / 2
 *   exponential  peak (least / peak)^p. Source: Hu et al., section 4.2, whose
 *                half-life is the steps of the decay / log2(peak / least)
 *   inverse      1 / (p / least + (1 - p) / peak). Source: Wen et al. 2024,
 *                arXiv:2410.05192
 * Beyond the last step: its final value. */
double rate_at(const struct rate *rate, int64_t step);
/* Like rate_at, where steps and warmup are other units of work: `done` of them
 * are when the step begins, `next` when it ends. */
double rate_between(const struct rate *rate, int64_t done, int64_t next);

#endif
