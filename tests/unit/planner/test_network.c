/* SPDX-License-Identifier: Apache-2.0 */
/* test_network.c - mirrors src/planner/network.c: rates that others have
 * published for collectives. */
#include "planner/network.h"

#include <math.h>

#include "tests/test.h"

static const struct shape shape = {.layers = 1};

/* Seconds of a collective of `ranks`, eight on each node. */
static double seconds_of(const char *what, enum program_as as,
                         enum collective op, int ranks, double bytes)
{
    const struct layout l = {.as = as, .expert = ranks, .tensor = 1,
                             .context = 1, .shard = 1, .data = 1, .pipe = 1,
                             .per_node = 8};
    struct machine machine;
    double guessed = 0;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = what}));
    const struct cost cost = {&machine, &shape, &l};
    const double seconds = cost_collective(&cost, op, expert_group(&l), bytes,
                                           &guessed);

    machine_free(&machine);
    return seconds;
}

/* GB/s of what goes through the port that is the bottleneck, or the link. */
static double row_rate(const char *what, int ranks)
{
    const double bytes = 4e9;
    const double there = ranks > 8 ? (double)(ranks - 8) / ranks
                                   : (double)(ranks - 1) / ranks;

    return 1e-9 * bytes * there /
           seconds_of(what, AS_MEGATRON_CORE, COLLECTIVE_ALL_TO_ALL, ranks,
                      bytes);
}

/* README of deepseek-ai/DeepEP: H800 with links of 200 GB/s and ports of 50. */
TEST(rows_of_experts_are_as_fast_as_their_kernels)
{
    static const struct { int ranks; double there, back; } rows[] = {
        {8, 153, 158}, {16, 43, 43}, {32, 44, 47}, {64, 46, 45}};

    for (int i = 0; i < ROWS(rows); i++) {
        const double rate = row_rate("h100,link_rate=200e9", rows[i].ranks);

        print_message("%d ranks: %.1f GB/s; published %.0f and %.0f\n",
                      rows[i].ranks, rate, rows[i].there, rows[i].back);
        CHECK(fabs(rate / ((rows[i].there + rows[i].back) / 2) - 1) < 0.06);
    }
}

/* A share that somebody has set or measured stays. */
TEST(shares_of_ones_own_are_for_rows_too)
{
    CHECK(fabs(row_rate("h100,nic=0.5", 16) - 25) < 0.1);
    CHECK(fabs(row_rate("h100,link=0.5", 8) - 225) < 1);
}

/* Links of a torus: a group along one axis has a third of them, all devices of
 * the slice have all. */
TEST(groups_use_the_links_of_their_axes)
{
    static const char torus[] = "tpu-v4,devices=4096,link_latency=0";
    const double bytes = 4e9;
    struct layout l = {.as = AS_TORCHTITAN, .tensor = 16, .context = 1,
                       .shard = 256, .expert = 1, .data = 1, .pipe = 1,
                       .per_node = 4096};
    const struct { int ranks; double axes; } rows[] = {
        {2, 1}, {16, 1}, {64, 1.5}, {256, 2}, {4096, 3}};
    struct machine machine;
    double guessed = 0;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = torus}));
    const struct cost cost = {&machine, &shape, &l};

    for (int i = 0; i < ROWS(rows); i++) {
        const double n = rows[i].ranks;
        const double seconds = cost_collective(
            &cost, COLLECTIVE_ALL_GATHER,
            (struct group_shape){rows[i].ranks, 1}, bytes, &guessed);
        const double rate = (n - 1) / n * bytes / seconds;

        CHECK(fabs(rate / (machine.value[M_LINK_RATE] * machine.value[M_LINK] *
                           rows[i].axes / 3) - 1) < 1e-6);
    }
    machine_free(&machine);
}

/* Rows that go straight (moe.exchange=flat) have the rates of a library's
 * exchange: links as fitted, and of a port of 50 GB/s the 46 that NCCL's
 * maintainers expect at least (nccl-tests, issue 290). */
TEST(straight_rows_have_the_rates_of_a_library)
{
    struct layout l = {.as = AS_MEGATRON_CORE, .expert = 8, .tensor = 1,
                       .context = 1, .shard = 1, .data = 1, .pipe = 1,
                       .per_node = 8, .rows_straight = true};
    struct machine machine;
    double guessed = 0;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "h100"}));
    const struct cost cost = {&machine, &shape, &l};
    const double rate =
        7.0 / 8 * 4e9 / cost_collective(&cost, COLLECTIVE_ALL_TO_ALL,
                                        expert_group(&l), 4e9, &guessed);

    CHECK(fabs(rate / (machine.value[M_LINK_RATE] * machine.value[M_LINK]) -
               1) < 0.01);
    l.expert = 32;
    CHECK(fabs(24.0 / 32 * 4e9 /
                   cost_collective(&cost, COLLECTIVE_ALL_TO_ALL,
                                   expert_group(&l), 4e9, &guessed) / 46e9 -
               1) < 0.01);
    machine_free(&machine);
}

/* arXiv:2408.14158, section IV-D2: nodes of eight PCIe A100 with one port of 25
 * GB/s, where a device and the port send each other about 9 GiB/s. NCCL's sums
 * of 186 MiB went at 1.6 to 4.8 GB/s, fewer with more ranks. */
