/* SPDX-License-Identifier: Apache-2.0 */
/* test_fit.c - mirrors src/plan/fit.c: blocks of the stages of a pipeline, and
 * how many ranks an axis can have. */
#include "plan/fit.h"

#include "tests/test.h"

static int blocks_of(int layers, int later, int stages, int stage)
{
    return fit_first(layers, later, stages, stage + 1) -
           fit_first(layers, later, stages, stage);
}

static int sum_of(int layers, int later, int stages, int *least, int *most)
{
    int sum = 0;

    *least = layers + later;
    *most = 0;
    for (int i = 0; i < stages; i++) {
        const int blocks = blocks_of(layers, later, stages, i);
        const int work = blocks + (i == stages - 1 ? later : 0);

        CHECK(blocks >= 1);
        if (work < *least) *least = work;
        if (work > *most) *most = work;
        sum += blocks;
    }
    return sum;
}

TEST(stages_are_even_with_what_the_last_one_does_more)
{
    int least, most;

    for (int layers = 1; layers <= 40; layers++)
        for (int later = 0; later <= 2; later++)
            for (int stages = 1; stages <= layers; stages++) {
                EQUAL_INT(sum_of(layers, later, stages, &least, &most),
                          layers);
                /* Unless the last stage has a single block. */
                if ((layers + later) / stages > later)
                    CHECK(most - least <= 1);
            }
    EQUAL_INT(blocks_of(61, 0, 16, 15), 4);
    EQUAL_INT(blocks_of(8, 0, 4, 3), 2);
    EQUAL_INT(blocks_of(8, 1, 4, 3), 2);
    EQUAL_INT(blocks_of(8, 1, 3, 2), 2);
    EQUAL_INT(blocks_of(8, 2, 8, 7), 1);
}

/* A model and a batch that so many ranks divide. */
static struct fit fit_of(int ranks, bool fast)
{
    return (struct fit){
        .mesh = mesh_alone(), .copies = 1, .fast = fast,
        .length = 2 * (int64_t)ranks,
        .facts = {.batch = ranks, .heads = ranks, .kv_heads = ranks,
                  .head_width = 2, .feed_forward = ranks, .fast = fast}};
}

static status fit_ranks(enum axis axis, int ranks, bool fast,
                        struct grid *grid)
{
    struct fit fit = fit_of(ranks, fast);
    bool changed;

    fit.mesh.size[axis] = ranks;
    *grid = (struct grid){.data = 1, .tensor = 1, .context = 1};
    return fit_grid(&fit, grid, &changed);
}

TEST(fast_mode_is_limited_by_heads_tokens_and_sequences_only)
{
    enum { MANY = 100000 };
    struct grid grid, again;

    IS_OK(fit_ranks(AXIS_TENSOR, MANY, true, &grid));
    EQUAL_INT(grid.tensor, MANY);
    IS_OK(fit_ranks(AXIS_CONTEXT, MANY, true, &grid));
    EQUAL_INT(grid.context, MANY);
    IS_OK(fit_ranks(AXIS_DATA, MANY, true, &grid));
    EQUAL_INT(grid.data % MANY, 0);
    FAILS(fit_ranks(AXIS_TENSOR, 65, false, &grid), ERR_CONFIG,
          "at most 64 ranks can; numerics.mode=fast has no such limit");
    FAILS(fit_ranks(AXIS_CONTEXT, 65, false, &grid), ERR_CONFIG,
          "at most 64 ranks can");
    FAILS(fit_ranks(AXIS_DATA, 4097, false, &grid), ERR_CONFIG,
          "at most 4,096 can");
    /* A run that was begun so goes on so, and on fewer ranks with fewer
     * leaves. */
    struct fit one = fit_of(MANY, true);
    const struct grid asked = {.data = MANY, .tensor = MANY, .context = 3};
    bool changed;

    IS_OK(grid_resolve(&again, &asked, &one.facts));
    EQUAL_INT(again.tensor, MANY);
    IS_OK(fit_grid(&one, &again, &changed));
    CHECK(changed && again.tensor * again.context <= GRID_LEAVES_MAX);
    CHECK(again.data <= GRID_DATA_LEAVES_MAX);
    one.facts.fast = false;
    FAILS(grid_resolve(&again, &asked, &one.facts), ERR_CONFIG, "4096");
}

/* Ten leaves on 2 x 5 ranks: sums of five are added, not those of the tree. */
TEST(shards_that_are_no_subtrees_show_in_the_bits)
{
    struct grid grid = {.data = 10, .tensor = 1, .context = 1};
    struct fit fit = fit_of(10, true);
    bool changed;

    fit.mesh.size[AXIS_DATA] = 2;
    fit.mesh.size[AXIS_SHARD] = 5;
    IS_OK(fit_grid(&fit, &grid, &changed));
    CHECK(!changed);
    fit.shards_first = true;
    IS_OK(fit_grid(&fit, &grid, &changed));
    CHECK(changed && grid.data == 10);
    fit.integer = true;
    IS_OK(fit_grid(&fit, &grid, &changed));
    CHECK(!changed);
    fit.fast = fit.integer = false;
    FAILS(fit_grid(&fit, &grid, &changed), ERR_CONFIG,
          "needs a power of two of shards, not 5");
}

/* No number of ranks works: the length is told, not 2 or 4 ranks. */
TEST(a_sequence_shorter_than_the_chunks_is_told_its_length)
{
    struct grid grid = {.data = 1, .tensor = 1, .context = 4};
    struct fit fit = fit_of(3, false);
    bool changed;

    fit.mesh.size[AXIS_CONTEXT] = 3;
    FAILS(fit_grid(&fit, &grid, &changed), ERR_CONFIG,
          "6 tokens are not 8 equal chunks (numerics.grid_context, twice); 8 "
          "are");
    fit.length = 8;
    FAILS(fit_grid(&fit, &grid, &changed), ERR_CONFIG, "2 or 4 can");
}

TEST_MAIN(stages_are_even_with_what_the_last_one_does_more,
          a_sequence_shorter_than_the_chunks_is_told_its_length,
          shards_that_are_no_subtrees_show_in_the_bits,
          fast_mode_is_limited_by_heads_tokens_and_sequences_only)
