/* SPDX-License-Identifier: Apache-2.0 */
/* test_simulate.c - mirrors src/plan/simulate.c. */
#include "plan/simulate.h"

#include <math.h>

#include "schedule/build.h"
#include "schedule/lower.h"
#include "tests/test.h"

/* Builds and plays; the request's times and memory are those of the clock. */
static void play(const struct schedule_request *request, int64_t pair_ns,
                 struct schedule *schedule, struct simulation *found)
{
    const struct simulate_costs costs = {
        {request->forward_ns, request->backward_input_ns,
         request->backward_weight_ns},
        pair_ns, request->transfer_ns, request->weight_memory};

    IS_OK(schedule_make(schedule, request));
    IS_OK(simulate(found, schedule, &costs));
}

static double most(const struct simulation *found)
{
    double peak = 0;

    for (int i = 0; i < found->ranks; i++)
        if (found->peaks[i] > peak) peak = found->peaks[i];
    return peak;
}

static bool near(double a, double b, double by) { return fabs(a - b) <= by; }

/* Qi et al. 2023, arXiv:2401.10241: times in ms from table 9 (A100, s = 1024),
 * bubble rates from table 5. Width and heads give the memory of a layer,
 * M_B = 34 h + 5 a s and M_W = 32 h (section 2); zb-1p and zb-2p may hold p
 * and 2 p micro-batches. Three layers a stage for 1F1B-I. */
struct published {
    int width, heads, ranks, microbatches;
    double forward, backward_input, backward_weight, transfer;
    double rate_1f1b, rate_interleaved, rate[4];
};
static const struct published published[] = {
    {2304, 24, 8, 24, 18.522, 18.086, 9.337, 0.601,
     0.2431, 0.1055, {0.1585, 0.1083, 0.1585, 0.0433}},
    {2304, 24, 8, 32, 18.513, 18.086, 9.331, 0.626,
     0.1985, 0.0818, {0.1242, 0.0837, 0.1242, 0.0039}},
    {2304, 24, 8, 64, 18.546, 18.097, 9.321, 0.762,
     0.1240, 0.0443, {0.0674, 0.0444, 0.0674, 0.0026}},
    {5120, 40, 16, 48, 11.347, 11.248, 8.132, 0.377,
     0.2552, 0.1104, {0.1397, 0.0672, 0.1397, 0.0066}},
    {5120, 40, 16, 64, 11.307, 11.254, 8.101, 0.379,
     0.2082, 0.0852, {0.1088, 0.0516, 0.1088, 0.0054}},
    {5120, 40, 16, 128, 11.325, 11.308, 8.109, 0.378,
     0.1251, 0.0445, {0.0576, 0.0266, 0.0576, 0.0028}},
};

static struct schedule_request request_of(const struct published *row,
                                          const char *name)
{
    struct schedule_request r = schedule_request_default(
        name, row->ranks, row->microbatches);

    r.forward_ns = llround(row->forward * 1e6);
    r.backward_input_ns = llround(row->backward_input * 1e6);
    r.backward_weight_ns = llround(row->backward_weight * 1e6);
    r.transfer_ns = llround(row->transfer * 1e6);
    r.weight_memory = 32.0 * row->width /
                      (34.0 * row->width + 5.0 * row->heads * 1024);
    return r;
}

TEST(published_bubble_rates_come_out_to_four_decimals)
{
    static const char *const names[] = {"zb-h1", "zb-h2", "zb-1p", "zb-2p"};

    for (int i = 0; i < ROWS(published); i++)
        for (int n = -1; n < ROWS(names); n++) {
            const struct published *row = &published[i];
            const struct schedule_request request =
                request_of(row, n < 0 ? "1f1b" : names[n]);
            struct schedule schedule = {0};
            struct simulation found = {0};

            play(&request, 0, &schedule, &found);
            CHECK(near(found.bubble_rate,
                       n < 0 ? row->rate_1f1b : row->rate[n], 0.00005));
            if (n == 2) CHECK(most(&found) <= row->ranks + 1e-9);
            if (n == 3) CHECK(most(&found) <= 2 * row->ranks + 1e-9);
            simulation_free(&found);
            schedule_free(&schedule);
        }
}

