/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - which ranks are on one machine: each tells its names to all. */
#include "setup/hosts.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"

static void name_host(struct host *own)
{
    static const char *const known[] = {"LOCKSTEP_NODE", "SLURMD_NODENAME"};

    memset(own, 0, sizeof *own);
    if (gethostname(own->machine, HOST_BYTES - 1) != 0)
        own->machine[0] = '\0';
    memcpy(own->node, own->machine, HOST_BYTES);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *given = getenv(known[i]);

        if (given == NULL || given[0] == '\0') continue;
        memset(own->node, 0, HOST_BYTES);
        snprintf(own->node, HOST_BYTES, "%s", given);
        return;
    }
}

static bool is_same(const struct host *hosts, int a, int b)
{
    return memcmp(hosts[a].node, hosts[b].node, HOST_BYTES) == 0;
}

/* A name begins a run of `node` ranks, and comes in no other run. */
static bool are_runs(const struct host *hosts, int ranks, int node)
{
    for (int i = 0; i < ranks; i++) {
        if (i % node != 0 && !is_same(hosts, i, i - 1)) return false;
        for (int j = 0; i % node == 0 && j < i; j += node)
            if (is_same(hosts, i, j)) return false;
    }
    return true;
}

static int run_of(const struct host *hosts, int ranks)
{
    int node = 1;

    while (node < ranks && is_same(hosts, 0, node)) node++;
    if (node == ranks || ranks % node != 0) return 0;
    return are_runs(hosts, ranks, node) ? node : 0;
}

struct hosts_found hosts_of(const struct host *hosts, int ranks, int rank)
{
    struct hosts_found found = {.node = run_of(hosts, ranks)};

    for (int i = 0; i < rank; i++)
        found.local_rank += memcmp(hosts[i].machine, hosts[rank].machine,
                                   HOST_BYTES) == 0;
    return found;
}

status hosts_find(struct group *world, struct hosts_found *out)
{
    const int64_t bytes = sizeof(struct host);
    struct host own, *hosts = NULL;
    status result;

    *out = (struct hosts_found){0};
    if (world == NULL) return OK;
    name_host(&own);
    TRY(memory_take((size_t)world->size, sizeof own, (void **)&hosts));
    result = comm_all_gather(
        world, tensor_1d(hosts, DTYPE_U8, world->size * bytes),
        tensor_1d(&own, DTYPE_U8, bytes));
    if (result == OK) *out = hosts_of(hosts, world->size, world->rank);
    memory_free(hosts);
    return result;
}
