/* SPDX-License-Identifier: Apache-2.0 */
/* test_simulator.c - mirrors src/planner/simulator.c. */
#include "planner/simulator.h"

#include <math.h>

#include "schedule/build.h"
#include "tests/test.h"

static const struct clock_rules alone = {1, 1, NULL, NULL, NULL, NULL, 0};

static int32_t put(struct timed_list *list, int resource, int ports, double s)
{
    const struct timed item = {.resource = (uint8_t)resource,
                               .ports = (uint8_t)ports,
                               .stage = -1,
                               .microbatch = -1,
                               .number = -1,
                               .seconds = s};
    int32_t at = -1;

    IS_OK(timed_add(list, &item, &at));
    return at;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9 * (1 + b); }

/* A message of 2 s beside a computation of 4 s: both are slower while both
 * run. Computation 1.5 times, messages 2 times: the message takes 4 s, in which
 * 4 / 1.5 s of computation are done; the rest runs alone. */
TEST(contention_is_piecewise)
{
    struct timed_lists lists;
    struct clock_result result;
    const struct clock_rules rules = {1.5, 2, NULL, NULL, NULL, NULL, 0};

    IS_OK(timed_lists_begin(&lists, 1));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 4);
    put(&lists.lists[0], CLOCK_DATA, 2, 2);
    IS_OK(clock_run(&lists, &rules, &result));
    CHECK(near(lists.lists[0].items[1].end, 4));
    CHECK(near(result.end, 4 + (4 - 4 / 1.5)));
    timed_lists_free(&lists);
}

/* Messages over a wire leave the core to others for most of their time: they
 * slow down what is beside them by a fifth of that, and so does it them. */
TEST(messages_between_nodes_need_less_of_a_core)
{
    const struct clock_rules rules = {1.5, 2, NULL, NULL, NULL, NULL, 0.2};

    for (int ports = 1; ports <= 2; ports++) {
        const double sent = ports == 1 ? 4 : 2.4;
        const double done = sent / (ports == 1 ? 1.5 : 1.1);
        struct timed_lists lists;
        struct clock_result result;

        IS_OK(timed_lists_begin(&lists, 1));
        put(&lists.lists[0], CLOCK_COMPUTE, 0, 4);
        put(&lists.lists[0], CLOCK_DATA, ports, 2);
        IS_OK(clock_run(&lists, &rules, &result));
        CHECK(near(lists.lists[0].items[1].end, sent));
        CHECK(near(result.end, sent + (4 - done)));
        timed_lists_free(&lists);
    }
}

/* Two messages over the same ports have half of them each; over other ports
 * all of them. */
TEST(ports_are_shared_fairly)
{
    for (int other = 1; other <= 2; other++) {
        struct timed_lists lists;
        struct clock_result result;

        IS_OK(timed_lists_begin(&lists, 1));
        put(&lists.lists[0], CLOCK_DATA, 2, 3);
        put(&lists.lists[0], CLOCK_PIPE_DOWN, other, 1);
        IS_OK(clock_run(&lists, &alone, &result));
        CHECK(near(result.end, other == 2 ? 4 : 3));
        CHECK(near(lists.lists[0].items[1].end, other == 2 ? 2 : 1));
        timed_lists_free(&lists);
    }
}

/* Eight messages leave one node for another at the same time, of 1 to 8 s each
 * with a port of its own. */
static void eight_messages(struct timed_lists *lists, int ports, double *ends)
{
    int32_t of[16];
    const struct clock_nodes nodes = {of, 2, 1, ports, 1};
    const struct clock_rules rules = {1, 1, NULL, NULL, NULL, &nodes, 0};
    struct clock_result result;

    IS_OK(timed_lists_begin(lists, 16));
    for (int i = 0; i < 16; i++) of[i] = i / 8;
    for (int i = 0; i < 8; i++) {
        put(&lists->lists[8 + i], CLOCK_PIPE_DOWN, 2, i + 1);
        lists->lists[8 + i].items[0].sender = i + 1;
    }
    IS_OK(clock_run(lists, &rules, &result));
    for (int i = 0; i < 8; i++) ends[i] = lists->lists[8 + i].items[0].end;
}

