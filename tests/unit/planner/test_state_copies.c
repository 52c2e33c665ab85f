/* SPDX-License-Identifier: Apache-2.0 */
/* test_state_copies.c - mirrors src/planner/state_copies.c: copies travel while
 * a step leaves the network idle, and ranks wait for the rest. */
#include "planner/state_copies.h"

#include <math.h>

#include "tests/test.h"

enum { COMPUTES, TALKS, HALF, NORM, KINDS };

/* A port carries a byte a second. */
static struct machine machine = {
    .value = {[M_DEVICES] = 2, [M_NICS] = 1, [M_NIC_RATE] = 1, [M_NIC] = 1,
              [M_MEMORY_RATE] = 100, [M_HOST_RATE] = 50}};
static const struct shape shape = {.layers = 1};

static struct spent spans[KINDS] = {
    [COMPUTES] = {.seconds[CAUSE_PRODUCT] = 1},
    [TALKS] = {.seconds[CAUSE_DATA] = 1, .network = 1},
    [HALF] = {.seconds = {[CAUSE_PRODUCT] = 1, [CAUSE_TENSOR] = 1},
              .network = 1},
    [NORM] = {.seconds[CAUSE_LAUNCH] = 1}};
static enum step_item items[KINDS] = {ITEM_F, ITEM_REDUCE, ITEM_F, ITEM_NORM};

static void add(struct steps *steps, int rank, int kind, double begin,
                double end)
{
    const struct timed item = {.kind = kind, .begin = begin, .end = end,
                               .ports = kind == TALKS ? 2 : 0};
    int32_t at;

    IS_OK(timed_add(&steps->lists.lists[rank], &item, &at));
}

static void begin(struct steps *steps, int ranks)
{
    *steps = (struct steps){.spans = spans, .items = items};
    IS_OK(timed_lists_begin(&steps->lists, ranks));
}

static void place(struct state_copies *out, const struct steps *steps,
                  const struct layout *layout, const double *bytes, int nodes)
{
    const struct cost cost = {&machine, &shape, layout};

    IS_OK(state_copies_place(out, steps, &cost,
                             &(struct copies_sent){bytes, nodes, 1}));
}

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static bool is_span(const struct state_copies *c, int i, double begin,
                    double end, bool waited_for)
{
    return i < c->span_count && is_near(c->spans[i].begin, begin) &&
           is_near(c->spans[i].end, end) &&
           c->spans[i].waited_for == waited_for;
}

static const struct layout two = {.pipe = 1, .data = 2, .shard = 1,
                                  .context = 1, .expert = 1, .tensor = 1,
                                  .per_node = 1};

/* Eight seconds until the norm, of which the network is idle for six. */
TEST(copies_wait_for_messages_of_the_step)
{
    struct steps steps;
    struct state_copies c;

    begin(&steps, 1);
    add(&steps, 0, COMPUTES, 0, 8);
    add(&steps, 0, TALKS, 2, 4);
    add(&steps, 0, NORM, 8, 9);
    place(&c, &steps, &two, (double[]){5, 3}, 2);
    CHECK(is_near(c.node_bytes, 5) && is_near(c.travel_s, 5));
    CHECK(is_near(c.window_s, 8) && is_near(c.idle_s, 6));
    CHECK(is_near(c.wait_s, 0));
    EQUAL_INT(c.span_count, 2);
    CHECK(is_span(&c, 0, 0, 2, false) && is_span(&c, 1, 4, 7, false));
    state_copies_free(&c);

    place(&c, &steps, &two, (double[]){7, 3}, 2); /* one more than fits */
    CHECK(is_near(c.wait_s, 1));
    EQUAL_INT(c.span_count, 3);
    CHECK(is_span(&c, 1, 4, 8, false) && is_span(&c, 2, 8, 9, true));
    state_copies_free(&c);

    place(&c, &steps, &two, (double[]){0, 0}, 2); /* nothing travels */
    CHECK(is_near(c.travel_s, 0) && c.span_count == 0);
    state_copies_free(&c);
    timed_lists_free(&steps.lists);
}

/* Tensor ranks on two nodes talk in the midst of a pass. */
TEST(a_pass_that_talks_for_half_of_its_time_leaves_the_other)
{
    struct steps steps;
    struct state_copies c;

    begin(&steps, 1);
    add(&steps, 0, HALF, 0, 8);
    add(&steps, 0, NORM, 8, 9);
    place(&c, &steps, &two, (double[]){3, 3}, 2);
    CHECK(is_near(c.idle_s, 4) && is_near(c.wait_s, 0));
    CHECK(is_span(&c, 0, 0, 6, false));
    state_copies_free(&c);
    timed_lists_free(&steps.lists);
}

/* Pipe ranks 0 and 1 on one node, 2 and 3 on the other: one message leaves
 * node 0 for rank 2, one stays inside. */
