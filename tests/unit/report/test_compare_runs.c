/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare_runs.c - mirrors src/report/compare_runs.c and the pictures of
 * compare_draw.c. */
#include <math.h>
#include "base/json.h"
#include "tests/test.h"
#include "report/compare_runs.h"

struct fixture {
    char directory[PATH_BYTES], a[PATH_BYTES], b[PATH_BYTES];
    struct arena arena;
    struct runs_compared runs;
};

static void begin(struct fixture *f)
{
    test_directory(f->directory);
    IS_OK(path_join(f->a, PATH_BYTES, f->directory, "a"));
    IS_OK(path_join(f->b, PATH_BYTES, f->directory, "b"));
    IS_OK(directory_make(f->a));
    IS_OK(directory_make(f->b));
    arena_init(&f->arena, "test", 0);
}

static void end(struct fixture *f)
{
    arena_free(&f->arena);
    IS_OK(directory_remove(f->directory));
}

/* The flaws that a test puts into a run. */
enum flaw { NONE, LOSS, CLOCK, EXTRA, EXTRA_NAME };

static void write_run(const char *run, int steps, enum flaw flaw,
                      const char *options)
{
    char path[PATH_BYTES];
    struct metrics_writer writer = {0};
    struct metrics_extra extra = {"val.code.loss", 2};

    IS_OK(path_join(path, PATH_BYTES, run, "metrics.jsonl"));
    IS_OK(metrics_open(&writer, path, -1));
    for (int step = 1; step <= steps; step++) {
        struct metrics_row row = metrics_blank(METRICS_STEP);

        row.step = step;
        row.loss = 8.0 / step;
        row.peak_fraction = (double)NAN;
        row.time_s = flaw == CLOCK ? 99 : 1;
        if (flaw == LOSS && step == 3) row.loss = nextafter(row.loss, 9);
        IS_OK(metrics_append(&writer, &row));
    }
    struct metrics_row row = metrics_blank(METRICS_VALIDATION);

    row.step = steps;
    row.val_loss = 1;
    if (flaw == EXTRA) extra.value = 3;
    if (flaw == EXTRA_NAME) extra.name = "val.other.loss";
    row.extras = &extra;
    row.extra_count = 1;
    IS_OK(metrics_append(&writer, &row));
    metrics_close(&writer);
    IS_OK(path_join(path, PATH_BYTES, run, "config.yaml"));
    IS_OK(file_write_atomic(path, options, strlen(options)));
}

static void compare(struct fixture *f)
{
    IS_OK(runs_compare(&f->runs, &f->arena, f->a, f->b));
}

static const char yaml[] = "version: 1\ntrain: {steps: 5}\n";

TEST(equal_runs_are_equal_whatever_the_clock_said)
{
    struct fixture f;
    struct text words = {0};

    begin(&f);
    write_run(f.a, 5, NONE, yaml);
    write_run(f.b, 5, CLOCK, yaml);
    compare(&f);
    CHECK(!runs_differ(&f.runs));
    EQUAL_INT(f.runs.option_count, 0);
    IS_OK(runs_describe(&f.runs, &words));
    EQUAL_TEXT(words.bytes,
               "options: equal\nmetrics: equal: 6 lines, every number\n");
    text_free(&words);
    end(&f);
}

TEST(the_first_line_and_its_metric_are_named)
{
    struct fixture f;

    begin(&f);
    write_run(f.a, 5, NONE, yaml);
    write_run(f.b, 5, LOSS, yaml);
    compare(&f);
    CHECK(runs_differ(&f.runs));
    EQUAL_INT(f.runs.first, 3);
    EQUAL_INT(f.runs.step, 3);
    EQUAL_INT(f.runs.differing, 1);
    EQUAL_TEXT(f.runs.metric, "loss");
    CHECK(f.runs.value_b == nextafter(f.runs.value_a, 9));
    CHECK(f.runs.loss_difference == f.runs.value_b - f.runs.value_a);
    end(&f);
}

TEST(metrics_of_a_configuration_count)
{
    struct fixture f;

    begin(&f);
    write_run(f.a, 2, NONE, yaml);
    write_run(f.b, 2, EXTRA, yaml);
    compare(&f);
    EQUAL_TEXT(f.runs.metric, "val.code.loss");
    CHECK(f.runs.value_a == 2 && f.runs.value_b == 3);
    write_run(f.b, 2, EXTRA_NAME, yaml);
    compare(&f);
    EQUAL_INT(f.runs.first, 3);
    CHECK(isnan(f.runs.value_b));
    end(&f);
}