/* With one port they take turns in small parts: the shortest ends at 8 x 1 s,
 * the next one after 7 x 1 s more. The rates of the moment are filled here once
 * more, from below. */
TEST(ranks_of_a_node_share_its_ports)
{
    static const struct { int ports; double ends[8]; } rows[] = {
        {1, {8, 15, 21, 26, 30, 33, 35, 36}},
        {2, {4, 7.5, 10.5, 13, 15, 16.5, 17.5, 18.5}},
        {4, {2, 3.75, 5.25, 6.5, 7.5, 8.5, 9.5, 10.5}},
        {8, {1, 2, 3, 4, 5, 6, 7, 8}}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct timed_lists lists;
        double ends[8], now = 0, done = 0;

        eight_messages(&lists, rows[i].ports, ends);
        for (int k = 0; k < 8; k++) {
            const double water = (double)rows[i].ports / (8 - k);
            const double rate = water < 1 ? water : 1;

            now += (k + 1 - done) / rate;
            done = k + 1;
            CHECK(near(ends[k], now));
            CHECK(near(ends[k], rows[i].ends[k]));
        }
        timed_lists_free(&lists);
    }
}

/* Lists of two ranks each: a list alone has a quarter of a port for each of its
 * ranks of two, if four lists of the node talk at once. */
TEST(a_list_stands_for_all_of_its_ranks)
{
    static const int32_t of[] = {0, 0, 0, 0, 1, 1, 1, 1};
    const struct clock_nodes nodes = {of, 2, 2, 2, 1};
    const struct clock_rules rules = {1, 1, NULL, NULL, NULL, &nodes, 0};
    struct timed_lists lists;
    struct clock_result result;

    IS_OK(timed_lists_begin(&lists, 8));
    for (int i = 0; i < 4; i++) {
        put(&lists.lists[4 + i], CLOCK_PIPE_DOWN, 2, 3);
        lists.lists[4 + i].items[0].sender = i + 1;
    }
    put(&lists.lists[0], CLOCK_PIPE_UP, 2, 3); /* the other way */
    lists.lists[0].items[0].sender = 5;
    IS_OK(clock_run(&lists, &rules, &result));
    CHECK(near(lists.lists[0].items[0].end, 3));
    CHECK(near(lists.lists[7].items[0].end, 12));
    lists.lists[0].items[0].sender = 9;
    FAILS(clock_run(&lists, &rules, &result), ERR_VERIFY, "sent by rank 8");
    timed_lists_free(&lists);
}

TEST(a_slow_rank_is_slow)
{
    struct timed_lists lists;
    struct clock_result result;
    const double slow[] = {1, 3};
    const struct clock_rules rules = {1, 1, slow, NULL, NULL, NULL, 0};

    IS_OK(timed_lists_begin(&lists, 2));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 2);
    put(&lists.lists[1], CLOCK_COMPUTE, 0, 2);
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 1);
    IS_OK(timed_need(&lists.lists[0], 1, 0));
    IS_OK(clock_run(&lists, &rules, &result));
    CHECK(near(result.end, 7));
    EQUAL_INT(result.last_rank, 0);
    timed_lists_free(&lists);
}

/* Half of a pass is messages: they are as slow as the link, the rest as the
 * rank. */
TEST(a_slow_link_slows_messages_inside_a_pass)
{
    struct timed_lists lists;
    struct clock_result result;
    const double slow[] = {2}, slow_link[] = {5}, messages[] = {0.5};
    const struct clock_rules rules = {1, 1, slow, slow_link, messages, NULL, 0};

    IS_OK(timed_lists_begin(&lists, 1));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 2);
    IS_OK(clock_run(&lists, &rules, &result));
    CHECK(near(result.end, 7));
    timed_lists_free(&lists);
}

