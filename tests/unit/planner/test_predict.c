/* SPDX-License-Identifier: Apache-2.0 */
/* test_predict.c - mirrors src/planner/predict.c and steps.c: what algebra says
 * of pipelines whose messages cost nothing. */
#include "planner/predict.h"
#include "planner/step_tail.h"

#include <math.h>

#include "tests/test.h"

/* Messages, launches and the rest of a step take no time. */
static void calm(struct machine *m)
{
    static const struct { const char *key; double value; } rows[] = {
        {"link_latency", 0}, {"nic_latency", 0}, {"launch", 0}, {"step", 0},
        {"gap", 0},
        {"noise", 0}, {"link_rate", 1e16}, {"nic_rate", 1e16},
        {"compute_beside", 1}, {"comm_beside", 1}};

    machine_from_preset(m, &machine_presets[1]);
    for (int i = 0; i < ROWS(rows); i++)
        IS_OK(machine_set(m, "test", rows[i].key, rows[i].value,
                          MARK_BY_HAND));
}

/* One of a block, dense. */
#define PRODUCT(o, i, split)                                     \
    {.outputs = o, .inputs = i, .split_outputs = split,          \
     .each_block = 1, .tokens = 1}

/* Without a vocabulary: every stage does the same. */
static const struct shape shape = {
    .layers = 32, .heads = 16, .kv_heads = 16, .head_width = 128,
    .width = 2048, .feed_forward = 8192, .vocab = 1, .sequence = 1024,
    .products = {PRODUCT(6144, 2048, true),
                 PRODUCT(2048, 8192, false)},
    .product_count = 2, .joins = 2, .keys = 512, .moved.whole = 8192,
    .block.instructions = 8, .block.parameters = 5e7};

static struct layout layout_of(const char *schedule, int pipe, int chunks,
                               int microbatches)
{
    struct layout l = {.as = AS_MEGATRON, .pipe = pipe, .data = 1, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .per_node = 8,
                       .batch = microbatches, .micro_batch = 1,
                       .microbatches = microbatches, .chunks = chunks,
                       .bits = 16};

    snprintf(l.schedule, sizeof l.schedule, "%s", schedule);
    return l;
}

static struct prediction predicted_with(const struct cost *cost)
{
    const struct weather weather = {.slow = NULL};
    struct prediction p;

    IS_OK(predict(&p, cost, &weather));
    return p;
}

static struct prediction predicted(const struct machine *m,
                                   const struct layout *l)
{
    const struct cost cost = {m, &shape, l};

    return predicted_with(&cost);
}

static double of_all_blocks(const struct machine *m, const struct layout *l)
{
    const struct cost cost = {m, &shape, l};
    struct passes block;
    double sum = 0;

    cost_block(&cost, &block);
    for (int i = 0; i < COST_PASSES; i++) sum += spent_seconds(&block.pass[i]);
    return sum * shape.layers;
}

/* 1f1b: (m + p - 1) (F + B + W); the bubble is (p - 1) / (m + p - 1).
 * Interleaved with v chunks: (p - 1) / v of a micro-batch idle. */
TEST(pipelines_take_what_algebra_says)
{
    struct machine m;

    calm(&m);
    for (int pipe = 2; pipe <= 8; pipe *= 2)
        for (int chunks = 1; chunks <= 2; chunks++) {
            const struct layout l = layout_of(
                chunks > 1 ? "interleaved" : "1f1b", pipe, chunks, 2 * pipe);
            const struct prediction p = predicted(&m, &l);
            const double each = of_all_blocks(&m, &l) / pipe;
            const double idle = (double)(pipe - 1) / chunks;
            const double body = (2 * pipe + idle) * each;

            CHECK(fabs(p.body_s / body - 1) < 0.01);
            CHECK(fabs(p.bubble_rate - idle / (2 * pipe + idle)) < 0.01);
        }
    machine_free(&m);
}

/* The critical path is the step: its causes add up to it. */
TEST(the_causes_add_up)
{
    struct machine m;

    machine_from_preset(&m, &machine_presets[1]);
    for (int zero = 0; zero <= 3; zero++) {
        struct layout l = layout_of("1f1b", 4, 1, 8);
        struct prediction p;
        double sum = 0;

        l.as = zero == 3 ? AS_TORCHTITAN : AS_MEGATRON;
        l.zero = zero;
        l.data = 4;
        l.batch = 32;
        p = predicted(&m, &l);
        for (int i = 0; i < CAUSES; i++) sum += p.path_s[i];
        CHECK(fabs(sum / p.step_s - 1) < 1e-6);
        CHECK(p.idle_share > 0 && p.idle_share < 1);
        CHECK(p.guessed_share >= 0 && p.guessed_share <= 1);
    }
    machine_free(&m);
}

