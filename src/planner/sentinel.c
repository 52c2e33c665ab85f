/* SPDX-License-Identifier: Apache-2.0 */
/* sentinel.c - whether a moment of a machine is like another one. */
#include "planner/sentinel.h"

#include <math.h>
#include <stdio.h>

#include "kernels/math.h"

static double ratio(double now, double usual)
{
    return now > 0 && usual > 0 ? now / usual : 1;
}

struct slowness sentinel_slowness(struct sentinel now, struct sentinel usual)
{
    return (struct slowness){ratio(now.product_s, usual.product_s),
                             ratio(now.cache_s, usual.cache_s),
                             ratio(now.memory_s, usual.memory_s),
                             ratio(now.exchange_s, usual.exchange_s)};
}

/* As much slower as faster: what is noise does not depend on which came first.
 */
static bool is_near(double times, double most)
{
    return times <= 1 + most && times * (1 + most) >= 1;
}

bool sentinel_is_far(double times)
{
    return times > 1 + SENTINEL_EXCHANGE;
}

bool sentinel_is_quiet(struct slowness s)
{
    return is_near(s.product, SENTINEL_PRODUCT) &&
           is_near(s.cache, SENTINEL_CACHE) &&
           is_near(s.memory, SENTINEL_MEMORY) &&
           is_near(s.exchange, SENTINEL_EXCHANGE);
}

static double mean(double a, double b)
{
    return a > 0 && b > 0 ? (a + b) / 2 : a > 0 ? a : b;
}

static double least(double a, double b)
{
    return a > 0 && (a < b || b <= 0) ? a : b;
}

struct sentinel moments_usual(const struct moments *m)
{
    return (struct sentinel){
        m->pace.product_s > 0
            ? m->pace.product_s
            : mean(m->before.product_s, m->after.product_s),
        mean(m->before.cache_s, m->after.cache_s),
        mean(m->before.memory_s, m->after.memory_s),
        m->pace.exchange_s > 0
            ? m->pace.exchange_s
            : mean(m->before.exchange_s, m->after.exchange_s)};
}

/* Rows that were brought to one pace do not mind that it wandered. The pass
 * through the shared cache follows it as other works do. Cores may have been
 * far from each other for a while, but not in all rounds of most rows. */
static struct slowness drift(const struct moments *m)
{
    struct slowness apart = sentinel_slowness(m->after, m->before);

    if (m->pace.product_s <= 0) return apart;
    if (m->pace.exchange_s > 0)
        apart.exchange = ratio(m->pace.exchange_s,
                               least(m->before.exchange_s,
                                     m->after.exchange_s));
    if (apart.exchange < 1) apart.exchange = 1;
    apart.cache /= math_pow(apart.product, m->pace.works);
    apart.product = 1;
    return apart;
}

bool moments_are_quiet(const struct moments *m)
{
    return sentinel_is_quiet(drift(m)) && m->pace.rest <= PACE_REST;
}

const char *sentinel_text(struct slowness s, char out[SENTINEL_TEXT])
{
    const double times[] = {s.product, s.cache, s.memory, s.exchange};
    double percent[4];

    /* A file may say any ratio. */
    for (int i = 0; i < 4; i++) {
        percent[i] = 100 * fabs(times[i] - 1);
        if (percent[i] > 1e9) percent[i] = 1e9;
    }
    snprintf(out, SENTINEL_TEXT,
             "products %.0f%% %s, shared cache %.0f%% %s, memory %.0f%% %s, "
             "exchange between cores %.0f%% %s",
             percent[0], times[0] < 1 ? "faster" : "slower",
             percent[1], times[1] < 1 ? "faster" : "slower",
             percent[2], times[2] < 1 ? "faster" : "slower",
             percent[3], times[3] < 1 ? "faster" : "slower");
    return out;
}

void moments_noise(const struct moments *m, char out[SENTINEL_NOISE])
{
    char text[SENTINEL_TEXT];

    out[0] = '\0';
    if (!sentinel_is_quiet(drift(m)))
        snprintf(out, SENTINEL_NOISE, "the machine was measured in a noisy "
                 "minute: at its end %s", sentinel_text(drift(m), text));
    else if (!moments_are_quiet(m))
        snprintf(out, SENTINEL_NOISE, "the machine was measured in a noisy "
                 "minute: products measured again differed by %.0f%%",
                 100 * m->pace.rest);
}