TEST(who_waits_for_ever_is_named)
{
    struct timed_lists lists;
    struct clock_result result;

    IS_OK(timed_lists_begin(&lists, 2));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 1);
    IS_OK(timed_need(&lists.lists[0], 1, 0));
    put(&lists.lists[1], CLOCK_COMPUTE, 0, 1);
    IS_OK(timed_need(&lists.lists[1], 0, 0));
    FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY, "waits for ever");
    timed_lists_free(&lists);
    IS_OK(timed_lists_begin(&lists, 1));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, 1);
    IS_OK(timed_need(&lists.lists[0], 0, 7));
    FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY, "not there");
    timed_lists_free(&lists);
    IS_OK(timed_lists_begin(&lists, 1));
    put(&lists.lists[0], CLOCK_COMPUTE, 0, -1);
    FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY, "seconds");
    lists.lists[0].items[0].seconds = 1;
    lists.lists[0].items[0].ports = 3;
    FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY, "expected 0 to 2");
    timed_lists_free(&lists);
}

static void count_item(void *context, int32_t rank, const struct timed *item)
{
    (void)rank;
    *(double *)context += item->seconds;
}

/* Two receives, posted in the other order than the messages come: the first one
 * waits for what follows the second. */
TEST(turns_go_before_the_order_of_the_list)
{
    for (int turns = 0; turns <= 2; turns += 2) {
        struct timed_lists lists;
        struct clock_result result;
        struct timed_list *list;
        double path = 0;

        IS_OK(timed_lists_begin(&lists, 1));
        list = &lists.lists[0];
        put(list, CLOCK_PIPE_UP, 1, 2);
        IS_OK(timed_need(list, 0, 2));
        put(list, CLOCK_PIPE_UP, 1, 3);
        put(list, CLOCK_COMPUTE, 0, 4);
        IS_OK(timed_need(list, 0, 1));
        list->turns = turns;
        list->items[0].turn = turns;
        list->items[1].turn = turns > 0;
        if (turns == 0) {
            FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY,
                  "waits for ever");
        } else {
            IS_OK(clock_run(&lists, &alone, &result));
            CHECK(near(result.end, 9));
            clock_critical(&lists, &result, count_item, &path);
            CHECK(near(path, 9));
            list->items[0].turn = 1;
            FAILS(clock_run(&lists, &alone, &result), ERR_VERIFY, "turn 1 of");
        }
        timed_lists_free(&lists);
    }
}

/* Random lists whose needs point back: the clock always ends; nothing begins
 * before what it needs, or before its resource is free; no resource is faster
 * than alone; two runs give the same bits. */
static uint64_t draw_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void random_lists(struct timed_lists *lists, uint64_t seed)
{
    const int ranks = 1 + (int)(seed % 5);
    uint64_t state = seed * 0x9e3779b97f4a7c15u;
    int made[5] = {0};

    IS_OK(timed_lists_begin(lists, ranks));
    for (int i = 0; i < 60; i++) {
        const int rank = (int)(draw_next(&state) % (uint64_t)ranks);
        const int needs = (int)(draw_next(&state) % 4);
        const int resource = (int)(draw_next(&state) % CLOCK_RESOURCES);
        const int ports = (int)(draw_next(&state) % 3);

        put(&lists->lists[rank], resource, ports,
            (double)(draw_next(&state) % 16));
        for (int n = 0; n < needs; n++) {
            const int to = (int)(draw_next(&state) % (uint64_t)ranks);
            const int from = (int)(draw_next(&state) % 60);

            if (made[to] > 0)
                IS_OK(timed_need(&lists->lists[rank], to, from % made[to]));
        }
        made[rank]++;
    }
}

static void check_order(const struct timed_lists *lists)
{
    for (int32_t r = 0; r < lists->ranks; r++) {
        const struct timed_list *list = &lists->lists[r];
        double resource_end[CLOCK_RESOURCES] = {0};

        for (int32_t i = 0; i < list->count; i++) {
            const struct timed *t = &list->items[i];

            CHECK(t->begin >= resource_end[t->resource] - 1e-9);
            CHECK(t->end >= t->begin + t->seconds - 1e-9);
            resource_end[t->resource] = t->end;
            for (int32_t n = 0; n < t->needs; n++) {
                const struct timed_need need = list->needs[t->first_need + n];

                CHECK(t->begin >=
                      lists->lists[need.rank].items[need.index].end - 1e-9);
            }
        }
    }
}

