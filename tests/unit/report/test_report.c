/* SPDX-License-Identifier: Apache-2.0 */
/* test_report.c - mirrors src/report/report.c. */
#include "tests/test.h"

#include <math.h>
#include "observe/metrics.h"
#include "report/report.h"

/* The share that rows say; NAN: no other node keeps any. */
static double idle_share = (double)NAN;

struct fixture {
    char directory[PATH_BYTES], metrics[PATH_BYTES], report[PATH_BYTES];
    struct text page;
};

static void fixture_begin(struct fixture *f)
{
    struct metrics_writer writer = {0};

    *f = (struct fixture){0};
    test_directory(f->directory);
    IS_OK(path_join(f->metrics, PATH_BYTES, f->directory, "metrics.jsonl"));
    IS_OK(path_join(f->report, PATH_BYTES, f->directory, "report.html"));
    IS_OK(metrics_open(&writer, f->metrics, -1));
    for (int step = 1; step <= 20; step++) {
        const struct metrics_row row = {
            .kind = METRICS_STEP, .step = step, .tokens = 100 * step,
            .loss = 8 - 0.1 * step, .lr = 1e-3, .step_ms = 10,
            .tokens_per_s = 1e4, .peak_fraction = 0.5,
            .copy_idle_share = idle_share, .copy_wait_ms = 1.5};

        IS_OK(metrics_append(&writer, &row));
    }
    IS_OK(metrics_append(&writer, &(struct metrics_row){
                                      .kind = METRICS_VALIDATION, .step = 20,
                                      .val_loss = 6.12345,
                                      .val_bits_per_byte = 2.75}));
    metrics_close(&writer);
}

static void fixture_write(struct fixture *f, struct report_input *input)
{
    input->metrics_path = f->metrics;
    IS_OK(report_write(input, f->report));
    IS_OK(file_read(f->report, 1 << 20, &f->page));
}

static void fixture_end(struct fixture *f)
{
    text_free(&f->page);
    IS_OK(directory_remove(f->directory));
}

TEST(the_page_is_complete_in_itself)
{
    static const struct report_fact facts[] = {{"family", "llama"}};
    static const struct report_memory memory[] = {{"weights", 3072},
                                                  {"frame", 1024}};
    static const char *const expected[] = {
        "<!DOCTYPE html>", "20/30", "2,000", "6.123", "2.750", "50%",
        "ln V = 7.62", "75.0%", "4.0 KiB", "finished", "exit 0", "</html>"};
    static const char *const forbidden[] = {"<script", "<link", "http:",
                                            "https:", "url(", "@import",
                                            "nan", "<img"};
    struct report_input input = {
        .title = "runs/first", .outcome = "finished", .steps_planned = 30,
        .vocab = 2048, .model = facts, .model_count = 1, .machine = facts,
        .machine_count = 1, .memory = memory, .memory_count = 2};
    struct fixture f;

    fixture_begin(&f);
    fixture_write(&f, &input);
    for (int i = 0; i < ROWS(expected); i++)
        if (strstr(f.page.bytes, expected[i]) == NULL)
            test_failed(__FILE__, __LINE__, expected[i]);
    for (int i = 0; i < ROWS(forbidden); i++)
        if (strstr(f.page.bytes, forbidden[i]) != NULL)
            test_failed(__FILE__, __LINE__, forbidden[i]);
    fixture_end(&f);
}

/* Whatever a model, a path or an option says, it stays text. */
TEST(texts_are_escaped)
{
    static const char evil[] = "</pre><script>alert(1)</script>";
    static const struct report_fact facts[] = {{evil, evil}};
    static const struct report_memory memory[] = {{evil, 1}};
    struct options_set set = {0};
    struct report_input input = {
        .title = evil, .outcome = evil, .exit_code = 76, .model = facts,
        .model_count = 1, .memory = memory, .memory_count = 1, .prompt = evil,
        .sample = evil, .options = &set};
    char assignment[128];
    struct fixture f;

    IS_OK(options_init(&set));
    snprintf(assignment, sizeof assignment, "run.dir=%s", evil);
    IS_OK(options_assign(&set, assignment, ORIGIN_COMMAND_LINE));
    fixture_begin(&f);
    fixture_write(&f, &input);
    CHECK(strstr(f.page.bytes, "<script") == NULL);
    CHECK(strstr(f.page.bytes, "&lt;script&gt;") != NULL);
    CHECK(strstr(f.page.bytes, "pill bad") != NULL);
    fixture_end(&f);
    options_free(&set);
}

TEST(options_say_who_set_them)
{
    struct options_set set = {0};
    struct report_input input = {.title = "x", .outcome = "stopped",
                                 .exit_code = 75, .options = &set};
    struct fixture f;

    IS_OK(options_init(&set));
    IS_OK(options_assign(&set, "optimizer.lr=0.25", ORIGIN_COMMAND_LINE));
    fixture_begin(&f);
    fixture_write(&f, &input);
    CHECK(strstr(f.page.bytes,
                 "<tr><td><code>optimizer.lr</code></td><td><code>0.25</code>"
                 "</td><td>command line</td></tr>") != NULL);
    CHECK(strstr(strstr(f.page.bytes, "<details>"),
                 "<tr><td><code>optimizer.beta1</code>") != NULL);
    CHECK(strstr(strstr(f.page.bytes, "<details>"), "optimizer.lr") == NULL);
    CHECK(strstr(f.page.bytes, "pill wait") != NULL);
    fixture_end(&f);
    options_free(&set);
}

TEST(copies_on_other_nodes_have_a_chart)
{
    static const char title[] = "Copies sent in idle time of the network",
                      name[] = "of copies sent in idle time";
    struct report_input input = {.title = "x", .outcome = "finished"};
    struct fixture f;

    fixture_begin(&f);
    fixture_write(&f, &input);
    CHECK(strstr(f.page.bytes, title) == NULL);
    CHECK(strstr(f.page.bytes, name) == NULL);
    fixture_end(&f);
    idle_share = 0.975;
    fixture_begin(&f);
    idle_share = (double)NAN;
    fixture_write(&f, &input);
    CHECK(strstr(f.page.bytes, title) != NULL);
    CHECK(strstr(f.page.bytes, "<b>97.5%</b><span>of copies sent in idle time")
          != NULL);
    fixture_end(&f);
}

TEST(a_run_without_a_step_has_a_report)
{
    struct report_input input = {.title = "x", .outcome = "failed",
                                 .exit_code = 71};
    struct fixture f;

    fixture_begin(&f);
    CHECK(remove(f.metrics) == 0);
    fixture_write(&f, &input);
    CHECK(strstr(f.page.bytes, "nothing was measured") != NULL);
    fixture_end(&f);
}

TEST_MAIN(the_page_is_complete_in_itself, texts_are_escaped,
          options_say_who_set_them, copies_on_other_nodes_have_a_chart,
          a_run_without_a_step_has_a_report)
