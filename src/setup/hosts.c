/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - which ranks are on one machine: each tells its name to all. */
#include "setup/hosts.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"

enum { HOST_BYTES = 256 };

static void name_host(char name[HOST_BYTES])
{
    static const char *const known[] = {"LOCKSTEP_NODE", "SLURMD_NODENAME"};

    memset(name, 0, HOST_BYTES);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *given = getenv(known[i]);

        if (given == NULL || given[0] == '\0') continue;
        snprintf(name, HOST_BYTES, "%s", given);
        return;
    }
    if (gethostname(name, HOST_BYTES - 1) != 0) name[0] = '\0';
}

static bool is_same(const char *names, int a, int b)
{
    return memcmp(names + (size_t)a * HOST_BYTES,
                  names + (size_t)b * HOST_BYTES, HOST_BYTES) == 0;
}

/* A name begins a run of `node` ranks, and comes in no other run. */
static bool are_runs(const char *names, int ranks, int node)
{
    for (int i = 0; i < ranks; i++) {
        if (i % node != 0 && !is_same(names, i, i - 1)) return false;
        for (int j = 0; i % node == 0 && j < i; j += node)
            if (is_same(names, i, j)) return false;
    }
    return true;
}

static int run_of(const char *names, int ranks)
{
    int node = 1;

    while (node < ranks && is_same(names, 0, node)) node++;
    if (node == ranks || ranks % node != 0) return 0;
    return are_runs(names, ranks, node) ? node : 0;
}

status hosts_find(struct group *world, int *node)
{
    char mine[HOST_BYTES], *names = NULL;
    status result;

    *node = 0;
    if (world == NULL) return OK;
    name_host(mine);
    TRY(memory_take((size_t)world->size, HOST_BYTES, (void **)&names));
    result = comm_all_gather(
        world, tensor_1d(names, DTYPE_U8, world->size * (int64_t)HOST_BYTES),
        tensor_1d(mine, DTYPE_U8, HOST_BYTES));
    if (result == OK) *node = run_of(names, world->size);
    memory_free(names);
    return result;
}
