/* SPDX-License-Identifier: Apache-2.0 */
/* test_fleet_copies.c - mirrors src/control/fleet_copies.c: who keeps copies of
 * whose ranks, what that survives, and where copies are once nodes are lost. */
#include <stdio.h>
#include <string.h>
#include "control/copies_place.h"
#include "control/fleet.h"
#include "tests/test.h"

/* Every set of lost nodes: whether each lost one has a keeper that is left. */
static int sets_survived(const struct fleet *f, int lost_count)
{
    int survived = 0;

    for (unsigned set = 1; set < 1u << f->count; set++) {
        bool whole = __builtin_popcount(set) == lost_count;

        for (int i = 0; i < f->count && whole; i++) {
            bool left = (set >> i & 1) == 0;

            for (int k = 0; k < PARTNERS_MOST; k++)
                left = left || (f->nodes[i].partners[k] >= 0 &&
                                (set >> f->nodes[i].partners[k] & 1) == 0);
            whole = left;
        }
        survived += whole;
    }
    return survived;
}

static void make_nodes(struct fleet *f, int count, int replicas)
{
    *f = (struct fleet){.count = count, .replicas = replicas};
    for (int i = 0; i < count; i++) {
        fleet_unpaired(&f->nodes[i]);
        snprintf(f->nodes[i].name, sizeof f->nodes[i].name, "n%d", i);
    }
    fleet_pair(f);
}

static int choose(int n, int k)
{
    int ways = 1;

    if (k > n) return 0;
    for (int i = 0; i < k; i++) ways = ways * (n - i) / (i + 1);
    return ways;
}

/* Wang et al. 2023, "GEMINI", 5.1: in groups of m nodes all sets of k lost ones
 * but those that have a whole group; a last group of more is a circle, which
 * is lost where m of it that follow each other are. */
static int survived_by_groups(int n, int m, int k)
{
    int ways = 0;

    for (int j = 0, sign = 1; j * m <= k; j++, sign = -sign)
        ways += sign * choose(n / m, j) * choose(n - j * m, k - j * m);
    return ways;
}

static void expect_said(const struct fleet *f, int m)
{
    static const char *const words[] = {"", "one", "two", "three"};
    const int sets = choose(f->count, m);
    char said[256], expected[96];

    fleet_survives(f, said);
    snprintf(expected, sizeof expected,
             "any %s may be lost; of %s at once %d of %d %s", words[m - 1],
             words[m], sets_survived(f, m), sets, m == 2 ? "pairs" : "sets");
    if (strstr(said, expected) == NULL) printf("%s\n%s\n", said, expected);
    CHECK(strstr(said, expected) != NULL);
}

TEST(copies_survive_all_losses_that_they_can)
{
    static struct fleet f;

    for (int m = 2; m <= PARTNERS_MOST + 1; m++)
        for (int n = m; n <= 10; n++) {
            const int circle = m + n % m; /* of the last group */
            const int fatal = n % m == 0 ? n / m
                                         : n / m - 1 +
                                               (circle > m ? circle : 1);

            make_nodes(&f, n, m);
            for (int k = 1; k < m; k++)
                EQUAL_INT(sets_survived(&f, k), choose(n, k));
            EQUAL_INT(sets_survived(&f, m), choose(n, m) - fatal);
            for (int k = m; k <= n && n % m == 0; k++)
                EQUAL_INT(sets_survived(&f, k), survived_by_groups(n, m, k));
            expect_said(&f, m);
        }
    make_nodes(&f, 2, 3); /* fewer nodes than copies */
    expect_said(&f, 2);
    EQUAL_INT(f.nodes[0].partners[0], 1);
    EQUAL_INT(f.nodes[0].partners[1], -1);
}

/* Nodes that stay keep their partners, where they can. */
TEST(groups_that_stand_stay)
{
    static struct fleet f;

    make_nodes(&f, 7, 3); /* 0 1 2, and a circle of 3 4 5 6 */
    f.nodes[1].wire.descriptor = -1;
    fleet_pair(&f); /* 0 2 3, and 4 5 6 */
    EQUAL_INT(sets_survived(&f, 2), choose(6, 2));
    const uint64_t turns[] = {f.nodes[0].turn, f.nodes[2].turn,
                              f.nodes[3].turn};

    f.nodes[1].wire.descriptor = 0;
    f.nodes[6].wire.descriptor = -1;
    fleet_pair(&f); /* 4 5 1: those that had copies of each other first */
    EQUAL_INT(f.nodes[4].partners[0], 5);
    EQUAL_INT(f.nodes[4].partners[1], 1);
    EQUAL_INT(sets_survived(&f, 2), choose(6, 2));
    CHECK(turns[0] == f.nodes[0].turn && turns[1] == f.nodes[2].turn &&
          turns[2] == f.nodes[3].turn);
}

