/* SPDX-License-Identifier: Apache-2.0 */
/* test_perturb.c - mirrors src/planner/perturb.c and reliability.c. */
#include "planner/perturb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

/* Kokolis et al. 2024, arXiv:2410.21680: 6.5 failures in 1000 node-days give a
 * mean time between failures of 1.8 h on 16,384 GPUs and 0.23 h on 131,072. */
TEST(published_times_between_failures)
{
    const struct failures f = {0.0065, 180, 300, 1};
    struct reliability r;

    reliability_of(&r, &f, 16384 / 8);
    CHECK(fabs(r.mtbf_s / 3600 - 1.8) < 0.05);
    reliability_of(&r, &f, 131072 / 8);
    CHECK(fabs(r.mtbf_s / 3600 - 0.23) < 0.005);
}

/* The closed form holds where failures are rare beside intervals. */
TEST(played_failures_agree_with_the_closed_form)
{
    const struct failures f = {0.0065, 180, 300, 5};
    struct reliability r;

    reliability_of(&r, &f, 256);
    CHECK(fabs(r.ettr - r.simulated_ettr) < 0.005);
    CHECK(r.best_ettr >= r.ettr);
}

/* The form of first order says 2%, 32%, 0 where a run trains for 32%, 47%, 35%
 * of the time; no interval is better than the best. */
TEST(frequent_failures_are_counted_exactly)
{
    const double day = 86400. / 527;
    const struct failures rows[] = {
        {day, 500, 30, 5}, {day, 60, 600, 1}, {day, 520, 30, 5},
        {day, 20, 600, 300}, {day, 3, 1, 1e-3}, {1e-8, 3, 0, 1e-3}};
    struct reliability r, other;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct failures f = rows[i];

        reliability_of(&r, &f, 1);
        CHECK(fabs(r.exact_ettr - r.simulated_ettr) < 0.005);
        for (double share = 0.5; share < 2; share += 0.1) {
            f.interval_s = share * r.best_interval_s;
            reliability_of(&other, &f, 1);
            CHECK(r.best_ettr >= other.exact_ettr - 1e-9);
        }
    }
}

static status read_text(struct perturb *perturb, const char *text)
{
    char path[] = "/tmp/perturb-XXXXXX";
    const int file = mkstemp(path);
    status result;

    CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
    result = perturb_read(perturb, path, 4);
    unlink(path);
    return result;
}

TEST(a_later_version_is_refused)
{
    struct perturb perturb;

    FAILS(read_text(&perturb, "{\"version\": 2, \"slow\": [{\"rank\": 0, "
                              "\"factor\": 2}]}"),
          ERR_FORMAT, "version is 2; this program reads 1");
}

/* Failures whose sums leave the range of numbers had an ETTR of null. */
TEST(failures_that_nothing_survives_are_refused)
{
    static const struct { const char *text, *says; } rows[] = {
        {"\"per_node_day\": 1e300", "per_node_day is 1e+300; expected 0 to"},
        {"\"per_node_day\": 1e-320", "expected at least 1e-09: a failure of"},
        {"\"per_node_day\": 1, \"restart_s\": 1e300", "restart_s is 1e+300"},
        {"\"per_node_day\": 1, \"stall_s\": 1e10", "expected 0 to 1e+09"},
        {"\"per_node_day\": 1, \"interval_s\": 1e-300", "(the best) or"}};
    struct perturb perturb;
    char text[160];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "{\"failures\": {%s}}", rows[i].text);
        FAILS(read_text(&perturb, text), ERR_CONFIG, rows[i].says);
    }
}

/* ---- classes ---- */

static const struct shape shape = {
    .layers = 8, .heads = 16, .kv_heads = 16, .head_width = 64, .width = 1024,
    .feed_forward = 4096, .vocab = 512, .sequence = 512,
    .products = {{.outputs = 4096, .inputs = 1024, .split_outputs = true,
                  .each_block = 2, .tokens = 1}},
    .product_count = 1, .joins = 2, .keys = 256, .moved.whole = 8192,
    .block.instructions = 8, .block.parameters = 8e6};

