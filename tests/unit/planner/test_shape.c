/* SPDX-License-Identifier: Apache-2.0 */
/* test_shape.c - mirrors src/planner/shape.c: modules for later tokens, and
 * blocks of two kinds. */
#include "planner/shape.h"

#include <math.h>
#include <string.h>

#include "planner/memory.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

#define LLAMA                                                               \
    "model: {family: llama, vocab: 1000, layers: 4, width: 64, heads: 4, "  \
    "kv_heads: 4, feed_forward: 160, tied: false}\n"

/* A module: a projection of 64 x 128, a block and the head again. */
TEST(modules_are_a_block_a_projection_and_a_head)
{
    const double block = 4.0 * 64 * 64 + 3.0 * 64 * 160;
    const double project = 64.0 * 128;
    struct shape plain, later;

    shape_of_text(&plain, LLAMA, 256);
    shape_of_text(&later, LLAMA "mtp: {depth: 2}\n", 256);
    EQUAL_INT(later.layers, 4);
    EQUAL_INT(later.mtp.depth, 2);
    CHECK(fabs(later.mtp.blocks - 2 * (block + project) / block) < 1e-9);
    CHECK(later.block.parameters == plain.block.parameters);
    CHECK(later.block.instructions == plain.block.instructions);
    CHECK(later.product_count == plain.product_count);
    CHECK(later.mtp.experts == 0);
    CHECK(fabs(later.parameters - plain.parameters -
               later.mtp.parameters) < 0.5);
    /* Two norms of their own, two of the block, one at the end: 5 x 64. */
    CHECK(fabs(later.mtp.parameters -
               2 * (block + project + 5 * 64)) < 0.5);
    const double more = shape_flops_causal(&later) - shape_flops_causal(&plain);
    const double keys = 6 * 4 * (16 + 16) * plain.keys;

    CHECK(fabs(more / (6 * 2 * (block + project + 64 * 1000) +
                       keys * later.mtp.blocks) - 1) < 1e-9);
}

/* Gradients of frozen matrices are not made: two passes of three have their
 * products. Adapters move what they read and write, not their weights. */
TEST(adapters_alone_learn)
{
    const double block = 4.0 * 64 * 64 + 3.0 * 64 * 160;
    const double both = 8 * (64 + 3 * 64 + 64 + 64 + 64 + 2 * 160 + 160 + 64);
    struct shape plain, few;
    struct layout l = {.as = AS_TORCHTITAN, .pipe = 1, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .bits = 16};

    shape_of_text(&plain, LLAMA, 256);
    shape_of_text(&few, LLAMA "lora: {rank: 8, targets: all}\n", 256);
    const double less = shape_flops_causal(&plain) - shape_flops_causal(&few);
    const double low = few.lora.all;

    /* A of attention's output and of down are products, with three passes. */
    CHECK(fabs(less / (2 * (4 * block + 64 * 1000) -
                       6 * 4 * 8 * (64 + 160)) - 1) < 1e-9);
    CHECK(low > 0.9 * both && low < 2 * both);
    CHECK(shape_flops_again(&few) > shape_flops_again(&plain));
    CHECK(fabs(shape_flops_again(&plain) /
               (shape_flops_full(&plain) / 3 - 2 * 64 * 1000) - 1) < 1e-9);
    CHECK(few.moved.whole + few.moved.split <
          3 * (plain.moved.whole + plain.moved.split));
    CHECK(layout_block_learns(&l, &few).dense == low);
    CHECK(layout_block_learns(&l, &plain).dense ==
          layout_block_dense(&l, &plain));
}

/* The first blocks of a DeepSeek are dense: stages differ. */
TEST(blocks_of_two_kinds_are_counted_apart)
{
    struct shape shape;
    struct layout l = {.as = AS_MEGATRON, .pipe = 2, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .batch = 8,
                       .micro_batch = 1, .microbatches = 8,
                       .schedule = "1f1b", .chunks = 1, .bits = 16};
    struct memory first, last;

    shape_of_text(
        &shape, "model: {family: deepseek, vocab: 1000, layers: 4, width: 64, "
                "heads: 4, kv_heads: 4, feed_forward: 256, tied: false}\n"
                "moe: {experts: 8, top_k: 2, intermediate_size: 64, "
                "first_dense: 1, shared_intermediate_size: 64}\n", 256);
    CHECK(fabs(shape.expert_blocks - 0.75) < 1e-12);
    EQUAL_INT(layout_stage_blocks(&l, &shape, 0).mixed, 1);
    EQUAL_INT(layout_stage_blocks(&l, &shape, 1).mixed, 2);
    memory_of(&l, &shape, 0, &first);
    memory_of(&l, &shape, 1, &last);
    /* The table and the head are as large, and the rest is all there is. */
    CHECK(fabs((first.gradients + last.gradients) / 4 / shape.parameters - 1) <
          1e-3);
    /* A dense block for a mixture of 8 experts, one of all tokens, a router. */
    CHECK(fabs((last.gradients - first.gradients) / 4 -
               (3.0 * 64 * (8 * 64 + 64 - 256) + 8 * 64)) < 100);
}

TEST_MAIN(modules_are_a_block_a_projection_and_a_head, adapters_alone_learn,
          blocks_of_two_kinds_are_counted_apart)