/* A plan asks for what a supervisor does with nodes that are all here. */
TEST(planned_copies_are_where_those_of_a_run_are)
{
    static struct fleet f;
    int partners[12][PARTNERS_MOST];
    char planned[256], said[256];

    for (int m = 1; m <= PARTNERS_MOST + 1; m++)
        for (int n = 1; n <= 12; n++) {
            make_nodes(&f, n, m);
            fleet_survives(&f, said);
            copies_place(n, m, partners, planned);
            EQUAL_TEXT(planned, said);
            for (int i = 0; i < n; i++)
                EQUAL_BYTES(partners[i], f.nodes[i].partners,
                            sizeof partners[i]);
        }
}

static void lose_node(struct fleet *f, int node)
{
    f->nodes[node].wire.descriptor = -1;
    fleet_homeless(f, node);
    fleet_pair(f);
}

/* Nodes 1 and 3 are lost together; the loss of 1 gives 3 another partner, which
 * counts once it is said to have copies, however late that is. */
TEST(copies_are_where_they_were_when_nodes_are_lost_together)
{
    static struct fleet f;
    struct rank_home home[4];

    for (int late = 0; late < 2; late++) {
        make_nodes(&f, 4, 2);
        f.home = home;
        f.most = 4;
        for (int i = 0; i < 4; i++) {
            fleet_settle(&f, i, i);
            fleet_held(&f, i, f.nodes[i].turn, 1);
        }
        EQUAL_INT(f.nodes[3].partners[0], 2);
        lose_node(&f, 1);
        EQUAL_INT(home[1].node, 0);
        EQUAL_INT(f.nodes[3].partners[0], 0); /* a circle of 0 2 3 */
        EQUAL_INT(f.nodes[0].partners[0], 2);
        fleet_held(&f, 3, f.nodes[3].turn - 1, 1); /* an old report */
        EQUAL_INT(f.nodes[3].holders[0], 2);
        if (late == 1) fleet_held(&f, 3, f.nodes[3].turn, 1);
        lose_node(&f, 3);
        EQUAL_INT(home[3].node, late == 1 ? 0 : 2);
        lose_node(&f, 0);
        EQUAL_INT(home[1].node, -1); /* both of its copies are lost */
    }
}

/* Three copies: the second of two lost nodes had copies of the first. */
TEST(the_third_copy_is_found)
{
    static struct fleet f;
    struct rank_home home[3];

    make_nodes(&f, 3, 3);
    f.home = home;
    f.most = 3;
    for (int i = 0; i < 3; i++) {
        fleet_settle(&f, i, i);
        fleet_held(&f, i, f.nodes[i].turn, 3);
    }
    lose_node(&f, 0);
    EQUAL_INT(home[0].node, 1);
    lose_node(&f, 1);
    EQUAL_INT(home[0].node, 2);
    EQUAL_INT(home[1].node, 2);
    fleet_settle(&f, 0, 2); /* the rank is there now */
    EQUAL_INT(home[0].others[0], -1);
    /* A partner of two that answers leaves the other copy where it was. */
    make_nodes(&f, 6, 3);
    fleet_held(&f, 0, f.nodes[0].turn, 3);
    f.nodes[2].wire.descriptor = -1;
    fleet_pair(&f);
    EQUAL_INT(f.nodes[0].holders[1], 2);
    fleet_held(&f, 0, f.nodes[0].turn, 1);
    EQUAL_INT(f.nodes[0].holders[0], f.nodes[0].partners[0]);
}

TEST_MAIN(copies_survive_all_losses_that_they_can, groups_that_stand_stay,
          copies_are_where_they_were_when_nodes_are_lost_together,
          planned_copies_are_where_those_of_a_run_are,
          the_third_copy_is_found)
