/* SPDX-License-Identifier: Apache-2.0 */
/* test_report_validation.c - mirrors src/report/report_validation.c. */
#include "report/report_validation.h"

#include <math.h>

#include "base/file.h"
#include "tests/test.h"

static int count_of(const char *text, const char *word)
{
    int count = 0;

    for (; (text = strstr(text, word)) != NULL; text++) count++;
    return count;
}

TEST(sets_and_tasks_have_curves_and_values)
{
    static const struct metrics_extra extras[2][7] = {
        {{"val.code.loss", 3}, {"val.code.bits_per_byte", 1.5},
         {"task.q.acc", 0.25}, {"task.q.acc_stderr", 0.0625},
         {"task.l.perplexity", 9}, {"task.l.acc", 0},
         {"task.t.bits_per_byte", 2}},
        {{"val.code.loss", 2}, {"val.code.bits_per_byte", (double)NAN},
         {"task.q.acc", 0.5}, {"task.q.acc_stderr", 0.125},
         {"task.l.perplexity", 8}, {"task.l.acc", 0},
         {"task.t.bits_per_byte", 1}}};
    struct metrics_row rows[3] = {
        {.kind = METRICS_VALIDATION, .step = 5, .extras = extras[0],
         .extra_count = 7},
        {.kind = METRICS_STEP, .step = 6},
        {.kind = METRICS_VALIDATION, .step = 10, .extras = extras[1],
         .extra_count = 7}};
    const struct metrics_table table = {rows, 3};
    struct text out = {0};
    struct arena arena;

    arena_init(&arena, "test", 0);
    IS_OK(report_validation(&out, &arena, &table));
    EQUAL_INT(count_of(out.bytes, "<svg"), 4);
    CHECK(strstr(out.bytes, "Validation: code") != NULL);
    CHECK(strstr(out.bytes, "Task: q") != NULL);
    CHECK(strstr(out.bytes, "values after step 10") != NULL);
    CHECK(strstr(out.bytes, "&plusmn; 0.12<") != NULL);
    EQUAL_INT(count_of(out.bytes, "_stderr"), 0);
    text_free(&out);
    rows[0].extra_count = rows[2].extra_count = 0;
    IS_OK(report_validation(&out, &arena, &table));
    EQUAL_INT(out.length, 0);
    arena_free(&arena);
    text_free(&out);
}

TEST(samples_are_escaped_and_the_last_stand_first)
{
    static const char lines[] =
        "{\"step\": 5, \"prompt\": \"a\", \"text\": \"old\"}\n"
        "{\"step\": 9, \"prompt\": \"<b>\", \"text\": \"new & <i>\"}\n"
        "{\"step\": 9, \"prompt\": \"to";
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text out = {0};

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "samples.jsonl"));
    IS_OK(report_samples(&out, path));
    EQUAL_INT(out.length, 0);
    IS_OK(file_write_atomic(path, lines, sizeof lines - 1));
    IS_OK(report_samples(&out, path));
    CHECK(strstr(out.bytes, "&lt;b&gt;</span>new &amp; &lt;i&gt;") != NULL);
    CHECK(strstr(out.bytes, "new") < strstr(out.bytes, "<details>"));
    CHECK(strstr(out.bytes, "old") > strstr(out.bytes, "<details>"));
    text_free(&out);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(sets_and_tasks_have_curves_and_values,
          samples_are_escaped_and_the_last_stand_first)