TEST(random_lists_keep_the_rules)
{
    const struct clock_rules rules = {1.1, 1.3, NULL, NULL, NULL, NULL, 0};

    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct timed_lists lists;
        struct clock_result first, second;

        random_lists(&lists, seed);
        IS_OK(clock_run(&lists, &rules, &first));
        check_order(&lists);
        IS_OK(clock_run(&lists, &rules, &second));
        EQUAL_BYTES(&first.end, &second.end, sizeof first.end);
        timed_lists_free(&lists);
    }
}

/* The same on nodes with two lists each and few ports: messages come from any
 * list. Nothing is faster than alone, and the whole work one after the other,
 * each message beside as many as there are ranks, is the most. */
TEST(random_lists_on_shared_nodes_keep_the_rules)
{
    static const int32_t of[] = {0, 0, 1, 1, 2};

    for (uint64_t seed = 103001; seed <= 103400; seed++) {
        const struct clock_nodes nodes = {of, 3, 1 + (int)(seed % 3),
                                          (double)(1 + seed % 4), 1};
        const struct clock_rules rules = {1.1, 1.3, NULL, NULL, NULL, &nodes,
                                          0};
        struct timed_lists lists;
        struct clock_result first, second;
        int64_t sent = 0;
        double most = 0;

        random_lists(&lists, seed);
        for (int32_t r = 0; r < lists.ranks; r++)
            for (int32_t i = 0; i < lists.lists[r].count; i++) {
                struct timed *t = &lists.lists[r].items[i];

                t->sender = (int32_t)((seed + (uint64_t)i) %
                                      (uint64_t)(lists.ranks + 1));
                if (t->resource == CLOCK_COMPUTE) t->ports = 0;
                sent += t->ports == 2;
                most += 1.3 * 5 * CLOCK_RESOURCES * t->seconds;
            }
        IS_OK(clock_run(&lists, &rules, &first));
        check_order(&lists);
        CHECK(first.end <= most * (1 + 1e-9));
        /* Messages inside a node begin and end without the others. */
        CHECK(first.divided <= 2 * sent);
        IS_OK(clock_run(&lists, &rules, &second));
        EQUAL_BYTES(&first.end, &second.end, sizeof first.end);
        timed_lists_free(&lists);
    }
}

/* Seconds of an item with its resource and its rank's slowness, beside
 * nothing. */
static double alone_s(const struct timed *t, int32_t rank,
                      const struct clock_rules *rules)
{
    const double *slow = t->resource == CLOCK_COMPUTE ? rules->slow
                                                  : rules->slow_link;

    return t->seconds * slow[rank];
}

/* When the needs of an item are done. */
static double needs_end(const struct timed_list *list, const struct timed *t,
                        double ends[][60])
{
    double last = 0;

    for (int32_t n = 0; n < t->needs; n++) {
        const struct timed_need need = list->needs[t->first_need + n];

        if (ends[need.rank][need.index] > last)
            last = ends[need.rank][need.index];
    }
    return last;
}

/* Ends if nothing ever shared anything, the rules stated once more: sweeps of
 * [ranks][60] until none changes. The last of them is the critical path. */
static double path_of(const struct timed_lists *lists,
                      const struct clock_rules *rules, double ends[][60])
{
    double path = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int32_t r = 0; r < lists->ranks; r++) {
            const struct timed_list *list = &lists->lists[r];
            double resource_end[CLOCK_RESOURCES] = {0};

            for (int32_t i = 0; i < list->count; i++) {
                const struct timed *t = &list->items[i];
                const double resource = resource_end[t->resource];
                const double needs = needs_end(list, t, ends);
                const double end = (resource > needs ? resource : needs) +
                                   alone_s(t, r, rules);

                moved = moved || end > ends[r][i];
                ends[r][i] = resource_end[t->resource] = end;
                if (end > path) path = end;
            }
        }
    }
    return path;
}

/* The most that a resource or a port of a rank has to do, and all that is to be
 * done. */
