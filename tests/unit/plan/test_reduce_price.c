/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduce_price.c - mirrors src/plan/reduce_price.c: the formulas of
 * docs/zero.md, and what auto makes of them. That plans and runs follow them is
 * tests/equivalence/reduce_ranks.sh. */
#include "plan/reduce_price.h"
#include "tests/test.h"

static struct reduce_facts facts_of(int ranks, int rounds, int leaves)
{
    return (struct reduce_facts){.ranks = ranks,
                                 .units = 32,
                                 .tokens = 8192,
                                 .cut = {.data_leaves = leaves,
                                         .sequences_per_leaf = 1,
                                         .length = 4096,
                                         .context_chunks = 1,
                                         .micro_batch = leaves / rounds,
                                         .micro_batches = rounds}};
}

/* Llama 8B on a pipe of 4, N = 16: 16 rounds keep 5/16 + 2/32 G and send
 * 15 G; once keeps its leaves' sums and sends 15/16 G. */
TEST(prices_are_the_formulas)
{
    const struct reduce_facts f = facts_of(16, 16, 16);
    const struct reduce_price each = reduce_price(&f, true);
    const struct reduce_price once = reduce_price(&f, false);

    CHECK(each.kept == 5.0 / 16 + 2.0 / 32);
    CHECK(each.sent == 15.0);
    CHECK(once.kept == node_limit(&f.cut, true) && once.kept >= 1);
    CHECK(once.sent == 15.0 / 16);
}

TEST(context_leaves_of_a_micro_batch_wait_in_each_round)
{
    struct reduce_facts f = facts_of(4, 2, 8);

    f.cut.shared = true;
    f.cut.context_chunks = 2;
    CHECK(reduce_price(&f, true).kept == 2.0 / 4 + 2.0 / 32 + 2);
}

TEST(each_pays_where_it_keeps_less_and_takes_no_longer)
{
    struct reduce_facts f = facts_of(2, 4, 4);

    f.tokens = 2731; /* 6 T FLOP beside 4 / 2 bytes, 8,192 FLOP each */
    CHECK(reduce_each_pays(&f));
    f.tokens = 2730;
    CHECK(!reduce_each_pays(&f));
    f.tokens = 8192;
    f.idle = true;
    CHECK(!reduce_each_pays(&f));
    /* One round sends nothing more, however few tokens it has. */
    f = facts_of(2, 1, 1);
    f.tokens = 1;
    CHECK(reduce_each_pays(&f));
    f.units = 2; /* two units are all: nothing is gained */
    CHECK(!reduce_each_pays(&f));
}

TEST_MAIN(prices_are_the_formulas,
          context_leaves_of_a_micro_batch_wait_in_each_round,
          each_pays_where_it_keeps_less_and_takes_no_longer)
