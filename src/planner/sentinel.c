/* SPDX-License-Identifier: Apache-2.0 */
/* sentinel.c - whether a moment of a machine is like another one. */
#include "planner/sentinel.h"

#include <math.h>
#include <stdio.h>

static double ratio(double now, double usual)
{
    return now > 0 && usual > 0 ? now / usual : 1;
}

struct slowness sentinel_slowness(struct sentinel now, struct sentinel usual)
{
    return (struct slowness){ratio(now.product_s, usual.product_s),
                             ratio(now.memory_s, usual.memory_s)};
}

/* As much slower as faster: what is noise does not depend on which came first.
 */
static bool is_near(double times, double most)
{
    return times <= 1 + most && times * (1 + most) >= 1;
}

bool sentinel_is_quiet(struct slowness s)
{
    return is_near(s.product, SENTINEL_PRODUCT) &&
           is_near(s.memory, SENTINEL_MEMORY);
}

static double mean(double a, double b)
{
    return a > 0 && b > 0 ? (a + b) / 2 : a > 0 ? a : b;
}

struct sentinel sentinel_mean(struct sentinel a, struct sentinel b)
{
    return (struct sentinel){mean(a.product_s, b.product_s),
                             mean(a.memory_s, b.memory_s)};
}

const char *sentinel_text(struct slowness s, char out[SENTINEL_TEXT])
{
    snprintf(out, SENTINEL_TEXT, "products %.0f%% %s, memory %.0f%% %s",
             100 * fabs(s.product - 1), s.product < 1 ? "faster" : "slower",
             100 * fabs(s.memory - 1), s.memory < 1 ? "faster" : "slower");
    return out;
}

void sentinel_noise(struct slowness apart, char out[SENTINEL_NOISE])
{
    char text[SENTINEL_TEXT];

    out[0] = '\0';
    if (!sentinel_is_quiet(apart))
        snprintf(out, SENTINEL_NOISE, "the machine was measured in a noisy "
                 "minute: at its end %s", sentinel_text(apart, text));
}
