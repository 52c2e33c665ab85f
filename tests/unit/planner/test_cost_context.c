/* SPDX-License-Identifier: Apache-2.0 */
/* test_cost_context.c - mirrors src/planner/cost_context.c: bytes of torch's
 * ring of context ranks, by hand. */
#include <math.h>

#include "planner/cost_parts.h"
#include "tests/test.h"
#include "tests/unit/planner/shape_text.h"

enum { TOKENS = 32768, HEADS = 32, WIDTH = 128 };

/* A block of 8 query heads for each head of keys, or of one for each. */
static void block_of(enum program_as as, int kv_heads, int context,
                     struct passes *out)
{
    char yaml[256];
    struct layout l = {.as = as, .pipe = 1, .data = 1, .shard = 1,
                       .context = context, .tensor = 1, .expert = 1,
                       .per_node = 8, .batch = 1, .micro_batch = 1,
                       .microbatches = 1, .chunks = 1, .bits = 16, .zero = 3};
    struct machine machine;
    struct shape shape;

    snprintf(yaml, sizeof yaml, "model: {family: llama, vocab: 1024, layers: "
             "2, width: 4096, heads: %d, kv_heads: %d, feed_forward: 8192}\n",
             HEADS, kv_heads);
    shape_of_text(&shape, yaml, (int64_t)TOKENS * context);
    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    snprintf(l.schedule, sizeof l.schedule, "1f1b");
    cost_block(&(struct cost){&machine, &shape, &l}, out);
    machine_free(&machine);
}

static double link_rate(void)
{
    struct machine machine;
    double rate;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    rate = machine.value[M_LINK_RATE] * machine.value[M_LINK];
    machine_free(&machine);
    return rate;
}

/* Keys and values of all query heads are gathered, 2 bytes an element, and
 * their gradients go to each rank once, 4 bytes an element. */
TEST(a_ring_sends_keys_of_all_query_heads)
{
    const double rate = link_rate();

    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        const double elements = 2.0 * TOKENS * HEADS * WIDTH;
        const double gathered = (ranks - 1) * 2 * elements / rate;
        const double sent = ranks * 4 * elements / rate;
        struct passes block;

        block_of(AS_TORCHTITAN, 4, ranks, &block);
        CHECK(fabs(block.pass[COST_F].seconds[CAUSE_CONTEXT] / gathered - 1) <
              0.02);
        CHECK(fabs(block.pass[COST_B].seconds[CAUSE_CONTEXT] /
                       (gathered + sent) - 1) < 0.02);
    }
}

/* Others send the heads that keys have. */
TEST(other_programs_send_keys_once)
{
    struct passes few, all, ring;

    block_of(AS_JAX, 4, 4, &few);
    block_of(AS_JAX, 32, 4, &all);
    block_of(AS_TORCHTITAN, 32, 4, &ring);
    CHECK(few.pass[COST_F].seconds[CAUSE_CONTEXT] <
          0.13 * all.pass[COST_F].seconds[CAUSE_CONTEXT]);
    CHECK(fabs(ring.pass[COST_F].seconds[CAUSE_CONTEXT] /
                   all.pass[COST_F].seconds[CAUSE_CONTEXT] - 1) < 1e-9);
    CHECK(ring.pass[COST_B].seconds[CAUSE_CONTEXT] >
          1.5 * all.pass[COST_B].seconds[CAUSE_CONTEXT]);
}

/* Megatron-Core's travel while attention reads those before: what is shown is
 * longer than 15 of 16 parts of attention. Ranks of a node wait for nothing
 * here, those of nodes with slow ports for the rest. */
TEST(rings_of_megatron_lie_beside_attention)
{
    static const double ways[] = {1, 2}, times[] = {1, 2.5};
    struct layout l = {.as = AS_MEGATRON_CORE, .pipe = 1, .data = 1,
                       .shard = 1, .context = 16, .tensor = 1, .expert = 1,
                       .per_node = 1, .batch = 1, .micro_batch = 1,
                       .microbatches = 1, .chunks = 1, .bits = 16};
    struct passes inside, beside, apart;
    struct machine machine;
    struct shape shape;
    struct spent attends = {0};

    block_of(AS_MEGATRON_CORE, 32, 8, &inside);
    CHECK(inside.pass[COST_F].seconds[CAUSE_CONTEXT] == 0);
    CHECK(inside.pass[COST_B].seconds[CAUSE_CONTEXT] == 0);
    shape_of_text(&shape, "model: {family: llama, vocab: 1024, layers: 2, "
                          "width: 4096, heads: 32, feed_forward: 8192}\n",
                  16 * 1024);
    IS_OK(machine_open(&machine, &(struct machine_choice){
        .what = "h100,nic_rate=2e9"}));
    snprintf(l.schedule, sizeof l.schedule, "1f1b");
    const struct cost cost = {&machine, &shape, &l};

    cost_block(&cost, &beside);
    cost_attention(&cost, 1, &attends);
    l.as = AS_JAX;
    cost_block(&cost, &apart);
    for (int pass = COST_F; pass <= COST_B; pass++) {
        const double travel = apart.pass[pass].seconds[CAUSE_CONTEXT];
        const double shown = beside.pass[pass].seconds[CAUSE_CONTEXT];

        CHECK(fabs(travel / apart.pass[COST_F].seconds[CAUSE_CONTEXT] -
                   ways[pass]) < 1e-9);
        CHECK(shown > 0);
        CHECK(fabs(travel - shown - times[pass] * 15 / 16 *
                                        spent_seconds(&attends)) <
              1e-9 * travel);
    }
    machine_free(&machine);
}

TEST(one_rank_has_no_ring)
{
    struct passes torch, jax;

    block_of(AS_TORCHTITAN, 4, 1, &torch);
    block_of(AS_JAX, 4, 1, &jax);
    for (int pass = 0; pass < COST_PASSES; pass++) {
        CHECK(torch.pass[pass].seconds[CAUSE_CONTEXT] == 0);
        CHECK(torch.pass[pass].seconds[CAUSE_MEMORY] ==
              jax.pass[pass].seconds[CAUSE_MEMORY]);
    }
}

/* Outputs are merged in float32: what is moved for a token grows with ranks. */
TEST(more_ranks_merge_more)
{
    struct passes two, eight;

    block_of(AS_TORCHTITAN, 4, 2, &two);
    block_of(AS_TORCHTITAN, 4, 8, &eight);
    for (int pass = COST_F; pass <= COST_B; pass++)
        CHECK(eight.pass[pass].seconds[CAUSE_MEMORY] >
              1.2 * two.pass[pass].seconds[CAUSE_MEMORY]);
}

TEST_MAIN(a_ring_sends_keys_of_all_query_heads, other_programs_send_keys_once,
          rings_of_megatron_lie_beside_attention, one_rank_has_no_ring,
          more_ranks_merge_more)
