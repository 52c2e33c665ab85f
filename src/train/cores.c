/* SPDX-License-Identifier: Apache-2.0 */
/* cores.c - the cores of a rank. */
#include "train/cores.h"

#include <string.h>
#include "base/arena.h"
#include "base/threads.h"
#include "comm/launch.h"

/* Ranks with the same cores, this one too, and how many of them come before
 * it. */
static status count_sharers(struct group *world, int *sharers, int *before)
{
    unsigned char mine[THREADS_MARK_BYTES], *marks = NULL;
    status result;

    threads_mark(mine);
    TRY(memory_take((size_t)world->size, sizeof mine, (void **)&marks));
    result = comm_all_gather(
        world,
        tensor_1d(marks, DTYPE_U8, world->size * (int64_t)sizeof mine),
        tensor_1d(mine, DTYPE_U8, sizeof mine));
    *sharers = *before = 0;
    for (int rank = 0; result == OK && rank < world->size; rank++) {
        const unsigned char *other = marks + (size_t)rank * sizeof mine;
        const bool shares = memcmp(other, mine, sizeof mine) == 0;

        *sharers += shares;
        *before += shares && rank < world->rank;
    }
    memory_free(marks);
    return result;
}

status cores_share(struct group *world, int wanted, int *threads)
{
    int sharers = 1, before = 0;

    if (world) TRY(count_sharers(world, &sharers, &before));
    *threads = wanted > 0 ? wanted : threads_cores() / sharers;
    if (*threads == 0) *threads = 1;
    /* Ranks of one process have their cores from its pools. */
    if (world && launch_rank() >= 0) threads_leave_cores(before * *threads);
    return OK;
}