TEST(published_interleaved_rates_follow_their_closed_form)
{
    for (int i = 0; i < ROWS(published); i++) {
        const struct schedule_request r = request_of(&published[i],
                                                     "interleaved");
        const struct simulate_costs costs = {
            {r.forward_ns, r.backward_input_ns, r.backward_weight_ns},
            0, r.transfer_ns, 0.5};

        CHECK(near(interleaved_published_rate(&costs, r.ranks, 3,
                                              r.microbatches),
                   published[i].rate_interleaved, 0.00005));
    }
}

/* Idle time with transfers, exact to the nanosecond (same source): p divides
 * m; S = F + B + W, T of a transfer.
 *   1f1b   (p - 1) S + (2 (p - 1) (m / p + 1) - 2) T
 *   zb-h1  (p - 1) (F + B - W) + 4 (p - 1) T
 *   zb-h2  (p - 1) (F + B - 2 W) + 2 (p - 1) T */
TEST(idle_time_with_transfers_is_exact)
{
    for (int i = 0; i < ROWS(published); i++) {
        static const char *const names[] = {"1f1b", "zb-h1", "zb-h2"};
        const struct schedule_request r = request_of(&published[i], "1f1b");
        const int64_t p = r.ranks, m = r.microbatches, t = r.transfer_ns;
        const int64_t fb = r.forward_ns + r.backward_input_ns,
                      w = r.backward_weight_ns;
        const int64_t idle[] = {
            (p - 1) * (fb + w) + (2 * (p - 1) * (m / p + 1) - 2) * t,
            (p - 1) * (fb - w) + 4 * (p - 1) * t,
            (p - 1) * (fb - 2 * w) + 2 * (p - 1) * t};

        for (int n = 0; n < 3; n++) {
            const struct schedule_request request = request_of(&published[i],
                                                               names[n]);
            struct schedule schedule = {0};
            struct simulation found = {0};

            play(&request, 0, &schedule, &found);
            EQUAL_INT(found.longest_ns, m * (fb + w) + idle[n]);
            simulation_free(&found);
            schedule_free(&schedule);
        }
    }
}

/* F = B = W = 2, no transfers. beyond: step time beyond m (F + B + W); idle:
 * the same of the longest rank; held: micro-batches between F and W, twice.
 * With one piece of backward idle is (p - 1) 3, interleaved over v chunks a
 * v-th of it (Narayanan et al. 2021); zb-h1 and zb-h2 as in Qi et al. 2023,
 * section 2; DualPipe (p / 2 - 1) (F&B + B - 3 W) and p + 1 held
 * (DeepSeek-AI 2024, table 2). */
