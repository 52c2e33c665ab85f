/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid.c - mirrors src/mesh/grid.c: however a batch is cut into
 * micro-batches and ranks, its leaves meet as the tree says. */
#include "mesh/grid.h"
#include "comm/comm.h"

#include "comm/comm.h"
#include "tests/test.h"

enum { BUFFERS = NODES_MAX };

/* Neither commutative nor associative: the value shows who met whom. */
static uint64_t meet(uint64_t left, uint64_t right)
{
    return (left * 6364136223846793005u + 1442695040888963407u) ^
           (right * 3202034522624059733u + 4354685564936845355u);
}

static uint64_t leaf_value(int64_t leaf)
{
    return (uint64_t)leaf * 1181783497276652981u + 5;
}

/* The definition: the node of `span` leaves that begins at `first`. */
static uint64_t defined(int64_t first, int64_t span, int64_t leaves)
{
    const int64_t half = span / 2;

    if (span == 1) return leaf_value(first);
    if (first + half >= leaves) return defined(first, half, leaves);
    return meet(defined(first, half, leaves),
                defined(first + half, half, leaves));
}

static int64_t power_above(int64_t n)
{
    int64_t power = 1;

    while (power < n) power *= 2;
    return power;
}

/* The value that a piece adds: a whole subtree, or, of an unfinished leaf,
 * nothing until its last part. */
static uint64_t piece_value(const struct addend *addend, int64_t leaves)
{
    return defined(addend->first_leaf, power_above(addend->leaves), leaves);
}

static uint64_t walk(const struct cut *cut, bool takes_left)
{
    struct node_stack stack = {0};
    uint64_t buffers[BUFFERS] = {0};
    const int limit = node_limit(cut, takes_left);
    int64_t adds = 0;

    CHECK(limit <= BUFFERS);
    for (int64_t i = 0; i < cut->micro_batches; i++) {
        struct addend_cursor cursor = {0};
        struct addend addend;

        while (addend_next(cut, i, &cursor, &addend)) {
            int buffer, into, from;
            bool left;

            node_begin(&stack, cut, &addend, takes_left, &buffer, &left);
            CHECK(buffer < limit);
            const uint64_t value = piece_value(&addend, cut->data_leaves);

            buffers[buffer] = left ? meet(buffers[buffer], value) : value;
            node_end(&stack, &addend, left);
            while (node_merge(&stack, cut, &into, &from)) {
                buffers[into] = meet(buffers[into], buffers[from]);
                adds++;
            }
        }
    }
    EQUAL_INT(stack.count, 1);
    EQUAL_INT(node_adds(cut, takes_left), adds);
    return buffers[0];
}

TEST(any_number_of_leaves_is_one_tree)
{
    for (int64_t leaves = 1; leaves <= 100; leaves++)
        for (int64_t each = 1; each <= 3; each++) {
            const int64_t batch = leaves * each;
            const uint64_t expected =
                defined(0, power_above(leaves), leaves);

            for (int64_t micro = 1; micro <= batch; micro++) {
                struct cut cut = {
                    .data_leaves = (int)leaves, .sequences_per_leaf = each,
                    .length = 4, .micro_batch = micro,
                    .micro_batches = batch / micro};

                if (batch % micro != 0) continue;
                CHECK(walk(&cut, false) == expected);
                CHECK(walk(&cut, true) == expected);
                cut.shared = true;
                CHECK(walk(&cut, false) == expected);
                CHECK(walk(&cut, true) == expected);
            }
        }
}

/* Eight leaves that come one by one meet in seven adds; where a product starts
 * from the sibling of its own leaf, in three. It cannot where a leaf comes in
 * parts. */
TEST(products_add_every_second_leaf_themselves)
{
    struct cut cut = {.data_leaves = 8, .sequences_per_leaf = 2, .length = 4,
                      .micro_batch = 2, .micro_batches = 8};

    EQUAL_INT(node_adds(&cut, false), 7);
    EQUAL_INT(node_adds(&cut, true), 3);
    cut.micro_batch = 1;
    cut.micro_batches = 16;
    EQUAL_INT(node_adds(&cut, true), 7);
    cut.micro_batch = 16;
    cut.micro_batches = 1;
    EQUAL_INT(node_adds(&cut, true), 0);
    cut = (struct cut){.data_leaves = 1024, .sequences_per_leaf = 1,
                       .length = 4, .micro_batch = 2 * GRID_LEAVES_MAX,
                       .micro_batches = 512 / GRID_LEAVES_MAX};
    EQUAL_INT(node_adds(&cut, true), 512 / GRID_LEAVES_MAX - 1);
    walk(&cut, true);
    walk(&cut, false);
}

TEST(the_most_leaves_fit_the_stack)
{
    struct cut cut = {.data_leaves = GRID_DATA_LEAVES_MAX,
                      .sequences_per_leaf = 1, .length = 4, .micro_batch = 1,
                      .micro_batches = GRID_DATA_LEAVES_MAX};

    CHECK(walk(&cut, false) == defined(0, GRID_DATA_LEAVES_MAX,
                                       GRID_DATA_LEAVES_MAX));
    cut.data_leaves--;
    cut.micro_batches--;
    CHECK(walk(&cut, true) == defined(0, GRID_DATA_LEAVES_MAX,
                                      GRID_DATA_LEAVES_MAX - 1));
}

