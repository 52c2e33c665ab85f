/* SPDX-License-Identifier: Apache-2.0 */
/* fair_share.c - progressive filling. */
#include "planner/fair_share.h"

#include <stdbool.h>

/* Flows whose rate still grows, over the link. */
static double growing(const struct fair_flow *flows, int count, int32_t link)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        for (int n = 0; n < FAIR_LINKS && flows[i].rate < 0; n++)
            if (flows[i].link[n] == link) sum += flows[i].times[n];
    return sum;
}

static bool uses(const struct fair_flow *flow, int32_t link)
{
    for (int n = 0; n < FAIR_LINKS; n++)
        if (flow->link[n] == link) return true;
    return false;
}

/* The link that is full first; -1: none has a flow that grows. */
static int32_t full_first(const struct fair_flow *flows, int count,
                          const double *left, int links, double *rate)
{
    int32_t first = -1;

    for (int32_t link = 0; link < links; link++) {
        const double sum = growing(flows, count, link);
        const double fair = left[link] > 0 ? left[link] / sum : 0;

        if (sum <= 0 || (first >= 0 && fair >= *rate)) continue;
        first = link;
        *rate = fair;
    }
    return first;
}

void fair_share(struct fair_flow *flows, int count, double *left, int links)
{
    double rate = 0;
    int32_t full;

    for (int i = 0; i < count; i++) flows[i].rate = -1;
    while ((full = full_first(flows, count, left, links, &rate)) >= 0)
        for (int i = 0; i < count; i++) {
            struct fair_flow *flow = &flows[i];

            if (flow->rate >= 0 || !uses(flow, full)) continue;
            flow->rate = rate;
            for (int n = 0; n < FAIR_LINKS; n++)
                if (flow->link[n] >= 0)
                    left[flow->link[n]] -= flow->times[n] * rate;
        }
    for (int i = 0; i < count; i++)
        if (flows[i].rate < 0) flows[i].rate = 0;
}
