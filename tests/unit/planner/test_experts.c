/* SPDX-License-Identifier: Apache-2.0 */
/* test_experts.c - mixtures of experts in the planner: what expert ranks
 * divide, send and reduce. Mirrors parts of memory.c, cost.c and
 * step_tail.c. */
#include <math.h>
#include <string.h>

#include "planner/memory.h"
#include "planner/network.h"
#include "planner/search.h"
#include "planner/step_tail.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

static void open_model(struct shape *shape)
{
    static const char yaml[] =
        "model: {family: mixtral, vocab: 32768, layers: 8, width: 1024, "
        "heads: 16, kv_heads: 4, feed_forward: 2048, tied: false}\n"
        "moe: {experts: 8, top_k: 2}\n";

    shape_of_text(shape, yaml, 2048);
}

static struct layout layout_with(int data, int expert)
{
    return (struct layout){.as = AS_MEGATRON, .pipe = 1, .data = data,
                           .shard = 1, .context = 1, .tensor = 1,
                           .expert = expert, .per_node = 8, .batch = 64,
                           .micro_batch = 1, .microbatches = 8,
                           .schedule = "1f1b", .chunks = 1, .bits = 16};
}

/* A router is a product of every token, which no tensor rank adds. */
TEST(routers_are_products)
{
    struct shape shape;
    int routers = 0;

    open_model(&shape);
    for (int i = 0; i < shape.product_count; i++) {
        const struct shape_product *p = &shape.products[i];

        if (p->outputs != 8 || p->inputs != 1024) continue;
        CHECK(p->tokens == 1 && !p->expert && p->each_block == 1);
        routers++;
    }
    CHECK(routers == 1);
    CHECK(fabs(shape.joins - 2) < 1e-12); /* attention, experts */
}

/* 3 matrices of 1024 x 2048 an expert. */
TEST(expert_ranks_divide_the_experts_alone)
{
    const double expert = 3.0 * 1024 * 2048;
    struct layout alone = layout_with(8, 1), divided = layout_with(1, 8);
    struct memory before, after;
    struct shape shape;

    open_model(&shape);
    CHECK(fabs(shape.in_experts.parameters - 8 * expert) < 1);
    CHECK(shape.experts == 8 && shape.choices == 2);
    CHECK(layout_sharing(&alone) == 8 && layout_sharing(&divided) == 8);
    memory_of(&alone, &shape, 0, &before);
    memory_of(&divided, &shape, 0, &after);
    /* 2 bytes of weights, 4 of gradients, 12 of states. */
    CHECK(fabs((before.weights - after.weights) -
               2 * 8 * 7 * expert) < 1e3);
    CHECK(fabs((before.gradients - after.gradients) -
               4 * 8 * 7 * expert) < 1e3);
    CHECK(fabs((before.states - after.states) - 12 * 8 * 7 * expert) < 1e3);
    /* ZeRO divides experts over the ranks that hold the same ones: here 1. */
    alone.zero = divided.zero = 1;
    memory_of(&divided, &shape, 0, &after);
    CHECK(after.states > 12 * 8 * expert);
    memory_of(&alone, &shape, 0, &before);
    CHECK(fabs(before.states - 12 * shape.parameters / 8) < 1e4);
}