TEST(idle_time_and_memory_match_theory)
{
    static const struct {
        const char *name;
        int ranks, microbatches, chunks, beyond, idle, held;
    } rows[] = {
        {"gpipe", 4, 8, 0, 18, 18, 16},
        {"gpipe-early-send", 4, 8, 0, 12, 12, 16},
        {"1f1b", 4, 8, 0, 18, 18, 8},
        {"1f1b", 8, 32, 0, 42, 42, 16},
        {"1f1b-early-send", 4, 8, 0, 12, 12, 8},
        {"1f1b-early-send", 16, 48, 0, 60, 60, 32},
        {"zb-h1", 4, 8, 0, 6, 6, 8},
        {"zb-h1", 8, 16, 0, 14, 14, 16},
        {"zb-h2", 4, 16, 0, 6, 0, 14},
        {"zb-h2", 8, 24, 0, 14, 0, 30},
        {"zb-1p", 8, 24, 0, 14, 14, 16},
        {"zb-2p", 8, 24, 0, 14, 0, 32},
        {"interleaved", 4, 8, 2, 9, 9, 11},
        {"interleaved", 4, 8, 3, 6, 6, 10},
        {"breadth-first", 4, 8, 2, 9, 9, 16},
        {"dualpipe", 4, 8, 0, 4, 4, 10},
        {"dualpipe", 8, 16, 0, 12, 12, 18},
        {"dualpipe", 16, 64, 0, 28, 28, 34},
        {"dualpipev", 4, 8, 0, 6, 6, 9},
        {"dualpipev", 8, 32, 0, 14, 14, 17},
        {"zb-v", 4, 16, 0, 3, 0, 8},
        {"zb-v", 8, 32, 0, 7, 1, 16},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct schedule_request r = schedule_request_default(
            rows[i].name, rows[i].ranks, rows[i].microbatches);
        struct schedule schedule = {0};
        struct simulation found = {0};
        const int64_t ideal = 6 * rows[i].microbatches;

        r.chunks = rows[i].chunks;
        r.forward_ns = r.backward_input_ns = r.backward_weight_ns = 600;
        r.weight_memory = 1;
        play(&r, 0, &schedule, &found);
        EQUAL_INT(found.end_ns, 300 * (ideal + rows[i].beyond));
        EQUAL_INT(found.longest_ns, 300 * (ideal + rows[i].idle));
        CHECK(near(2 * most(&found), rows[i].held, 1e-9));
        simulation_free(&found);
        schedule_free(&schedule);
    }
}

/* With the default memory of W, in what 1f1b holds: no bubble. In half and a
 * third of it: at most half and two thirds of 1f1b's idle time, and half an
 * F, B and W (Qi et al. 2024, arXiv:2405.15362). */
TEST(schedules_of_a_v_trade_memory_for_time)
{
    static const struct { const char *name; int thirds, limit_of; } rows[] =
        {{"zb-v", 0, 1}, {"v-half", 3, 2}, {"v-min", 4, 3}};

    for (int i = 0; i < ROWS(rows); i++)
        for (int ranks = 6; ranks <= 24; ranks += 2) {
            const int m = 4 * ranks;
            struct schedule_request r = schedule_request_default(
                rows[i].name, ranks, m);
            struct schedule schedule = {0};
            struct simulation found = {0};
            const int limit = rows[i].limit_of == 1 ? ranks
                              : (ranks + rows[i].limit_of - 1) /
                                        rows[i].limit_of + 1;
            double idle;

            r.forward_ns = r.backward_input_ns = r.backward_weight_ns = 600;
            play(&r, 0, &schedule, &found);
            CHECK(most(&found) <= limit + 1e-9);
            idle = (double)found.longest_ns / 600 - 3 * m;
            if (rows[i].thirds == 0) CHECK(idle == 0);
            else CHECK(idle <= 3 * (ranks - 1) * rows[i].thirds / 6.0 + 1.5);
            simulation_free(&found);
            schedule_free(&schedule);
        }
}

/* (p / 2 - 1) (F&B + B - 3 W) is the idle time in the middle of the pipeline
 * where F = W and B (with its W) = 2 W; elsewhere it is a bound: 57 and not
 * 60. F beside B takes `pair`; the number of micro-batches changes nothing. */
