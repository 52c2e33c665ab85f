/* SPDX-License-Identifier: Apache-2.0 */
/* fair_share.c - progressive filling. */
#include "planner/fair_share.h"

#include <stdbool.h>

/* How many flows over each link still grow. */
static void count_growing(const struct fair_flow *flows, int count,
                          struct fair_link *links, int link_count)
{
    for (int i = 0; i < link_count; i++) links[i].growing = 0;
    for (int i = 0; i < count; i++)
        for (int n = 0; n < FAIR_LINKS && flows[i].rate < 0; n++)
            if (flows[i].link[n] >= 0)
                links[flows[i].link[n]].growing += flows[i].times[n];
}

static bool uses(const struct fair_flow *flow, int32_t link)
{
    for (int n = 0; n < FAIR_LINKS; n++)
        if (flow->link[n] == link) return true;
    return false;
}

/* The link that is full first; -1: none has a flow that grows. */
static int32_t full_first(const struct fair_link *links, int count,
                          double *rate)
{
    int32_t first = -1;

    for (int32_t i = 0; i < count; i++) {
        const struct fair_link *link = &links[i];
        const double fair = link->left > 0 ? link->left / link->growing : 0;

        if (link->growing <= 0 || (first >= 0 && fair >= *rate)) continue;
        first = i;
        *rate = fair;
    }
    return first;
}

void fair_share(struct fair_flow *flows, int count, struct fair_link *links,
                int link_count)
{
    double rate = 0;
    int32_t full;

    for (int i = 0; i < count; i++) flows[i].rate = -1;
    for (;;) {
        count_growing(flows, count, links, link_count);
        full = full_first(links, link_count, &rate);
        if (full < 0) break;
        for (int i = 0; i < count; i++) {
            struct fair_flow *flow = &flows[i];

            if (flow->rate >= 0 || !uses(flow, full)) continue;
            flow->rate = rate;
            for (int n = 0; n < FAIR_LINKS; n++)
                if (flow->link[n] >= 0)
                    links[flow->link[n]].left -= flow->times[n] * rate;
        }
    }
    for (int i = 0; i < count; i++)
        if (flows[i].rate < 0) flows[i].rate = 0;
}