/* A rank's subtree, then the tree over ranks: the tree over all leaves. */
TEST(ranks_that_cut_the_leaves_keep_the_tree)
{
    for (int64_t leaves = 1; leaves <= 96; leaves++)
        for (int64_t ranks = 1; ranks <= leaves; ranks++) {
            struct comm_root roots[COMM_ROOTS_MAX];

            if (leaves % ranks != 0 || !grid_is_cut(leaves, ranks)) continue;
            for (int rank = 0; rank < ranks; rank++)
                EQUAL_INT(comm_roots((int)leaves, (int)ranks, rank, roots),
                          1);
        }
    CHECK(grid_is_cut(12, 3) && grid_is_cut(12, 6) && grid_is_cut(7, 7));
    CHECK(!grid_is_cut(12, 4) && !grid_is_cut(12, 5) && grid_is_cut(9, 1));
}

TEST(scalars_meet_in_the_same_tree)
{
    double leaf[7] = {1, 0x1p53, -0x1p53, 3, 0x1p-60, 5, 7};
    const double expected =
        ((leaf[0] + leaf[1]) + (leaf[2] + leaf[3])) +
        ((leaf[4] + leaf[5]) + leaf[6]);

    CHECK(grid_tree(leaf, 7) == expected);
}

TEST(the_automatic_grid_grows_from_64_sequences_on)
{
    static const struct {
        int64_t batch, length;
        int data;
    } rows[] = {{8, 4096, 8}, {32, 4096, 8}, {48, 4096, 8}, {64, 4096, 64},
                {64, 1024, 64}, {64, 512, 32}, {64, 16, 8}, {96, 4096, 32},
                {1024, 16, 16}, {4096, 4096, 64}, {65, 4096, 1},
                {100, 4096, 4}};

    for (int i = 0; i < ROWS(rows); i++) {
        const struct grid_facts facts = {
            .batch = rows[i].batch, .length = rows[i].length, .heads = 4,
            .kv_heads = 4, .head_width = 8, .feed_forward = 64};
        struct grid out;

        IS_OK(grid_resolve(&out, &(struct grid){0}, &facts));
        EQUAL_INT(out.data, rows[i].data);
    }
}

TEST(leaves_of_experts_are_the_groups_of_the_router)
{
    static const struct {
        int64_t experts, groups;
        int leaves;
    } rows[] = {{0, 0, 1}, {8, 0, 8}, {60, 1, 4}, {8, 2, 2}, {9, 3, 3},
                {160, 8, 8}, {256, 16, 16}, {256, 128, 8}};

    for (int i = 0; i < ROWS(rows); i++) {
        const struct grid_facts facts = {
            .batch = 8, .heads = 4, .kv_heads = 4, .head_width = 8,
            .feed_forward = 64, .experts = rows[i].experts,
            .groups = rows[i].groups};
        struct grid out;

        IS_OK(grid_resolve(&out, &(struct grid){0}, &facts));
        EQUAL_INT(out.expert, rows[i].leaves);
    }
}

TEST(what_does_not_divide_is_refused)
{
    struct grid_facts facts = {.batch = 12000, .heads = 12,
                                     .kv_heads = 2, .head_width = 60,
                                     .feed_forward = 60};
    struct grid out;

    IS_OK(grid_resolve(&out, &(struct grid){.data = 12, .tensor = 4},
                       &facts));
    EQUAL_INT(out.data, 12);
    FAILS(grid_resolve(&out, &(struct grid){.data = 7}, &facts), ERR_CONFIG,
          "6 works");
    FAILS(grid_resolve(&out, &(struct grid){.data = 6000}, &facts),
          ERR_CONFIG, "4000 works");
    /* Key-value heads of three and six ranks are no subtrees. */
    FAILS(grid_resolve(&out, &(struct grid){.tensor = 6}, &facts), ERR_CONFIG,
          "6 leaves");
    FAILS(grid_resolve(&out, &(struct grid){.tensor = 12}, &facts),
          ERR_CONFIG, "12 leaves");
    FAILS(grid_resolve(&out, &(struct grid){.tensor = 4, .context = 17},
                       &facts), ERR_CONFIG, "16 works, or less");
    facts.length = 56; /* 14 chunks of 4 tokens */
    FAILS(grid_resolve(&out, &(struct grid){.tensor = 4, .context = 17},
                       &facts), ERR_CONFIG, "; 7 works");
    facts.length = 6;
    FAILS(grid_resolve(&out, &(struct grid){.tensor = 4, .context = 17},
                       &facts), ERR_CONFIG, "; 1 works");
}

/* The nodes that a rank's leaves leave are those that the collectives add. */
TEST(roots_are_those_of_the_sums)
{
    for (int all = 1; all <= 200; all++)
        for (int ranks = 1; ranks <= all; ranks++) {
            if (all % ranks != 0) continue;
            for (int rank = 0; rank < ranks; rank++) {
                const struct cut cut = {.data_leaves = all / ranks,
                                        .first_leaf = all / ranks * rank,
                                        .all_leaves = all};
                struct comm_root roots[COMM_ROOTS_MAX];
                struct node_stack stack;

                cut_roots(&cut, &stack);
                EQUAL_INT(stack.count, comm_roots(all, ranks, rank, roots));
                for (int i = 0; i < stack.count; i++) {
                    EQUAL_INT(stack.node[i].first + cut.first_leaf,
                              roots[i].first);
                    EQUAL_INT(stack.node[i].leaves, roots[i].leaves);
                }
            }
        }
}

TEST_MAIN(roots_are_those_of_the_sums, any_number_of_leaves_is_one_tree,
          products_add_every_second_leaf_themselves,
          the_most_leaves_fit_the_stack,
          ranks_that_cut_the_leaves_keep_the_tree,
          scalars_meet_in_the_same_tree,
          the_automatic_grid_grows_from_64_sequences_on,
          leaves_of_experts_are_the_groups_of_the_router,
          what_does_not_divide_is_refused)
