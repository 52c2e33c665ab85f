/* SPDX-License-Identifier: Apache-2.0 */
/* test_search.c - mirrors src/planner/search.c. */
#include "planner/search.h"

#include <math.h>

#include "planner/search_time.h"
#include "tests/test.h"

/* One of a block, dense. */
#define PRODUCT(o, i, split)                                     \
    {.outputs = o, .inputs = i, .split_outputs = split,          \
     .each_block = 1, .tokens = 1}

static void describe(struct shape *shape)
{
    const double h = 4096, f = 11008;

    *shape = (struct shape){
        .layers = 32, .heads = 32, .kv_heads = 32, .head_width = 128,
        .width = 4096, .feed_forward = 11008, .vocab = 32000,
        .sequence = 4096, .gated = true,
        .products = {PRODUCT(12288, 4096, true),
                     PRODUCT(4096, 4096, false),
                     PRODUCT(22016, 4096, true),
                     PRODUCT(4096, 11008, false)},
        .product_count = 4, .joins = 2, .keys = 2048, .moved_whole = 4 * h,
        .moved_split = 3 * f, .instructions = 10,
        .block_parameters = 4 * h * h + 3 * h * f,
        .embedding_parameters = 32000 * h, .head_parameters = 32000 * h};
}

/* The best of the search is as fast as the best of timing every candidate that
 * fits. */
TEST(nothing_faster_is_left_out)
{
    struct machine machine;
    struct shape shape;
    struct search search;
    double best = 1e300;

    describe(&shape);
    machine_from_preset(&machine, &machine_presets[1]);
    const struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_MEGATRON, .ranks = 16,
        .per_node = 8, .batch = 64, .bits = 16, .max_memory = 80e9, .top = 5};

    IS_OK(search_run(&search, &request));
    CHECK(search.feasible > 50 && search.candidates > search.feasible);
    for (int i = 0; i < search.count; i++) {
        const struct candidate *c = &search.found[i];
        const struct cost cost = {&machine, &shape, &c->layout};
        const struct weather weather = {.max_memory = 80e9};
        struct prediction p;

        if (predict(&p, &cost, &weather) != OK) {
            status_clear();
            continue;
        }
        if (p.step_s < best) best = p.step_s;
        EQUAL_INT(layout_ranks(&c->layout), 16);
        CHECK(c->memory_bytes <= 80e9);
    }
    CHECK(search.found[0].prediction.step_s <= 1.005 * best);
    search_free(&search);
    machine_free(&machine);
}

/* A few short steps tell the time of a long one, also where nothing hides the
 * messages of their ends: gathers of divided weights, over a slow network. */
TEST(short_steps_tell_the_time_of_long_ones)
{
    static const int pipes[] = {8, 16, 32}, zeros[] = {0, 2, 3};
    struct machine machine;
    struct shape shape;

    describe(&shape);
    shape.layers = 128;
    machine_from_preset(&machine, &machine_presets[1]);
    const struct search_request request = {
        .machine = &machine, .shape = &shape, .as = AS_LOCKSTEP,
        .per_node = 8, .max_memory = 80e9};

    for (int i = 0; i < ROWS(pipes) * ROWS(zeros); i++) {
        struct candidate c = {.layout = {
            .as = AS_LOCKSTEP, .tensor = 2, .context = 1, .expert = 1,
            .shard = 1, .data = 16, .pipe = pipes[i % ROWS(pipes)],
            .zero = zeros[i / ROWS(pipes)], .per_node = 8, .bits = 16,
            .chunks = 1, .schedule = "1f1b", .micro_batch = 1,
            .sequence_parallel = true, .microbatches = 384,
            .batch = 384 * 16}};
        struct layout fine = c.layout;
        const struct cost cost = {&machine, &shape, &fine};
        const struct weather weather = {.max_memory = 80e9};
        struct prediction whole;

        fine.fine = true;
        IS_OK(search_time(&request, &c));
        IS_OK(predict(&whole, &cost, &weather));
        print_message("pipe %d, zero %d: %.4f and %.4f s, bubble %.3f and "
                      "%.3f\n", c.layout.pipe, c.layout.zero,
                      c.prediction.step_s, whole.step_s,
                      c.prediction.bubble_rate, whole.bubble_rate);
        CHECK(fabs(c.prediction.step_s / whole.step_s - 1) < 0.05);
        CHECK(fabs(c.prediction.mfu / whole.mfu - 1) < 0.05);
        CHECK(fabs(c.prediction.bubble_rate - whole.bubble_rate) < 0.03);
    }
    machine_free(&machine);
}

TEST_MAIN(nothing_faster_is_left_out, short_steps_tell_the_time_of_long_ones)