/* Ranks: pipe 2, data 4, tensor 2 from the slowest to the fastest. */
static struct layout sixteen(int zero)
{
    return (struct layout){
        .as = AS_MEGATRON, .pipe = 2, .data = 4, .shard = 1, .context = 1,
        .tensor = 2, .expert = 1, .per_node = 8, .batch = 32,
        .micro_batch = 1, .microbatches = 8, .chunks = 1, .bits = 16,
        .zero = zero, .schedule = "1f1b"};
}

static struct perturbed perturbed(const struct layout *layout,
                                  struct slow_rank *slow, int count,
                                  bool unfold)
{
    const struct perturb perturb = {.slow = slow, .slow_count = count};
    struct perturbed out;
    struct machine machine;
    const struct cost cost = {&machine, &shape, layout};
    struct steps steps;

    machine_from_preset(&machine, &machine_presets[1]);
    IS_OK(steps_build(&steps, &cost));
    IS_OK(perturb_step(&out, &perturb, &steps, &cost, unfold));
    steps_free(&steps);
    machine_free(&machine);
    return out;
}

/* Rank 2 is data 1 of pipe 0, tensor 0; 3 its tensor neighbour, 4 is data 2,
 * 10 is data 1 of pipe 1. */
TEST(equal_copies_are_one_class)
{
    static const struct {
        struct slow_rank slow[3];
        int count, classes;
        int64_t simulated;
    } rows[] = {
        {{{2, 2}}, 1, 2, 2},
        {{{2, 2}, {4, 2}}, 2, 2, 2}, /* equally slow: simulated once */
        {{{2, 2}, {3, 1.5}, {4, 2}}, 3, 2, 2}, /* it waits for the slowest */
        {{{2, 2}, {4, 1.5}}, 2, 3, 3},
        {{{2, 2}, {12, 2}}, 2, 3, 3}, /* at another position */
        {{{2, 1}}, 1, 1, 1},          /* as fast as the others */
    };
    const struct layout layout = sixteen(0);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slow_rank slow[3];

        memcpy(slow, rows[i].slow, sizeof slow);
        const struct perturbed
            folded = perturbed(&layout, slow, rows[i].count, false),
            unfolded = perturbed(&layout, slow, rows[i].count, true);

        EQUAL_INT(folded.classes, rows[i].classes);
        EQUAL_INT(folded.simulated, rows[i].simulated);
        EQUAL_INT(unfolded.classes, rows[i].classes);
        EQUAL_INT(unfolded.simulated, 5); /* and the one that is well */
        CHECK(folded.slow.step_s == unfolded.slow.step_s);
        CHECK((folded.slow.step_s > folded.healthy.step_s) ==
              (rows[i].slow[0].factor > 1));
    }
}

/* Ranks that divide the weights wait for each other in every block: two slow
 * ones at two positions slow down one pipeline, as they do of one copy. */
TEST(copies_that_divide_weights_wait_for_each_other)
{
    struct slow_rank two_copies[] = {{2, 3}, {12, 3}};
    struct slow_rank one_copy[] = {{2, 3}, {10, 3}};
    const struct layout whole = sixteen(0), divided = sixteen(3);
    struct layout nodes = sixteen(3);

    CHECK(perturbed(&whole, two_copies, 2, false).slow.step_s <
          perturbed(&whole, one_copy, 2, false).slow.step_s);
    CHECK(perturbed(&divided, two_copies, 2, false).slow.step_s ==
          perturbed(&divided, one_copy, 2, false).slow.step_s);
    EQUAL_INT(perturbed(&divided, two_copies, 2, true).classes, 1);
    nodes.data = nodes.shard = 2; /* data 0 has shards 0 and 1 */
    nodes.whole_shards = true;
    EQUAL_INT(perturbed(&nodes, two_copies, 2, false).classes, 2);
    one_copy[1].rank = 8; /* the other shard of data 0 */
    CHECK(perturbed(&nodes, two_copies, 2, false).slow.step_s <
          perturbed(&nodes, one_copy, 2, false).slow.step_s);
}

TEST_MAIN(published_times_between_failures, a_later_version_is_refused,
          failures_that_nothing_survives_are_refused,
          equal_copies_are_one_class,
          copies_that_divide_weights_wait_for_each_other,
          played_failures_agree_with_the_closed_form,
          frequent_failures_are_counted_exactly)
