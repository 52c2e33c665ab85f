/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c - scaling laws. */
#include "planner/budget.h"

#include <math.h>

#include "kernels/math.h"

static const double alpha = 0.34, beta = 0.28;

static double budget_loss(double parameters, double tokens)
{
    return 1.69 + 406.4 / math_pow(parameters, alpha) +
           410.7 / math_pow(tokens, beta);
}

void budget_from_flops(struct budget *out, double flops)
{
    *out = (struct budget){.flops = flops};
    out->parameters = sqrt(flops / 120);
    out->tokens = 20 * out->parameters;
    out->loss = budget_loss(out->parameters, out->tokens);
}

void budget_from_tokens(struct budget *out, double tokens)
{
    *out = (struct budget){.tokens = tokens, .parameters = tokens / 20};
    out->flops = 6 * out->parameters * tokens;
    out->loss = budget_loss(out->parameters, tokens);
}

void budget_smaller(double share, double *tokens, double *compute)
{
    const double rest = 1 - (math_pow(share, -alpha) - 1) * beta / alpha;

    if (rest <= 0) {
        *tokens = *compute = INFINITY;
        return;
    }
    *tokens = math_pow(rest, -1 / beta);
    *compute = share * *tokens - 1;
}

double budget_critical_batch(double loss)
{
    return 2e8 / math_pow(loss, 1 / 0.21);
}

/* D' = U + U R* (1 - exp(-R / R*)), R repetitions beyond the first epoch,
 * R* = 15.4. */
double budget_repeated_worth(double unique, double epochs)
{
    const double decay = 15.4;

    if (epochs <= 1) return unique * epochs;
    return unique + unique * decay * (1 - math_exp(-(epochs - 1) / decay));
}
