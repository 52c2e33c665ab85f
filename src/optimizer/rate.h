/* SPDX-License-Identifier: Apache-2.0 */
/* rate.h - the learning rate as a function of the step alone. */
#ifndef LOCKSTEP_OPTIMIZER_RATE_H
#define LOCKSTEP_OPTIMIZER_RATE_H

#include <stdint.h>
#include "base/status.h"

enum rate_curve { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE, RATE_WSD };

struct rate {
    enum rate_curve curve;
    double peak, least;   /* learning rates */
    int64_t steps;        /* of the run */
    int64_t warmup;       /* steps */
    double decay_share;   /* wsd: share of the steps in which it falls */
};

/* ERR_CONFIG names the nearest curve. */
status rate_curve_parse(const char *name, enum rate_curve *out);

/* Step counts from 0. Below warmup: peak (step + 1) / warmup. Then, with
 * progress = (step - warmup) / (steps - warmup):
 *   constant  peak
 *   linear    peak + (least - peak) progress
 *   cosine    least + (peak - least) (1 + cos(pi progress)) / 2
 *             Source: Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5
 *   wsd       peak until the last decay_share of the steps, then linear to
 *             least. Source: Hu et al. 2024, arXiv:2404.06395, section 4.1
 * Beyond the last step: its final value. */
double rate_at(const struct rate *rate, int64_t step);
/* Like rate_at, where steps and warmup are other units of work: `done` of them
 * are when the step begins, `next` when it ends. */
double rate_between(const struct rate *rate, int64_t done, int64_t next);

#endif
