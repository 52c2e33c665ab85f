/* SPDX-License-Identifier: Apache-2.0 */
/* test_replicas.c - mirrors src/step/replicas.c: who is wrong among ranks that
 * must hold the same. That differences are found in runs is asked by
 * tests/drills/replicas.sh. */
#include "step/replicas.h"
#include "tests/test.h"

static bool sure;

static bool outvoted(const struct replica_vote *votes, int ranks, int rank)
{
    return replicas_outvoted(votes, ranks, rank, &sure);
}

TEST(most_ranks_are_right)
{
    const struct replica_vote votes[] = {{1, 5}, {1, 5}, {1, 6}, {1, 5}};

    for (int i = 0; i < 4; i++) {
        EQUAL_INT(outvoted(votes, 4, i), i == 2);
        CHECK(sure);
    }
}

TEST(two_cannot_tell)
{
    const struct replica_vote votes[] = {{1, 5}, {1, 6}};
    const struct replica_vote halves[] = {{1, 5}, {1, 5}, {1, 6}, {1, 6}};
    const struct replica_vote all[] = {{1, 5}, {1, 6}, {1, 7}};

    for (int i = 0; i < 2; i++) {
        CHECK(!outvoted(votes, 2, i));
        CHECK(!sure);
    }
    for (int i = 0; i < 4; i++) CHECK(!outvoted(halves, 4, i) && !sure);
    for (int i = 0; i < 3; i++) CHECK(!outvoted(all, 3, i) && !sure);
}

/* Ranks that hold other elements, or none, have no say. */
TEST(only_replicas_vote)
{
    const struct replica_vote votes[] = {{1, 5}, {2, 9}, {1, 5}, {2, 9},
                                         {1, 4}, {2, 9}, {0, -1}, {0, -1}};

    for (int i = 0; i < 8; i++) {
        EQUAL_INT(outvoted(votes, 8, i), i == 4);
        EQUAL_INT(sure, i < 6);
    }
}

TEST_MAIN(most_ranks_are_right, two_cannot_tell, only_replicas_vote)