TEST(expert_ranks_exchange_tokens_and_reduce_less)
{
    struct layout alone = layout_with(8, 1), divided = layout_with(1, 8);
    struct passes before, after;
    struct machine machine;
    struct shape shape;
    double guessed = 0;

    open_model(&shape);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    const struct cost one = {&machine, &shape, &alone};
    const struct cost many = {&machine, &shape, &divided};

    cost_block(&one, &before);
    cost_block(&many, &after);
    CHECK(before.pass[COST_F].seconds[CAUSE_EXPERT] == 0);
    /* There and back: 2 of 2048 tokens x 2 choices x 1024 x 2 bytes. */
    const double sent = 2048.0 * 2 * 1024 * 2;
    const double each = cost_collective(&many, COLLECTIVE_ALL_TO_ALL,
                                        group_of(&divided, CAUSE_EXPERT), sent,
                                        &guessed);

    CHECK(fabs(after.pass[COST_F].seconds[CAUSE_EXPERT] - 2 * each) < 1e-9);
    CHECK(after.pass[COST_B].seconds[CAUSE_EXPERT] > 0);
    /* As many FLOP, in larger products. */
    CHECK(after.pass[COST_F].seconds[CAUSE_PRODUCT] <
          before.pass[COST_F].seconds[CAUSE_PRODUCT]);
    CHECK(data_group(&divided).ranks == 8);
    CHECK(expert_data_group(&divided).ranks == 1);
    CHECK(fabs(tail_experts(&many, 0) - tail_experts(&one, 0) / 8) < 1);
    machine_free(&machine);
}

/* Tensor ranks with whole experts: no sums over them, and all-to-all over as
 * many more ranks, each with a part of the tokens. The FLOP stay. */
TEST(folded_tensor_ranks_exchange_rows_instead_of_sums)
{
    struct layout cut = layout_with(1, 4), whole;
    struct passes before, after;
    struct machine machine;
    struct shape shape;
    double guessed = 0;

    open_model(&shape);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    cut.tensor = 2;
    cut.sequence_parallel = true;
    whole = cut;
    whole.expert_tensor = 1;
    const struct cost one = {&machine, &shape, &cut};
    const struct cost many = {&machine, &shape, &whole};
    const struct expert_ranks e = layout_experts(&whole);
    const double sum = cost_collective(&one, COLLECTIVE_ALL_REDUCE,
                                       group_of(&cut, CAUSE_TENSOR),
                                       2048.0 * 1024 * 2, &guessed);
    const double sent = cost_collective(&many, COLLECTIVE_ALL_TO_ALL,
                                        expert_group(&whole),
                                        2048.0 / 2 * 2 * 1024 * 2, &guessed);

    CHECK(e.ranks == 8 && e.places == 8 && e.stride == 1 && e.cut == 1);
    CHECK(e.sources == 4 && e.folded);
    cost_block(&one, &before);
    cost_block(&many, &after);
    CHECK(fabs(before.pass[COST_F].seconds[CAUSE_TENSOR] - 2 * sum) < 1e-9);
    CHECK(fabs(after.pass[COST_F].seconds[CAUSE_TENSOR] - sum) < 1e-9);
    CHECK(fabs(after.pass[COST_F].seconds[CAUSE_EXPERT] - 2 * sent) < 1e-9);
    /* Fewer and wider products of as many FLOP. */
    CHECK(after.pass[COST_F].seconds[CAUSE_PRODUCT] <
          before.pass[COST_F].seconds[CAUSE_PRODUCT]);
    CHECK(layout_block_experts(&whole, &shape) ==
          layout_block_experts(&cut, &shape));
    machine_free(&machine);
}

/* Context ranks with other experts: no sums of their gradients over them. */
TEST(folded_context_ranks_reduce_no_experts)
{
    struct layout copies = layout_with(2, 2), others;
    struct shape shape;

    open_model(&shape);
    copies.context = 2;
    others = copies;
    others.expert_context = true;
    CHECK(expert_data_group(&copies).ranks == 4);
    CHECK(expert_data_group(&others).ranks == 2);
    CHECK(expert_data_group(&others).stride == 4);
    CHECK(expert_group(&others).ranks == 4);
    CHECK(expert_group(&others).stride == 1);
    CHECK(layout_experts(&others).sources == 4);
    CHECK(2 * layout_block_experts(&others, &shape) ==
          layout_block_experts(&copies, &shape));
}

/* 8 of 16 members are elsewhere: half of the bytes go through the sender's own
 * port. */
