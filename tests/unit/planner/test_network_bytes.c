/* SPDX-License-Identifier: Apache-2.0 */
/* test_network_bytes.c - mirrors src/planner/network_bytes.c: by hand. */
#include "planner/network_bytes.h"

#include <math.h>
#include <stdio.h>

#include "tests/test.h"

/* 32 blocks of 5e7 parameters, and nothing else. */
static const struct shape shape = {
    .layers = 32, .heads = 16, .kv_heads = 16, .head_width = 128,
    .width = 2048, .feed_forward = 8192, .vocab = 1, .sequence = 1024,
    .products = {{.outputs = 6144, .inputs = 2048, .split_outputs = true,
                  .each_block = 1, .tokens = 1}},
    .product_count = 1, .joins = 2, .keys = 512, .moved.whole = 8192,
    .block.instructions = 8, .block.parameters = 5e7};
static const double parameters = 32 * 5e7, border = 1024 * 2048 * 2;

static struct layout layout_of(int pipe, int data, int tensor)
{
    struct layout l = {.as = AS_TORCHTITAN, .pipe = pipe, .data = data,
                       .shard = 1, .context = 1, .tensor = tensor,
                       .expert = 1, .per_node = 8, .batch = 4 * data,
                       .micro_batch = 1, .microbatches = 4, .chunks = 1,
                       .bits = 16, .schedule = "1f1b"};

    return l;
}

static double bytes_of_shape(const struct layout *l, const struct shape *of)
{
    struct machine machine;
    const struct cost cost = {&machine, of, l};
    double bytes;

    machine_from_preset(&machine, &machine_presets[1]);
    bytes = network_bytes(&cost);
    machine_free(&machine);
    return bytes;
}

static double bytes_of(const struct layout *l)
{
    return bytes_of_shape(l, &shape);
}

static bool is(double bytes, double expected)
{
    if (fabs(bytes / expected - 1) < 1e-9) return true;
    fprintf(stderr, "%.17g bytes, expected %.17g\n", bytes, expected);
    return false;
}

/* 16 ranks on two nodes: a ring leaves each node once, with a part of each of
 * the 8 ranks. Sums are float32, or what the program sends; weights are
 * gathered in 16 bits. */
TEST(gradients_and_weights_between_nodes)
{
    const double once = 15. / 16 * parameters / 8;
    struct layout l = layout_of(1, 16, 1);

    CHECK(is(bytes_of(&l), 2 * 4 * once));
    l.as = AS_TORCHTITAN_BF16;
    CHECK(is(bytes_of(&l), 2 * 2 * once));
    l.zero = 1;
    CHECK(is(bytes_of(&l), (2 + 2) * once));
    l.as = AS_TORCHTITAN;
    CHECK(is(bytes_of(&l), (4 + 2) * once));
    l.zero = 3; /* four micro-batches */
    CHECK(is(bytes_of(&l), 4 * (4 + 2 * 2) * once));
    l.data = 2; /* weights are divided inside a node: copies of shards add up */
    l.shard = 8;
    l.whole_shards = true;
    CHECK(is(bytes_of(&l), 4 * 2. / 2 * 4 * parameters / 8));
    l.shard = 4; /* context ranks divide them, too, but not those of Lockstep */
    l.context = 2;
    CHECK(is(bytes_of(&l), 4 * 2. / 2 * 4 * parameters / 8));
    CHECK(layout_division(&l, 3) == 8);
    l.as = AS_LOCKSTEP;
    CHECK(layout_division(&l, 3) == 4);
    l.as = AS_TORCHTITAN;
    l.context = 1;
    l.data = 8;
    l.shard = 1;
    l.whole_shards = false;
    CHECK(bytes_of(&l) < 1); /* one node */
}

/* FSDP that sums gradients once in a step, by its habit or by zero_reduce, and
 * zero 2 of Lockstep, which sums leaves of each micro-batch. */
TEST(sums_of_a_step_and_of_micro_batches)
{
    const double once = 15. / 16 * parameters / 8;
    struct layout l = layout_of(1, 16, 1);

    l.as = AS_AUTOMODEL;
    l.zero = 3;
    CHECK(is(bytes_of(&l), (4 + 4 * 2 * 2) * once));
    l.sums = SUMS_EACH;
    CHECK(is(bytes_of(&l), 4 * (4 + 2 * 2) * once));
    l.as = AS_TORCHTITAN;
    l.sums = SUMS_ONCE;
    CHECK(is(bytes_of(&l), (4 + 4 * 2 * 2) * once));
    l.as = AS_LOCKSTEP;
    l.sums = SUMS_AS_USUAL;
    l.zero = 2;
    l.grid_data = 16;
    CHECK(is(bytes_of(&l), (4 + 2) * once));
    l.grid_data = 64;
    CHECK(is(bytes_of(&l), (4 * 4 + 2) * once));
}

/* Table and head are gathered once for a micro-batch, the head where the pipe
 * ends; tail_parameters has them among the sums. */
TEST(tables_and_heads_between_nodes)
{
    struct shape large = shape;
    struct layout l = layout_of(1, 16, 1);
    const double table = 2048 * 5e4, part = 15. / 16 / 8;
    double before;

    l.zero = 3;
    before = bytes_of_shape(&l, &large);
    large.outside.embedding = large.outside.head = table;
    CHECK(is(bytes_of_shape(&l, &large) - before,
             4 * (4 + 2) * 2 * table * part));
}

/* A rank in the middle sends activations down and their gradients up; at the
 * border of a node in one direction alone. */
TEST(pipes_between_nodes)
{
    struct layout l = layout_of(4, 8, 1);

    CHECK(is(bytes_of(&l), 2 * 4 * border));
    l.data = 4; /* two pipe ranks on a node */
    CHECK(is(bytes_of(&l), 4 * border));
    l.chunks = 2; /* the last rank sends to the first */
    CHECK(is(bytes_of(&l), 4 * 2 * border));
    l.data = 2;
    CHECK(bytes_of(&l) < 1);
}

/* Both sums of a block, of F and of B; four micro-batches. */
TEST(tensor_ranks_on_two_nodes)
{
    struct layout l = layout_of(1, 1, 16);

    CHECK(is(bytes_of(&l), 2 * 15. / 16 * border / 8 * 2 * 2 * 32 * 4));
    l.overlap_tensor = true; /* what is hidden is sent, too */
    CHECK(is(bytes_of(&l), 2 * 15. / 16 * border / 8 * 2 * 2 * 32 * 4));
}

TEST_MAIN(gradients_and_weights_between_nodes,
          sums_of_a_step_and_of_micro_batches,
          tables_and_heads_between_nodes, pipes_between_nodes,
          tensor_ranks_on_two_nodes)
