/* SPDX-License-Identifier: Apache-2.0 */
/* test_list_offload.c - mirrors src/planner/list_offload.c: steps whose
 * activations, weights or states lie in host memory. */
#include "planner/list_offload.h"

#include <math.h>
#include <stdio.h>

#include "planner/predict.h"
#include "tests/test.h"

/* 32 blocks of 2e8 parameters; products are nearly all of the time. */
static const struct shape shape = {
    .layers = 32, .heads = 32, .kv_heads = 32, .head_width = 128,
    .width = 4096, .feed_forward = 16384, .vocab = 1, .sequence = 8192,
    .products = {{.outputs = 48828, .inputs = 4096, .split_outputs = true,
                  .each_block = 1, .tokens = 1}},
    .product_count = 1, .joins = 2, .keys = 1, .moved.whole = 8192,
    .block.instructions = 8, .block.parameters = 2e8};
static const double parameters = 32 * 2e8;

static const struct layout plain = {
    .as = AS_MEGATRON_CORE, .pipe = 1, .data = 1, .shard = 1, .context = 1,
    .tensor = 1, .expert = 1, .per_node = 8, .batch = 1, .micro_batch = 1,
    .microbatches = 1, .chunks = 1, .bits = 16, .schedule = "1f1b"};

static struct prediction step_of(const struct layout *l, double rate)
{
    const struct weather calm = {.slow = NULL};
    struct machine machine;
    const struct cost cost = {&machine, &shape, l};
    struct prediction p;

    machine_from_preset(&machine, &machine_presets[1]);
    machine.value[M_HOST_RATE] = rate;
    machine.value[M_NOISE] = 0;
    machine.value[M_COMPUTE_BESIDE] = machine.value[M_COMM_BESIDE] = 1;
    IS_OK(predict(&p, &cost, &calm));
    machine_free(&machine);
    return p;
}

/* ByteScale, arXiv:2502.21231: a step with this share of its activations in
 * host memory. The rate is that of the last row; the others follow. Less of
 * them is as a faster path. */
TEST(activations_leave_beside_the_pass)
{
    static const double rows[][2] = {
        {0.5, 5.08}, {0.6, 5.38}, {0.8, 5.93}, {1.0, 6.49}};
    struct layout l = plain;
    const double none = step_of(&l, 1e9).step_s;
    double low = 1e6, high = 1e15;

    l.offload = OFFLOAD_ACTIVATIONS;
    for (int i = 0; i < 100; i++) {
        const double middle = sqrt(low * high);

        if (step_of(&l, middle).step_s / none > 6.49 / 5.08) low = middle;
        else high = middle;
    }
    for (int i = 0; i < ROWS(rows); i++) {
        const double step = step_of(&l, high / rows[i][0]).step_s;
        const double found = 5.08 * step / none;

        if (fabs(found / rows[i][1] - 1) >= 0.03)
            fprintf(stderr, "share %g: %.3f s, published %.2f\n", rows[i][0],
                    found, rows[i][1]);
        CHECK(fabs(found / rows[i][1] - 1) < 0.03);
    }
}

static bool moves(const struct layout *l, double bytes)
{
    const double rate = 1e9;
    const double found = step_of(l, rate).resource_s[CLOCK_OFFLOAD] * rate;

    if (fabs(found / bytes - 1) < 1e-6) return true;
    fprintf(stderr, "%.17g bytes, expected %.17g\n", found, bytes);
    return false;
}

/* Masters and moments come and go once in a step; weights come for F and for
 * B, and go once. */
TEST(bytes_of_states_and_weights)
{
    struct layout l = plain;

    l.offload = OFFLOAD_STATES;
    CHECK(moves(&l, 2 * 12 * parameters));
    l.bits = 32; /* no masters beside the weights */
    CHECK(moves(&l, 2 * 8 * parameters));
    l.bits = 16;
    l.as = AS_TORCHTITAN; /* shards of float32 */
    CHECK(moves(&l, 2 * 8 * parameters));
    l = plain;
    l.offload = OFFLOAD_STATES;
    l.stored.one_state = true;
    l.stored.state_bits = 8;
    CHECK(moves(&l, 2 * (4 + 1) * parameters));
    l = plain;
    l.offload = OFFLOAD_WEIGHTS;
    CHECK(moves(&l, (2 + 2 + 2) * parameters));
    l.microbatches = 3;
    l.batch = 3;
    CHECK(moves(&l, (3 * (2 + 2) + 2) * parameters));
    l.data = 4; /* each rank its shard */
    l.batch = 12;
    l.zero = 3;
    CHECK(moves(&l, (3 * (2 + 2) + 2) * parameters / 4));
    l.bits = 32; /* they are the masters */
    CHECK(moves(&l, (3 * (4 + 4) + 4 + 4) * parameters / 4));
}

/* A fast path costs nothing; where it is slow, a pass of many blocks takes as
 * long as its copies, not longer by the whole of them. */
TEST(copies_run_beside_the_work)
{
    struct layout l = plain;
    const double none = step_of(&l, 1e9).step_s;

    for (int what = 0; what < 2; what++) {
        l.offload = what == 0 ? OFFLOAD_ACTIVATIONS : OFFLOAD_WEIGHTS;
        CHECK(fabs(step_of(&l, 1e18).step_s / none - 1) < 1e-6);
        for (double rate = 1e8; rate < 1e12; rate *= 3) {
            const struct prediction p = step_of(&l, rate);
            const double copies = p.resource_s[CLOCK_OFFLOAD];

            CHECK(p.step_s >= none * (1 - 1e-9));
            CHECK(p.step_s >= copies * (1 - 1e-9));
            CHECK(p.step_s <= (none + copies) * (1 + 1e-9));
        }
    }
}

TEST_MAIN(activations_leave_beside_the_pass, bytes_of_states_and_weights,
          copies_run_beside_the_work)
