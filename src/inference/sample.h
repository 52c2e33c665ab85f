/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - the next token from its logits: a penalty for repetitions,
 * temperature, top-k, top-p, min-p, in this order.
 *
 * The choice is a pure function of logits, settings, seed and position. Host
 * arithmetic is float64 with our own exp, so it is the same everywhere. */
#ifndef LOCKSTEP_INFERENCE_SAMPLE_H
#define LOCKSTEP_INFERENCE_SAMPLE_H

#include "tensor/tensor.h"

struct sampling {
    double temperature; /* 0: the largest logit, ties to the lowest id */
    int64_t top_k;      /* keeps the k most likely; 0: all */
    double top_p;       /* keeps the fewest most likely tokens whose
                         * probability reaches this; 1: all */
    double min_p;       /* of those, keeps tokens that are at least this times
                         * as likely as the likeliest; 0: all */
    double penalty;     /* of tokens that the text has; 0 and 1: none */
    uint64_t seed;
};

struct sample_candidate { double weight; int32_t id; };

/* ERR_CONFIG: a setting outside its range. */
status sampling_check(const struct sampling *sampling);
/* *id = a token for `position`. logits [1, vocab]; scratch [vocab]. Tokens less
 * likely than e^-40 of the likeliest are never drawn: the 53 bits of the random
 * number could not tell them apart. ERR_NUMERIC: a logit is no finite number.
 * Source: Fan et al. 2018, arXiv:1805.04833, section 5.2 (top-k); Holtzman et
 * al. 2020, arXiv:1904.09751, section 3.1 (top-p); Nguyen et al. 2024,
 * arXiv:2407.01082, section 3 (min-p). */
status sample_token(const struct sampling *sampling,
                    const struct tensor *logits, int64_t position,
                    struct sample_candidate *scratch, int32_t *id);
/* Changes the logits of tokens that the text `ids` has, each once: a positive
 * one is divided by the penalty, another multiplied. marks [vocab]: all false,
 * before and after. Source: Keskar et al. 2019, arXiv:1909.05858, section 4.1,
 * as transformers has it for negative logits. */
void sample_penalize(const struct sampling *sampling, struct tensor *logits,
                     const int32_t *ids, int64_t count, bool *marks);

#endif