TEST(ranks_of_a_node_share_its_network)
{
    const struct layout layout = {.pipe = 4, .data = 1, .shard = 1,
                                  .context = 1, .expert = 1, .tensor = 1,
                                  .per_node = 2};
    struct steps steps;
    struct state_copies c;

    begin(&steps, 4);
    for (int r = 0; r < 4; r++) add(&steps, r, COMPUTES, 0, 10);
    for (int r = 0; r < 4; r++) add(&steps, r, NORM, 10, 11);
    add(&steps, 2, TALKS, 1, 4);
    steps.lists.lists[2].items[2].sender = 2; /* rank 1 */
    place(&c, &steps, &layout, (double[]){8, 2}, 2);
    CHECK(is_near(c.idle_s, 7) && is_near(c.wait_s, 1));
    EQUAL_INT(c.span_count, 5); /* two and one that waits; two of the other */
    EQUAL_INT(c.spans[0].first, 0);
    EQUAL_INT(c.spans[0].last, 1);
    CHECK(c.spans[3].first == 2 && is_span(&c, 3, 0, 1, false));
    state_copies_free(&c);
    timed_lists_free(&steps.lists);
}

/* Three ranks, of which a node has two: its lists end with the last one. */
TEST(the_last_node_may_have_fewer_ranks)
{
    const struct layout layout = {.pipe = 3, .data = 1, .shard = 1,
                                  .context = 1, .expert = 1, .tensor = 1,
                                  .per_node = 2};
    struct steps steps;
    struct state_copies c;

    begin(&steps, 3);
    for (int r = 0; r < 3; r++) add(&steps, r, COMPUTES, 0, 10);
    for (int r = 0; r < 3; r++) add(&steps, r, NORM, 10, 11);
    add(&steps, 2, TALKS, 1, 4);
    steps.lists.lists[2].items[2].sender = 2; /* rank 1 */
    place(&c, &steps, &layout, (double[]){2, 9}, 2);
    EQUAL_INT(c.span_count, 5); /* two of node 0; two and one that waits */
    CHECK(c.spans[0].first == 0 && c.spans[0].last == 1);
    CHECK(c.spans[2].first == 2 && c.spans[2].last == 2);
    CHECK(is_span(&c, 0, 0, 1, false) && is_span(&c, 1, 4, 5, false));
    CHECK(is_span(&c, 3, 4, 10, false) && is_span(&c, 4, 10, 12, true));
    state_copies_free(&c);
    timed_lists_free(&steps.lists);
}

TEST(replicas_have_the_same_rows)
{
    struct layout l = {.pipe = 2, .data = 2, .shard = 1, .context = 1,
                       .expert = 1, .tensor = 2, .per_node = 4};

    CHECK(state_copies_same(&l, &shape, 0, 2)); /* another data rank */
    CHECK(!state_copies_same(&l, &shape, 0, 1)); /* tensor */
    CHECK(!state_copies_same(&l, &shape, 0, 4)); /* pipe */
    l.zero = 1;
    CHECK(!state_copies_same(&l, &shape, 0, 2));
    l.whole_shards = true; /* hsdp */
    CHECK(state_copies_same(&l, &shape, 0, 2));
    l.parts[1] = true;
    CHECK(!state_copies_same(&l, &shape, 0, 2));
}

TEST(context_ranks_that_divide_experts_have_other_rows)
{
    struct layout l = {.pipe = 1, .data = 1, .shard = 1, .context = 2,
                       .expert = 1, .tensor = 1, .per_node = 1};
    struct shape mixture = shape;

    mixture.experts = 4;
    CHECK(state_copies_same(&l, &mixture, 0, 1));
    l.expert_context = true;
    CHECK(!state_copies_same(&l, &mixture, 0, 1));
    CHECK(state_copies_same(&l, &shape, 0, 1));
}

TEST(a_copy_that_the_update_writes_costs_no_pass)
{
    struct layout l = two;
    struct cost cost = {&machine, &shape, &l};

    CHECK(is_near(state_copies_pass(&cost, 100), 0));
    l.stored.split_masters = true;
    CHECK(is_near(state_copies_pass(&cost, 100), 2));
    l.stored.split_masters = false;
    machine.value[M_HOST_RATE] = 5; /* the memory of a device */
    CHECK(is_near(state_copies_pass(&cost, 100), 20));
    machine.value[M_HOST_RATE] = 50;
}

TEST_MAIN(copies_wait_for_messages_of_the_step,
          a_pass_that_talks_for_half_of_its_time_leaves_the_other,
          ranks_of_a_node_share_its_network,
          the_last_node_may_have_fewer_ranks, replicas_have_the_same_rows,
          context_ranks_that_divide_experts_have_other_rows,
          a_copy_that_the_update_writes_costs_no_pass)