TEST(exchanges_between_nodes_are_as_slow_as_a_port)
{
    const struct layout l = {.expert = 16, .tensor = 1, .context = 1,
                             .shard = 1, .data = 1, .pipe = 1, .per_node = 8};
    struct machine machine;
    struct shape shape = {.layers = 1};
    double guessed = 0;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    const struct cost cost = {&machine, &shape, &l};
    const double *v = machine.value;
    const double bytes = 1e9;
    const double seconds = cost_collective(&cost, COLLECTIVE_ALL_TO_ALL,
                                           expert_group(&l), bytes, &guessed);

    CHECK(fabs(seconds - 4 * v[M_NIC_LATENCY] -
               bytes / 2 / (v[M_NIC_RATE] * v[M_NIC])) < 1e-9);
    machine_free(&machine);
}

TEST(search_finds_expert_ranks)
{
    struct machine machine;
    struct shape shape;
    struct search search;
    struct search_fixed fixed = {-1, -1, -1, -1, 4, -1, -1, -1, -1, -1, "",
                                 {0}};
    bool seen = false, folded = false;

    open_model(&shape);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_MEGATRON, .ranks = 16,
        .per_node = 8, .batch = 64, .bits = 16, .max_memory = 8e10,
        .top = 5};

    IS_OK(search_run(&search, &request));
    for (int i = 0; i < search.count; i++) {
        const struct layout *l = &search.found[i].layout;

        CHECK(layout_ranks(l) == 16 &&
              shape.experts % layout_experts(l).places == 0);
        seen = seen || l->expert == 8;
        folded = folded || (l->expert_tensor == 1 && l->tensor > 1);
    }
    CHECK(seen && folded);
    search_free(&search);
    request.fixed = &fixed;
    IS_OK(search_run(&search, &request));
    for (int i = 0; i < search.count; i++)
        CHECK(search.found[i].layout.expert == 4);
    CHECK(search.count > 0);
    search_free(&search);
    machine_free(&machine);
}

/* Context ranks divide shards of dense weights, or the experts: each copy of
 * what is left sends as much of either. */
TEST(copies_of_divided_experts_send_all_that_they_have)
{
    struct layout l = layout_with(8, 1);
    struct machine machine;
    struct shape shape;
    double guessed = 0, divided, whole;

    open_model(&shape);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    l.as = AS_TORCHTITAN;
    l.context = 2;
    l.shard = 4;
    l.whole_shards = true;
    const struct cost cost = {&machine, &shape, &l};

    divided = cost_reduction(&cost, 0, 4e9, &guessed);
    l.expert_context = true;
    whole = cost_reduction(&cost, 0, 4e9, &guessed);
    CHECK(whole > 1.3 * divided);
    machine_free(&machine);
}

/* A rank has one expert and no others to start, but its few rows become narrow
 * all the same before the host goes on. */
TEST(rows_of_a_single_expert_become_narrow)
{
    struct layout l = layout_with(1, 8);
    struct passes blocks, tensors;
    struct machine machine;
    struct shape shape;

    open_model(&shape);
    shape.sequence = 16;
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    l.as = AS_MEGATRON_CORE;
    l.bits = 8;
    l.rows_straight = true;
    const struct cost cost = {&machine, &shape, &l};

    cost_block(&cost, &blocks);
    l.tensor_scales = true;
    cost_block(&cost, &tensors);
    CHECK(tensors.pass[COST_F].seconds[CAUSE_LAUNCH] >
          blocks.pass[COST_F].seconds[CAUSE_LAUNCH]);
    machine_free(&machine);
}

TEST_MAIN(rows_of_a_single_expert_become_narrow,
          copies_of_divided_experts_send_all_that_they_have,
          routers_are_products, expert_ranks_divide_the_experts_alone,
          expert_ranks_exchange_tokens_and_reduce_less,
          folded_tensor_ranks_exchange_rows_instead_of_sums,
          folded_context_ranks_reduce_no_experts,
          exchanges_between_nodes_are_as_slow_as_a_port,
          search_finds_expert_ranks)