TEST(dualpipe_overlaps_and_idles_as_stated)
{
    static const struct {
        int64_t f, b, w, pair, idle;
    } rows[] = {{10, 10, 10, 30, 60}, {10, 10, 10, 27, 51},
                {10, 11, 9, 27, 57}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct schedule_request r = schedule_request_default("dualpipe", 8,
                                                             20);

        r.forward_ns = rows[i].f;
        r.backward_input_ns = rows[i].b;
        r.backward_weight_ns = rows[i].w;
        for (int m = 20; m <= 60; m += 20) {
            struct schedule schedule = {0};
            struct simulation found = {0};
            const struct timeline_span *spans;
            int64_t busy = 0;

            r.microbatches = m;
            play(&r, rows[i].pair, &schedule, &found);
            spans = found.timeline.spans;
            for (int s = 0; s < found.timeline.count; s++) {
                if (spans[s].rank != 3) continue; /* in the middle */
                busy += spans[s].end_ns - spans[s].begin_ns;
            }
            CHECK(near(most(&found), 9, 1e-9));
            EQUAL_INT(found.end_ns - busy, rows[i].idle);
            simulation_free(&found);
            schedule_free(&schedule);
        }
    }
}

/* Small m: Qi et al. 2023, table 12: 1f1b (m + p - 1) S, zero bubble
 * (m + p - 1) (F + B) + W. */
TEST(few_microbatches_take_the_stated_time)
{
    for (int m = 1; m <= 8; m++) {
        struct schedule_request r = schedule_request_default("1f1b", 8, m);
        struct schedule schedule = {0};
        struct simulation found = {0};

        r.forward_ns = 500;
        r.backward_input_ns = 500;
        r.backward_weight_ns = 300;
        play(&r, 0, &schedule, &found);
        EQUAL_INT(found.end_ns, (m + 7) * 1300);
        simulation_free(&found);
        schedule_free(&schedule);
        r.name = "zb-2p";
        play(&r, 0, &schedule, &found);
        EQUAL_INT(found.end_ns, (m + 7) * 1000 + 300);
        simulation_free(&found);
        schedule_free(&schedule);
    }
}

/* Posted transfers block nobody, so lowering changes no time as long as the
 * receives are posted early enough; here they are one unit ahead. */
TEST(lowering_does_not_lengthen_a_step)
{
    for (int i = 0; i < schedule_row_count; i++) {
        struct schedule_request r = schedule_request_default(
            schedule_rows[i].name, 4, 12);
        const struct simulate_costs costs = {{500, 500, 300}, 0, 20, 0.5};
        struct schedule schedule = {0};
        struct simulation plain = {0}, lowered = {0};

        IS_OK(schedule_make(&schedule, &r));
        IS_OK(simulate(&plain, &schedule, &costs));
        IS_OK(schedule_lower(&schedule));
        IS_OK(simulate(&lowered, &schedule, &costs));
        EQUAL_INT(lowered.timeline.count, plain.timeline.count);
        EQUAL_INT(lowered.end_ns, plain.end_ns);
        simulation_free(&plain);
        simulation_free(&lowered);
        schedule_free(&schedule);
    }
}

TEST(a_schedule_that_stops_is_no_simulation)
{
    const struct simulate_costs costs = {{1, 1, 1}, 0, 0, 0.5};
    const struct simulate_costs ages = {
        {(int64_t)1e15, (int64_t)1e15, (int64_t)1e15}, 0, 0, 0.5};
    struct schedule schedule = {0};
    struct simulation found = {0};

    IS_OK(schedule_build(&schedule, "1f1b", 4, 2000));
    FAILS(simulate(&found, &schedule, &ages), ERR_CONFIG, "292 years");
    schedule.lists[2].count--;
    FAILS(simulate(&found, &schedule, &costs), ERR_CONFIG, "is missing");
    CHECK(found.peaks == NULL);
    simulation_free(&found);
    schedule_free(&schedule);
}

TEST_MAIN(published_bubble_rates_come_out_to_four_decimals,
          published_interleaved_rates_follow_their_closed_form,
          idle_time_with_transfers_is_exact,
          idle_time_and_memory_match_theory,
          schedules_of_a_v_trade_memory_for_time,
          dualpipe_overlaps_and_idles_as_stated,
          few_microbatches_take_the_stated_time,
          lowering_does_not_lengthen_a_step,
          a_schedule_that_stops_is_no_simulation)
