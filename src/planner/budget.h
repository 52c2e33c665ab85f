/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h - how large a model and how many tokens a budget buys.
 *
 * Hoffmann et al. 2022, arXiv:2203.15556 (Chinchilla): the fit
 * L = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28, and the rule of 20 tokens a
 * parameter. Smaller models that are trained longer to the same loss cost
 * (1 - (k^-0.34 - 1) 0.28 / 0.34)^(-1 / 0.28) k times the compute, k the share
 * of the parameters ("Harm's law"). */
#ifndef LOCKSTEP_PLANNER_BUDGET_H
#define LOCKSTEP_PLANNER_BUDGET_H

#include "planner/shape.h"

struct budget {
    double flops, tokens, parameters; /* Chinchilla's choice for the flops */
    double loss;           /* by the fit */
};
/* 20 tokens a parameter, 6 FLOP for each of both. */
void budget_from_flops(struct budget *out, double flops);
void budget_from_tokens(struct budget *out, double tokens);

/* The same loss with `share` of the parameters: times as many tokens, and the
 * additional compute as a share. Infinite where no amount of tokens helps. */
void budget_smaller(double share, double *tokens, double *compute);

/* Kaplan et al. 2020, arXiv:2001.08361, section 5.1: beyond
 * 2e8 / L^(1 / 0.21) tokens a larger batch hardly saves steps. */
double budget_critical_batch(double loss);
/* Muennighoff et al. 2023, arXiv:2305.16264: tokens that repeated ones are
 * worth, with unique data seen `epochs` times. */
double budget_repeated_worth(double unique, double epochs);

#endif
