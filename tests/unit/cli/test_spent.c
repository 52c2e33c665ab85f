/* SPDX-License-Identifier: Apache-2.0 */
/* test_spent.c - mirrors src/cli/spent.c. */
#include <string.h>
#include "cli/spent.h"
#include "tests/test.h"

static const char *const journal[] = {
    "{\"event\": \"start\", \"time\": 1000}",
    "{\"event\": \"incident\", \"time\": 1010}",
    "{\"event\": \"recovered\", \"time\": 1015, \"lost_ms\": 5000}",
    "{\"event\": \"end\", \"time\": 1020}",
    "{\"event\": \"start\", \"time\": 1050}",
    "{\"event\": \"end\", \"time\": 1060}"};

static void read_journal(struct run_report *report, int count,
                         const struct json **lines)
{
    arena_init(&report->arena, "test", 0);
    for (int i = 0; i < count; i++)
        IS_OK(json_read(&lines[i], &report->arena, journal[i],
                        strlen(journal[i]), "journal"));
    report->lines.items = lines;
    report->lines.count = count;
}

static struct metrics_row step(double ms, double data_ms, double time_s)
{
    struct metrics_row row = metrics_blank(METRICS_STEP);

    row.step_ms = ms;
    row.data_ms = data_ms;
    row.time_s = time_s;
    return row;
}

TEST(parts_add_up_to_all)
{
    const struct json *lines[6];
    struct metrics_row rows[4] = {step(9000, 9000, 900), /* of before */
                                  step(3000, 0, 1003), step(500, 2000, 1017),
                                  metrics_blank(METRICS_VALIDATION)};
    const struct metrics_table table = {rows, 4};
    struct run_report report = {.state = RUN_ENDED};
    struct spent s;

    rows[3].val_ms = 1500;
    rows[3].time_s = 1055;
    read_journal(&report, 6, lines);
    spent_find(&s, &report, &table, 5000);
    CHECK(s.all == 60 && s.steps == 1.5 && s.data == 2);
    CHECK(s.validations == 1.5 && s.recoveries == 5 && s.away == 30);
    CHECK(s.rest == 20);
    arena_free(&report.arena);
}

TEST(a_run_that_goes_on_lasts_until_now)
{
    const struct json *lines[6];
    const struct metrics_table table = {NULL, 0};
    struct run_report report = {.state = RUN_RUNS};
    struct spent s;

    spent_find(&s, &report, &table, 1100);
    CHECK(s.all == 0);
    read_journal(&report, 1, lines);
    spent_find(&s, &report, &table, 1100);
    CHECK(s.all == 100 && s.rest == 100);
    arena_free(&report.arena);
}

TEST_MAIN(parts_add_up_to_all, a_run_that_goes_on_lasts_until_now)
