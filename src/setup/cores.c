/* SPDX-License-Identifier: Apache-2.0 */
/* cores.c - the cores of a rank. */
#include "setup/cores.h"

#include <string.h>
#include "base/arena.h"
#include "base/threads.h"
#include "comm/launch.h"

/* The message of a rank to the others. */
struct wish {
    unsigned char mark[THREADS_MARK_BYTES];
    int threads; /* 0: an equal share */
};

/* Ranks with exactly the cores of this one, itself too. */
struct sharers {
    int count;
    int asked; /* for so many threads by those before it, */
    int equal; /* and so many of these want an equal share */
};

static status find_sharers(struct group *world, int wanted,
                           struct sharers *sharers)
{
    struct wish mine, *wishes = NULL;
    status result;

    memset(&mine, 0, sizeof mine);
    threads_mark(mine.mark);
    mine.threads = wanted;
    TRY(memory_take((size_t)world->size, sizeof mine, (void **)&wishes));
    result = comm_all_gather(
        world,
        tensor_1d(wishes, DTYPE_U8, world->size * (int64_t)sizeof mine),
        tensor_1d(&mine, DTYPE_U8, sizeof mine));
    for (int rank = 0; result == OK && rank < world->size; rank++) {
        const struct wish *other = &wishes[rank];

        if (memcmp(other->mark, mine.mark, sizeof mine.mark) != 0) continue;
        sharers->count++;
        if (rank >= world->rank) continue;
        sharers->asked += other->threads;
        sharers->equal += other->threads == 0;
    }
    memory_free(wishes);
    return result;
}

status cores_share(struct group *world, int wanted, int *threads)
{
    struct sharers sharers = {.count = 1};
    int share;

    if (world) {
        sharers.count = 0;
        TRY(find_sharers(world, wanted, &sharers));
    }
    share = threads_cores() / sharers.count;
    if (share == 0) share = 1;
    *threads = wanted > 0 ? wanted : share;
    /* Ranks of one process have their cores from its pools. */
    if (world && launch_rank() >= 0)
        threads_leave_cores(sharers.asked + sharers.equal * share);
    return OK;
}
