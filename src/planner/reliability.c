/* SPDX-License-Identifier: Apache-2.0 */
/* reliability.c - failures: a closed form, and a run that is played with
 * random failures. */
#include <math.h>

#include "kernels/math.h"
#include "planner/perturb.h"

enum { RUNS = 64, FAILURES_EACH = 400, HALVINGS = 100 };
static const double day_s = 86400;

static double closed(const struct failures *f, double rate, double interval)
{
    const double lost = rate * (f->restart_s + interval / 2);

    if (lost >= 1) return 0;
    return (1 - lost) / (1 + f->stall_s / interval);
}

static double exact(const struct failures *f, double rate, double interval)
{
    const double x = rate * (interval + f->stall_s);
    const double attempt = x < 1e-5 ? x * (1 + x / 2) : math_exp(x) - 1;

    return math_exp(-rate * f->restart_s) * rate * interval / attempt;
}

/* 1 - exp(-x), also where that cancels. */
static double share_failing(double x)
{
    return x < 1e-4 ? x * (1 - x / 2 * (1 - x / 3)) : 1 - math_exp(-x);
}

/* Where exact() has its maximum: rate i = 1 - exp(-rate (i + w)). The left side
 * grows faster; it is 1 at i = 1 / rate. */
static double best_interval(double stall, double rate)
{
    double low = 0, high = 1 / rate;

    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;

        if (rate * middle < share_failing(rate * (middle + stall)))
            low = middle;
        else high = middle;
    }
    return high;
}

static double uniform(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

/* Trains until the next failure, loses what no checkpoint holds, restarts; a
 * failure may come during a restart. */
static double play(const struct failures *f, double rate, double interval)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    const double period = interval + f->stall_s;
    double useful = 0, wall = 0;

    for (int i = 0; i < RUNS * FAILURES_EACH; i++) {
        const double until = -math_log(uniform(&state)) / rate;
        const double working = until - f->restart_s;

        wall += until;
        if (working > 0) useful += floor(working / period) * interval;
    }
    return useful / wall;
}

void reliability_of(struct reliability *out, const struct failures *f,
                    int nodes)
{
    const double rate = nodes * f->per_node_day / day_s;
    const double stall = f->stall_s > 0 ? f->stall_s : 1e-3;

    *out = (struct reliability){.failures_a_day = rate * day_s};
    out->mtbf_s = 1 / rate;
    out->best_interval_s = best_interval(stall, rate);
    out->interval_s = f->interval_s > 0 ? f->interval_s
                                        : out->best_interval_s;
    out->ettr = closed(f, rate, out->interval_s);
    out->best_ettr = exact(f, rate, out->best_interval_s);
    out->exact_ettr = exact(f, rate, out->interval_s);
    out->simulated_ettr = play(f, rate, out->interval_s);
}
