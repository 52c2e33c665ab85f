/* SPDX-License-Identifier: Apache-2.0 */
/* test_fair_share.c - mirrors src/planner/fair_share.c. */
#include "planner/fair_share.h"

#include <math.h>
#include <stdbool.h>

#include "tests/test.h"

enum { FLOWS = 12, LINKS = 6 };

static uint64_t draw_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int draw_flows(uint64_t seed, struct fair_flow *flows, double *capacity)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u;
    const int count = 1 + (int)(draw_next(&state) % FLOWS);

    for (int i = 0; i < LINKS; i++)
        capacity[i] = 0.25 * (double)(1 + draw_next(&state) % 16);
    for (int i = 0; i < count; i++) {
        const int used = 1 + (int)(draw_next(&state) % FAIR_LINKS);
        const int first = (int)(draw_next(&state) % LINKS);

        for (int n = 0; n < FAIR_LINKS; n++) {
            flows[i].link[n] = n < used ? (first + n) % LINKS : -1;
            flows[i].times[n] = (double)(1 + draw_next(&state) % 8);
        }
    }
    return count;
}

static double load_of(const struct fair_flow *flows, int count, int32_t link)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        for (int n = 0; n < FAIR_LINKS; n++)
            if (flows[i].link[n] == link)
                sum += flows[i].times[n] * flows[i].rate;
    return sum;
}

/* Whether a link of the flow is full and none over it is faster. */
static bool is_held(const struct fair_flow *flows, int count, int at,
                    const double *capacity)
{
    for (int n = 0; n < FAIR_LINKS; n++) {
        const int32_t link = flows[at].link[n];
        double fastest = 0;

        if (link < 0) continue;
        for (int i = 0; i < count; i++)
            for (int k = 0; k < FAIR_LINKS; k++)
                if (flows[i].link[k] == link && flows[i].rate > fastest)
                    fastest = flows[i].rate;
        if (load_of(flows, count, link) >= capacity[link] * (1 - 1e-9) &&
            flows[at].rate >= fastest * (1 - 1e-9))
            return true;
    }
    return false;
}

/* Max-min fairness, whoever computes it: no link has more than it can carry,
 * and each flow has a link that is full and on which nobody is faster
 * (Bertsekas and Gallager, Data Networks, 6.5.2). */
TEST(each_flow_has_a_link_that_holds_it)
{
    for (uint64_t seed = 100000; seed < 102000; seed++) {
        struct fair_flow flows[FLOWS];
        struct fair_link links[LINKS];
        double capacity[LINKS];
        const int count = draw_flows(seed, flows, capacity);

        for (int i = 0; i < LINKS; i++) links[i].left = capacity[i];
        fair_share(flows, count, links, LINKS);
        for (int32_t i = 0; i < LINKS; i++) {
            const double load = load_of(flows, count, i);

            CHECK(load <= capacity[i] * (1 + 1e-9));
            CHECK(fabs(capacity[i] - load - links[i].left) < 1e-9);
        }
        for (int i = 0; i < count; i++)
            CHECK(flows[i].rate > 0 && is_held(flows, count, i, capacity));
    }
}

TEST(flows_without_links_and_links_without_flows_are_left_alone)
{
    struct fair_flow flow = {.link = {-1, -1, -1}};
    struct fair_link links[2] = {{.left = 3}, {.left = 4}};

    fair_share(&flow, 1, links, 2);
    CHECK(flow.rate == 0 && links[0].left == 3 && links[1].left == 4);
    fair_share(NULL, 0, links, 2);
    CHECK(links[0].left == 3);
}

TEST_MAIN(each_flow_has_a_link_that_holds_it,
          flows_without_links_and_links_without_flows_are_left_alone)