/* Eight positions of the pipe on each of two nodes, a rank each. Two messages
 * of an interleaved schedule may leave a node at the same time. */
TEST(few_ports_make_a_pipe_slower)
{
    const struct layout l = layout_of("interleaved", 16, 2, 32);
    double before = 1e300;

    for (int ports = 0; ports <= 16; ports = ports > 0 ? 2 * ports : 1) {
        struct machine m;

        calm(&m);
        IS_OK(machine_set(&m, "", "devices", 8, MARK_BY_HAND));
        IS_OK(machine_set(&m, "", "nic_rate", 1e6, MARK_BY_HAND));
        IS_OK(machine_set(&m, "", "nics", ports, MARK_BY_HAND));
        struct layout on_nodes = l;

        on_nodes.as = AS_TORCHTITAN; /* waits for no message */
        on_nodes.per_node = 8;
        const struct prediction p = predicted(&m, &on_nodes);

        if (ports == 0) before = p.step_s;
        if (ports == 1) CHECK(p.step_s > 1.01 * before);
        if (ports == 2 || ports == 4)
            CHECK(fabs(p.step_s / before - 1) < 1e-3);
        if (ports == 8) CHECK(p.step_s == before);
        if (ports == 16) CHECK(p.step_s < before);
        machine_free(&m);
    }
}

/* The slowest of n ranks is so many deviations late (docs/planner.md). */
TEST(many_ranks_are_as_slow_as_their_slowest)
{
    struct layout l = layout_of("1f1b", 4, 1, 8);
    double calm_s;
    struct machine m;

    calm(&m);
    calm_s = predicted(&m, &l).step_s;
    IS_OK(machine_set(&m, "", "noise", 0.02, MARK_BY_HAND));
    CHECK(fabs(predicted(&m, &l).step_s / calm_s - 1 -
               0.02 * sqrt(2 * log(4))) < 1e-9);
    l = layout_of("1f1b", 1, 1, 8);
    calm_s = predicted(&m, &l).step_s;
    IS_OK(machine_set(&m, "", "noise", 0, MARK_BY_HAND));
    CHECK(predicted(&m, &l).step_s == calm_s);
    machine_free(&m);
}

/* FSDP sends weights twice for each micro-batch, and gradients once: those of
 * AutoModel with the last of 8, so that its steps wait less for ports.
 * KempnerForge's head gathers logits. */
TEST(gradients_are_sent_once)
{
    struct layout l = {.as = AS_TORCHTITAN, .pipe = 1, .data = 64, .shard = 1,
                       .context = 1, .tensor = 1, .expert = 1, .per_node = 8,
                       .batch = 512, .micro_batch = 1, .microbatches = 8,
                       .chunks = 1, .bits = 16, .zero = 3,
                       .schedule = "1f1b"};
    struct machine machine;
    struct shape wide = shape;
    struct passes head;
    double each, once, one, slow;

    wide.vocab = 32768;
    IS_OK(machine_open(&machine, &(struct machine_choice){
        .what = "h100,nic_rate=5e9"}));
    const struct cost cost = {&machine, &wide, &l};

    each = cost_messages(&cost);
    slow = predicted_with(&cost).step_s;
    l.as = AS_AUTOMODEL;
    once = cost_messages(&cost);
    l.microbatches = 1;
    one = cost_messages(&cost);
    CHECK(fabs(each - 8 * one) < 1e-9 * each);
    CHECK(once > 4 * one && once < 0.75 * each); /* 16 gathers, one sum */
    l.microbatches = 8;
    l.sums = SUMS_EACH;
    CHECK(fabs(cost_messages(&cost) - each) < 1e-9 * each);
    l.sums = SUMS_AS_USUAL;
    CHECK(predicted_with(&cost).step_s < slow - 0.5 * (each - once));
    l.tensor = 4;
    cost_head(&cost, &head);
    CHECK(head.pass[COST_F].seconds[CAUSE_TENSOR] == 0);
    l.as = AS_KEMPNERFORGE;
    cost_head(&cost, &head);
    CHECK(head.pass[COST_F].seconds[CAUSE_TENSOR] > 0);
    machine_free(&machine);
}

TEST_MAIN(pipelines_take_what_algebra_says, the_causes_add_up,
          few_ports_make_a_pipe_slower, gradients_are_sent_once,
          many_ranks_are_as_slow_as_their_slowest)
