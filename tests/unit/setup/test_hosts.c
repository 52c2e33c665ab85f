/* SPDX-License-Identifier: Apache-2.0 */
/* test_hosts.c - mirrors src/setup/hosts.c: which ranks are on one machine. */
#include "setup/hosts.h"

#include <stdlib.h>
#include "tests/test.h"

enum { MOST = 16 };

/* Ranks on machines of these letters; agents of these, or none. */
static void place(struct host hosts[MOST], const char *machines,
                  const char *agents)
{
    memset(hosts, 0, MOST * sizeof *hosts);
    for (size_t i = 0; machines[i] != '\0'; i++) {
        hosts[i].machine[0] = machines[i];
        hosts[i].node[0] = agents != NULL ? agents[i] : machines[i];
    }
}

static void expect_ranks(const char *machines, const char *agents, int node,
                         const int local[])
{
    struct host hosts[MOST];
    const int ranks = (int)strlen(machines);

    place(hosts, machines, agents);
    for (int i = 0; i < ranks; i++) {
        const struct hosts_found found = hosts_of(hosts, ranks, i);

        EQUAL_INT(found.node, node);
        EQUAL_INT(found.local_rank, local[i]);
    }
}

TEST(each_rank_of_a_machine_has_another_number)
{
    expect_ranks("aaaa", NULL, 0, (const int[]){0, 1, 2, 3});
    expect_ranks("aaabbb", NULL, 3, (const int[]){0, 1, 2, 0, 1, 2});
    /* In turns, and unevenly. */
    expect_ranks("abababab", NULL, 0,
                 (const int[]){0, 0, 1, 1, 2, 2, 3, 3});
    expect_ranks("aab", NULL, 0, (const int[]){0, 1, 0});
}

TEST(agents_of_one_machine_share_its_gpus)
{
    expect_ranks("aaaa", "xxyy", 2, (const int[]){0, 1, 2, 3});
    expect_ranks("aabb", "xyxy", 0, (const int[]){0, 1, 0, 1});
}

static status find_body(void *argument, struct group *world)
{
    return hosts_find(world, (struct hosts_found *)argument + world->rank);
}

TEST(threads_are_on_one_machine)
{
    struct hosts_found found[3], alone = {1, 1};

    unsetenv("LOCKSTEP_NODE");
    unsetenv("SLURMD_NODENAME");
    IS_OK(hosts_find(NULL, &alone));
    EQUAL_INT(alone.node, 0);
    EQUAL_INT(alone.local_rank, 0);
    IS_OK(ranks_run(3, find_body, found));
    for (int i = 0; i < 3; i++) {
        EQUAL_INT(found[i].node, 0);
        EQUAL_INT(found[i].local_rank, i);
    }
}

TEST_MAIN(each_rank_of_a_machine_has_another_number,
          agents_of_one_machine_share_its_gpus, threads_are_on_one_machine)
