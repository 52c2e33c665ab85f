/* SPDX-License-Identifier: Apache-2.0 */
/* test_metrics.c - mirrors src/observe/metrics.c. */
#include <fcntl.h>
#include <math.h>
#include "tests/test.h"
#include "observe/metrics.h"

static struct metrics_row step_row(int64_t step)
{
    return (struct metrics_row){
        .kind = METRICS_STEP, .step = step, .tokens = 2048 * step,
        .epoch = 0.25, .loss = 7.5 - 0.1 * (double)step, .grad_norm = 1.5,
        .clip_factor = 1 / 1.5, .lr = 3e-4, .targets = 2000,
        .step_ms = 12.5, .tokens_per_s = 1e5, .peak_fraction = (double)NAN,
        .time_s = 1.7e9};
}

static struct metrics_row valid_row(int64_t step)
{
    return (struct metrics_row){
        .kind = METRICS_VALIDATION, .step = step, .val_loss = 5.125,
        .val_bits_per_byte = 2.5, .val_targets = 640, .val_ms = 3};
}

struct fixture {
    char directory[PATH_BYTES], path[PATH_BYTES];
};

static void fixture_begin(struct fixture *f)
{
    test_directory(f->directory);
    IS_OK(path_join(f->path, PATH_BYTES, f->directory, "metrics.jsonl"));
}

/* Steps [first, last] with a validation after each fifth. */
static void write_steps(const struct fixture *f, int64_t kept, int64_t first,
                        int64_t last)
{
    struct metrics_writer writer = {0};

    IS_OK(metrics_open(&writer, f->path, kept));
    for (int64_t step = first; step <= last; step++) {
        const struct metrics_row row = step_row(step);
        const struct metrics_row valid = valid_row(step);

        IS_OK(metrics_append(&writer, &row));
        if (step % 5 == 0) IS_OK(metrics_append(&writer, &valid));
    }
    metrics_close(&writer);
}

static void append_bytes(const struct fixture *f, const char *bytes)
{
    FILE *file = fopen(f->path, "a");

    CHECK(file != NULL);
    fputs(bytes, file);
    fclose(file);
}

TEST(a_line_has_its_kind_and_only_its_metrics)
{
    struct metrics_row row = step_row(3);
    struct text line = {0};

    IS_OK(metrics_format(&line, &row, false));
    CHECK(strstr(line.bytes, "{\"kind\": \"step\", \"step\": 3, ") ==
          line.bytes);
    CHECK(strstr(line.bytes, "\"peak_fraction\": null") != NULL);
    CHECK(strstr(line.bytes, "val_loss") == NULL);
    CHECK(line.bytes[line.length - 1] == '\n');
    text_free(&line);
    row = valid_row(5);
    IS_OK(metrics_format(&line, &row, false));
    CHECK(strstr(line.bytes, "\"val_loss\": 5.125") != NULL);
    CHECK(strstr(line.bytes, "grad_norm") == NULL);
    text_free(&line);
}

TEST(an_optional_metric_is_written_when_it_is_set)
{
    struct metrics_row row = metrics_blank(METRICS_STEP);
    struct text line = {0};

    row.step = 3;
    IS_OK(metrics_format(&line, &row, false));
    CHECK(strstr(line.bytes, "\"batch\"") == NULL);
    CHECK(strstr(line.bytes, "\"loss\": 0") != NULL);
    text_free(&line);
    row.batch = 24;
    IS_OK(metrics_format(&line, &row, false));
    CHECK(strstr(line.bytes, "\"batch\": 24,") != NULL);
    text_free(&line);
    row = metrics_blank(METRICS_VALIDATION);
    row.batch = 24;
    IS_OK(metrics_format(&line, &row, false));
    CHECK(strstr(line.bytes, "\"batch\"") == NULL);
    text_free(&line);
}

TEST(metrics_that_a_configuration_names_come_back)
{
    const struct metrics_extra extras[] = {{"val.code.loss", 2.5},
                                           {"val.web.loss", (double)NAN}};
    struct metrics_row row = valid_row(5);
    struct metrics_writer writer = {0};
    struct metrics_table table;
    struct arena arena;
    struct fixture f;

    fixture_begin(&f);
    arena_init(&arena, "test", 0);
    write_steps(&f, -1, 1, 4);
    row.extras = extras;
    row.extra_count = 2;
    IS_OK(metrics_open(&writer, f.path, 4));
    IS_OK(metrics_append(&writer, &row));
    metrics_close(&writer);
    IS_OK(metrics_read(&table, &arena, f.path));
    EQUAL_INT(table.count, 5);
    EQUAL_INT(table.rows[0].extra_count, 0);
    EQUAL_INT(table.rows[4].extra_count, 2);
    EQUAL_TEXT(table.rows[4].extras[0].name, "val.code.loss");
    EQUAL_BYTES(&table.rows[4].extras[0].value, &extras[0].value, 8);
    EQUAL_TEXT(table.rows[4].extras[1].name, "val.web.loss");
    CHECK(isnan(table.rows[4].extras[1].value));
    arena_free(&arena);
}