TEST(a_line_that_one_run_lacks_is_a_difference)
{
    struct fixture f;
    struct text words = {0};
    char path[PATH_BYTES];
    struct text bytes = {0};

    begin(&f);
    write_run(f.a, 3, NONE, yaml);
    write_run(f.b, 3, NONE, yaml);
    IS_OK(path_join(path, PATH_BYTES, f.b, "metrics.jsonl"));
    IS_OK(file_read(path, 1 << 20, &bytes));
    IS_OK(file_write_atomic(path, bytes.bytes,
                            (size_t)(strstr(bytes.bytes, "{\"kind\": \"val") -
                                     bytes.bytes)));
    compare(&f);
    EQUAL_INT(f.runs.first, 4);
    EQUAL_INT(f.runs.differing, 0);
    EQUAL_TEXT(f.runs.metric, "");
    IS_OK(runs_describe(&f.runs, &words));
    CHECK(strstr(words.bytes, "is only in the first") != NULL);
    text_free(&words);
    text_free(&bytes);
    end(&f);
}

TEST(options_are_told_and_make_no_difference)
{
    struct fixture f;
    struct json_writer w = {0};

    begin(&f);
    write_run(f.a, 5, NONE, "version: 1\ntrain: {steps: 5}\n"
                            "run: {dir: here}\n");
    write_run(f.b, 5, NONE, "version: 1\ntrain: {steps: 6, threads: 2}\n"
                            "run: {dir: there}\n");
    compare(&f);
    CHECK(!runs_differ(&f.runs));
    EQUAL_INT(f.runs.option_count, 2);
    EQUAL_TEXT(f.runs.options[0].name, "train.steps");
    EQUAL_TEXT(f.runs.options[0].a, "5");
    EQUAL_TEXT(f.runs.options[1].b, "2");
    json_write_begin(&w, 0);
    json_write_object(&w);
    runs_json(&f.runs, &w);
    json_write_object_end(&w);
    IS_OK(json_write_end(&w));
    CHECK(strstr(w.out.bytes, "{\"name\": \"train.threads\", \"a\": \"0\", "
                              "\"b\": \"2\"}") != NULL);
    json_writer_free(&w);
    end(&f);
}

TEST(a_configuration_that_cannot_be_read_is_passed_over)
{
    struct fixture f;

    begin(&f);
    write_run(f.a, 5, NONE, "version: 1\nof_another_age: {x: 1}\n");
    write_run(f.b, 5, LOSS, yaml);
    compare(&f);
    CHECK(!f.runs.has_options);
    CHECK(runs_differ(&f.runs));
    EQUAL_TEXT(status_message(), "");
    end(&f);
}

TEST(pictures_have_both_curves)
{
    static const char *const names[] = {"x.svg", "x.html"};
    struct fixture f;

    begin(&f);
    write_run(f.a, 5, NONE, yaml);
    write_run(f.b, 5, LOSS, yaml);
    compare(&f);
    for (int i = 0; i < ROWS(names); i++) {
        char path[PATH_BYTES];
        struct text bytes = {0};
        int lines = 0;

        IS_OK(path_join(path, PATH_BYTES, f.directory, names[i]));
        IS_OK(runs_draw(&f.runs, "one<", "two", path));
        IS_OK(file_read(path, 1 << 20, &bytes));
        for (const char *at = bytes.bytes;
             (at = strstr(at, "<polyline")) != NULL; at++)
            lines++;
        EQUAL_INT(lines, 5); /* two, two, and their difference */
        CHECK(strstr(bytes.bytes, "one&lt;") != NULL);
        CHECK(strstr(bytes.bytes, "<script") == NULL);
        text_free(&bytes);
    }
    FAILS(runs_draw(&f.runs, "a", "b", "x.png"), ERR_USAGE, "neither .svg");
    end(&f);
}

TEST_MAIN(equal_runs_are_equal_whatever_the_clock_said,
          the_first_line_and_its_metric_are_named,
          metrics_of_a_configuration_count,
          a_line_that_one_run_lacks_is_a_difference,
          options_are_told_and_make_no_difference,
          a_configuration_that_cannot_be_read_is_passed_over,
          pictures_have_both_curves)