struct work { double busiest, all; };

static struct work work_of(const struct timed_lists *lists,
                           const struct clock_rules *rules)
{
    struct work w = {0, 0};

    for (int32_t r = 0; r < lists->ranks; r++) {
        double resource[CLOCK_RESOURCES] = {0}, port[3] = {0};

        for (int32_t i = 0; i < lists->lists[r].count; i++) {
            const struct timed *t = &lists->lists[r].items[i];
            const double s = alone_s(t, r, rules);

            w.all += s;
            resource[t->resource] += s;
            if (t->ports > 0 && t->resource != CLOCK_COMPUTE)
                port[t->ports] += s;
        }
        for (int i = 0; i < CLOCK_RESOURCES; i++)
            if (resource[i] > w.busiest) w.busiest = resource[i];
        for (int i = 1; i < 3; i++)
            if (port[i] > w.busiest) w.busiest = port[i];
    }
    return w;
}

struct drawn_rules { double slow[5], slow_link[5]; struct clock_rules rules; };

static void random_rules(struct drawn_rules *d, uint64_t seed)
{
    uint64_t state = seed * 0xd1342543de82ef95u;

    for (int i = 0; i < 5; i++) {
        d->slow[i] = 1 + (double)(draw_next(&state) % 5) / 4;
        d->slow_link[i] = 1 + (double)(draw_next(&state) % 9) / 4;
    }
    d->rules = (struct clock_rules){
        1 + (double)(draw_next(&state) % 9) / 8,
        1 + (double)(draw_next(&state) % 9) / 4, d->slow, d->slow_link,
        NULL, NULL, (double)(draw_next(&state) % 3) / 2};
}

static double last_end(const struct timed_lists *lists)
{
    double last = 0;

    for (int32_t r = 0; r < lists->ranks; r++)
        for (int32_t i = 0; i < lists->lists[r].count; i++)
            if (lists->lists[r].items[i].end > last)
                last = lists->lists[r].items[i].end;
    return last;
}

/* Random lists on random machines: the order is kept; no step is shorter than
 * its critical path or than its busiest resource or port, or longer than all of
 * its work one after the other; without anything shared it is the critical
 * path. */
TEST(random_machines_keep_the_bounds)
{
    for (uint64_t seed = 30001; seed <= 31000; seed++) {
        double ends[5][60] = {{0}};
        struct timed_lists lists;
        struct clock_result result;
        struct drawn_rules d;

        random_lists(&lists, seed);
        random_rules(&d, seed);
        const struct work work = work_of(&lists, &d.rules);
        const double path = path_of(&lists, &d.rules, ends);
        const double most = d.rules.compute_beside > d.rules.comm_beside
                                ? d.rules.compute_beside
                                : d.rules.comm_beside;

        IS_OK(clock_run(&lists, &d.rules, &result));
        check_order(&lists);
        CHECK(near(result.end, last_end(&lists)));
        CHECK(result.end >= path - 1e-9 * path);
        CHECK(result.end >= work.busiest - 1e-9 * work.busiest);
        CHECK(result.end <= most * work.all * (1 + 1e-9));
        for (int32_t r = 0; r < lists.ranks; r++)
            for (int32_t i = 0; i < lists.lists[r].count; i++) {
                CHECK(lists.lists[r].items[i].end >=
                      ends[r][i] - 1e-9 * path);
                lists.lists[r].items[i].ports = 0;
            }
        IS_OK(clock_run(&lists, &d.rules, &result));
        CHECK(near(result.end, path));
        timed_lists_free(&lists);
    }
}

TEST_MAIN(contention_is_piecewise,
          messages_between_nodes_need_less_of_a_core, ports_are_shared_fairly,
          ranks_of_a_node_share_its_ports, a_list_stands_for_all_of_its_ranks,
          a_slow_rank_is_slow,
          a_slow_link_slows_messages_inside_a_pass, who_waits_for_ever_is_named,
          turns_go_before_the_order_of_the_list,
          random_lists_keep_the_rules,
          random_lists_on_shared_nodes_keep_the_rules,
          random_machines_keep_the_bounds)