TEST(sums_over_pcie_are_in_the_published_range)
{
    static const char fire_flyer[] = "a100-40,link_rate=9.66e9,link=1,"
                                     "nics=1,nic=1";

    for (int ranks = 16; ranks <= 1024; ranks *= 4) {
        const double bytes = 186.0 * 1048576;
        const double rate = 1e-9 * bytes /
                            seconds_of(fire_flyer, AS_MEGATRON,
                                       COLLECTIVE_ALL_REDUCE, ranks, bytes);

        print_message("%d ranks: %.2f GB/s\n", ranks, rate);
        CHECK(rate >= 1.6 && rate <= 4.8 * 1.08);
    }
}

/* The same source: a large product of float16 reaches 263 TFLOP/s on an A100 of
 * a DGX; because of it no fit may go above 0.86 of the peak. */
TEST(large_products_are_no_faster_than_published)
{
    const struct layout l = {.as = AS_MEGATRON, .bits = 16, .tensor = 1};
    struct machine machine;
    struct spent spent = {.guessed = 0};

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = "a100-40"}));
    const struct cost cost = {&machine, &shape, &l};

    cost_product(&cost, (struct product_size){8192, 8192, 8192, PRODUCT_NT,
                                              ACCUMULATOR_NONE}, 1,
                 CAUSE_PRODUCT, &spent);
    const double rate = 2.0 * 8192 * 8192 * 8192 / spent_seconds(&spent);

    print_message("%.0f TFLOP/s\n", 1e-12 * rate);
    CHECK(fabs(rate / 263e12 - 1) < 0.04);
    machine_free(&machine);
}

/* Sums of 16 ranks on nodes of eight, and messages of a pipe of which `team`
 * ranks of a node send at once. */
struct timed_ports { double sum, message; };

static struct timed_ports through_ports(const char *what, int team)
{
    const struct layout l = {.as = AS_MEGATRON, .expert = 1, .tensor = 1,
                             .context = 1, .shard = 1, .data = team,
                             .pipe = 32 / team, .per_node = 8,
                             .micro_batch = 1, .bits = 16};
    const struct shape wide = {.layers = 1, .width = 1 << 14,
                               .sequence = 1 << 14};
    struct timed_ports out;
    struct machine machine;
    double guessed = 0;

    IS_OK(machine_open(&machine, &(struct machine_choice){.what = what}));
    const struct cost cost = {&machine, &wide, &l};

    out.sum = cost_collective(&cost, COLLECTIVE_ALL_REDUCE,
                              (struct group_shape){16, 1}, 4e9, &guessed);
    out.message = cost_transfer(&cost, true, &guessed);
    machine_free(&machine);
    return out;
}

/* Ports are divided among those that send: eight ranks have an eighth of one
 * port each, one rank has the port, and no rank has the ports of others. With a
 * port for each device nothing changes. */
TEST(ports_of_a_node_are_divided)
{
    static const char free_of_waits[] = "h100,nic_latency=0,link_latency=0";
    static const int ports[] = {1, 2, 4, 8};
    const struct timed_ports one_each = through_ports(free_of_waits, 8);
    char what[64];

    for (int i = 0; i < ROWS(ports); i++)
        for (int team = 1; team <= 8; team *= 2) {
            const double fair = (double)ports[i] / team;

            snprintf(what, sizeof what, "%s,nics=%d", free_of_waits, ports[i]);
            const struct timed_ports now = through_ports(what, team);

            CHECK(fabs(now.sum * ports[i] / 8 / one_each.sum - 1) < 1e-9);
            CHECK(fabs(now.message * (fair < 1 ? fair : 1) /
                       one_each.message - 1) < 1e-9);
        }
    snprintf(what, sizeof what, "%s,nics=0", free_of_waits);
    CHECK(through_ports(what, 4).message == one_each.message);
    snprintf(what, sizeof what, "%s,nics=32", free_of_waits);
    CHECK(fabs(4 * through_ports(what, 8).message / one_each.message - 1) <
          1e-9);
}

/* Positions 0 to 3 of teams of two are on the first node. */
TEST(messages_leave_where_nodes_end)
{
    struct layout l = {.tensor = 2, .context = 1, .shard = 1, .expert = 1,
                       .data = 1, .pipe = 8, .per_node = 8};

    CHECK(!pipe_leaves(&l, 0, 1) && !pipe_leaves(&l, 3, 2));
    CHECK(pipe_leaves(&l, 3, 4) && pipe_leaves(&l, 7, 0));
    l.tensor = 3; /* ranks 6 to 8 of position 2 */
    CHECK(!pipe_leaves(&l, 0, 1) && pipe_leaves(&l, 1, 2));
    l.tensor = 8;
    CHECK(pipe_leaves(&l, 0, 1) && !pipe_leaves(&l, 1, 1));
}

TEST_MAIN(ports_of_a_node_are_divided, messages_leave_where_nodes_end,
          rows_of_experts_are_as_fast_as_their_kernels,
          shares_of_ones_own_are_for_rows_too,
          groups_use_the_links_of_their_axes,
          straight_rows_have_the_rates_of_a_library,
          sums_over_pcie_are_in_the_published_range,
          large_products_are_no_faster_than_published)