TEST(the_exact_form_does_not_know_the_clock)
{
    struct metrics_row a = step_row(3), b = step_row(3);
    struct text text_a = {0}, text_b = {0};

    b.step_ms = 99;
    b.time_s = 1;
    b.resident_bytes = 7;
    IS_OK(metrics_format(&text_a, &a, true));
    IS_OK(metrics_format(&text_b, &b, true));
    EQUAL_TEXT(text_a.bytes, text_b.bytes);
    text_free(&text_b);
    b.loss = nextafter(b.loss, 0);
    IS_OK(metrics_format(&text_b, &b, true));
    CHECK(strcmp(text_a.bytes, text_b.bytes) != 0);
    text_free(&text_a);
    text_free(&text_b);
}

TEST(rows_read_back_equal)
{
    struct fixture f;
    struct arena arena = {0};
    struct metrics_table table;

    fixture_begin(&f);
    write_steps(&f, -1, 1, 7);
    arena_init(&arena, "test", 0);
    IS_OK(metrics_read(&table, &arena, f.path));
    EQUAL_INT(table.count, 8);
    EQUAL_INT(table.rows[5].kind, METRICS_VALIDATION);
    CHECK(table.rows[5].val_loss == 5.125);
    CHECK(table.rows[2].loss == step_row(3).loss);
    CHECK(table.rows[2].clip_factor == 1 / 1.5);
    CHECK(isnan(table.rows[2].peak_fraction));
    EQUAL_INT(table.rows[7].tokens, 7 * 2048);
    arena_free(&arena);
    IS_OK(directory_remove(f.directory));
}

/* A run that goes on at `kept` drops the later lines. */
TEST(a_resumed_run_leaves_no_trace)
{
    static const struct {
        int64_t last, kept;
        const char *torn;
    } rows[] = {{10, 7, ""}, {10, 10, ""}, {10, 10, "{\"kind\":\"st"},
                {13, 5, "{\"kind\":\"step\",\"step\":14}"}, {9, 9, "\n\n"},
                {3, 0, ""}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct fixture whole, cut;
        struct text a = {0}, b = {0};

        fixture_begin(&whole);
        fixture_begin(&cut);
        write_steps(&whole, -1, 1, 20);
        write_steps(&cut, -1, 1, rows[i].last);
        append_bytes(&cut, rows[i].torn);
        write_steps(&cut, rows[i].kept, rows[i].kept + 1, 20);
        IS_OK(file_read(whole.path, 1 << 20, &a));
        IS_OK(file_read(cut.path, 1 << 20, &b));
        EQUAL_TEXT(b.bytes, a.bytes);
        text_free(&a);
        text_free(&b);
        IS_OK(directory_remove(whole.directory));
        IS_OK(directory_remove(cut.directory));
    }
}

TEST(a_damaged_line_is_named)
{
    struct fixture f;
    struct arena arena = {0};
    struct metrics_table table;

    fixture_begin(&f);
    arena_init(&arena, "test", 0);
    IS_OK(metrics_read(&table, &arena, f.path));
    EQUAL_INT(table.count, 0); /* no file yet */
    write_steps(&f, -1, 1, 2);
    append_bytes(&f, "{\"kind\":\"nonsense\",\"step\":3}\n");
    FAILS(metrics_read(&table, &arena, f.path), ERR_FORMAT, "line 3");
    arena_free(&arena);
    IS_OK(directory_remove(f.directory));
}

TEST(an_unwritable_place_is_an_error)
{
    struct metrics_writer writer = {0};

    FAILS(metrics_open(&writer, "/nonexistent/metrics.jsonl", -1), ERR_IO,
          "/nonexistent/metrics.jsonl");
    metrics_close(&writer);
}

TEST(the_page_lists_every_metric)
{
    struct text page = {0};

    IS_OK(metrics_describe(&page));
    CHECK(strstr(page.bytes, "| `grad_norm` | real | step |") != NULL);
    CHECK(strstr(page.bytes, "| `step_ms` | real | step | ms | clock |") !=
          NULL);
    text_free(&page);
}

TEST_MAIN(a_line_has_its_kind_and_only_its_metrics,
          an_optional_metric_is_written_when_it_is_set,
          metrics_that_a_configuration_names_come_back,
          the_exact_form_does_not_know_the_clock, rows_read_back_equal,
          a_resumed_run_leaves_no_trace, a_damaged_line_is_named,
          an_unwritable_place_is_an_error,
          the_page_lists_every_metric)
