/* SPDX-License-Identifier: Apache-2.0 */
/* test_cores.c - mirrors src/setup/cores.c: threads of ranks that share cores,
 * and of ranks that are bound to cores of their own. */
#include "setup/cores.h"

#include <sched.h>
#include "base/threads.h"
#include "tests/test.h"

enum { RANKS = 3 };

struct shares {
    int cores;          /* of the machine */
    bool bound;         /* rank 0 to one core, the others to all but that */
    int wanted;
    int found[RANKS];
};

/* Binds this thread, which is a rank. */
static void bind_rank(int rank)
{
    cpu_set_t all, own;
    bool first = true;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&own);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (first == (rank == 0)) CPU_SET(core, &own);
        first = false;
    }
    CHECK(sched_setaffinity(0, sizeof own, &own) == 0);
}

static status share_body(void *argument, struct group *world)
{
    struct shares *s = argument;

    if (s->bound) bind_rank(world->rank);
    return cores_share(world, s->wanted, &s->found[world->rank]);
}

static int at_least_one(int threads)
{
    return threads > 0 ? threads : 1;
}

TEST(ranks_divide_the_cores_that_they_share)
{
    struct shares s = {.cores = threads_cores()};
    int alone;

    IS_OK(cores_share(NULL, 0, &alone));
    EQUAL_INT(alone, s.cores);
    IS_OK(cores_share(NULL, 5, &alone));
    EQUAL_INT(alone, 5);
    IS_OK(ranks_run(RANKS, share_body, &s));
    for (int i = 0; i < RANKS; i++)
        EQUAL_INT(s.found[i], at_least_one(s.cores / RANKS));
    s.wanted = 4;
    IS_OK(ranks_run(RANKS, share_body, &s));
    for (int i = 0; i < RANKS; i++) EQUAL_INT(s.found[i], 4);
}

TEST(a_rank_with_cores_of_its_own_uses_all_of_them)
{
    struct shares s = {.cores = threads_cores(), .bound = true};

    if (s.cores < 2) skip();
    IS_OK(ranks_run(RANKS, share_body, &s));
    EQUAL_INT(s.found[0], 1);
    for (int i = 1; i < RANKS; i++)
        EQUAL_INT(s.found[i], at_least_one((s.cores - 1) / (RANKS - 1)));
}

TEST_MAIN(ranks_divide_the_cores_that_they_share,
          a_rank_with_cores_of_its_own_uses_all_of_them)
