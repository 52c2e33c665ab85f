/* SPDX-License-Identifier: Apache-2.0 */
/* test_events.c - mirrors src/observe/events.c. The file of bytes was made by
 * the tensorboard package (tests/golden/make_events.py). */
#include <fcntl.h>
#include <math.h>
#include <unistd.h>
#include "tests/test.h"
#include "observe/events.h"
#include "observe/events_read.h"

static const char golden_path[] = "tests/golden/data/events.tfevents";
static const double then = 1.7e9;

/* Scalars of one tag, in the order of the files. */
struct curve {
    const char *tag;
    int64_t steps[64];
    double values[64];
    int count, histograms, texts;
};

static status add_value(void *argument, const struct events_value *value)
{
    struct curve *curve = argument;

    if (value->kind == EVENTS_HISTOGRAM) curve->histograms++;
    if (value->kind == EVENTS_TEXT) curve->texts++;
    if (value->kind != EVENTS_SCALAR ||
        value->tag_length != strlen(curve->tag) ||
        memcmp(value->tag, curve->tag, value->tag_length) != 0)
        return OK;
    CHECK(curve->count < 64);
    curve->steps[curve->count] = value->step;
    curve->values[curve->count++] = value->scalar;
    return OK;
}

/* All files of RUN/tensorboard; returns how many. */
static int read_run(const char *run, struct curve *curve)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    char **names;
    int count;

    IS_OK(path_join(directory, PATH_BYTES, run, "tensorboard"));
    IS_OK(directory_list(directory, &names, &count));
    for (int i = 0; i < count; i++) {
        struct events_scan scan = {.source = path, .step_kept = -1,
                                   .value = add_value, .argument = curve};
        struct text bytes = {0};

        IS_OK(path_join(path, PATH_BYTES, directory, names[i]));
        IS_OK(file_read(path, 1 << 20, &bytes));
        IS_OK(events_scan(&scan, bytes.bytes, bytes.length));
        text_free(&bytes);
    }
    directory_list_free(names, count);
    return count;
}

static void write_steps(const char *run, int64_t kept, int64_t last)
{
    struct events_writer writer = {0};

    IS_OK(events_open(&writer, run, kept, then));
    CHECK(events_on(&writer));
    for (int64_t step = kept < 0 ? 1 : kept + 1; step <= last; step++) {
        struct metrics_row row = metrics_blank(METRICS_STEP);

        row.step = step;
        row.time_s = then + (double)step;
        row.loss = 8 - 0.5 * (double)step;
        row.lr = 0.25;
        row.peak_fraction = (double)NAN;
        IS_OK(events_metrics(&writer, &row));
    }
    events_close(&writer);
}

TEST(bytes_are_those_of_the_tensorboard_package)
{
    const double limits[] = {-1, 1, 4}, counts[] = {2, 1, 4};
    const struct events_scalar scalars[] = {{"train/loss", 7.25},
                                            {"nothing", (double)NAN},
                                            {"eval/loss", 0.1}};
    const struct events_histogram histogram = {
        .tag = "weights/embedding", .least = -1.5, .greatest = 3, .count = 7,
        .sum = 2.5, .sum_squares = 19.25, .limits = limits, .counts = counts,
        .buckets = 3};
    static const char yaml[] = "```yaml\nseed: 1\n```\n";
    char run[PATH_BYTES];
    struct events_writer writer = {0};
    struct text golden = {0}, found = {0};

    test_directory(run);
    IS_OK(events_open(&writer, run, 5, then));
    IS_OK(events_scalars(&writer, (struct events_moment){300, then}, scalars,
                         3));
    IS_OK(events_text(&writer, (struct events_moment){300, then},
                      "configuration", yaml, strlen(yaml)));
    IS_OK(events_histograms(
        &writer, (struct events_moment){((int64_t)1 << 40) + 1, then},
        &histogram, 1));
    IS_OK(file_read(golden_path, 1 << 20, &golden));
    IS_OK(file_read(writer.lines.path, 1 << 20, &found));
    EQUAL_INT(found.length, golden.length);
    EQUAL_BYTES(found.bytes, golden.bytes, golden.length);
    text_free(&golden);
    text_free(&found);
    events_close(&writer);
    IS_OK(directory_remove(run));
}

TEST(a_text_is_written_as_utf8)
{
    static const char text[] = "a\xFF" "b\xE2\x82";
    static const char shown[] = "a\xEF\xBF\xBD" "b\xEF\xBF\xBD";
    char run[PATH_BYTES];
    struct events_writer writer = {0};
    struct text found = {0};
    bool there = false;

    test_directory(run);
    IS_OK(events_open(&writer, run, 0, then));
    IS_OK(events_text(&writer, (struct events_moment){1, then}, "t", text,
                      sizeof text - 1));
    IS_OK(file_read(writer.lines.path, 1 << 20, &found));
    for (size_t i = 0; i + sizeof shown - 1 <= found.length; i++)
        there |= memcmp(found.bytes + i, shown, sizeof shown - 1) == 0;
    CHECK(there);
    text_free(&found);
    events_close(&writer);
    IS_OK(directory_remove(run));
}

TEST(a_row_is_read_back_under_its_names)
{
    char run[PATH_BYTES];
    struct curve loss = {.tag = "train/loss"};
    struct curve rate = {.tag = "train/learning_rate"};
    struct curve peak = {.tag = "perf/peak_fraction"};

    test_directory(run);
    write_steps(run, -1, 3);
    EQUAL_INT(read_run(run, &loss), 1);
    read_run(run, &rate);
    read_run(run, &peak);
    EQUAL_INT(loss.count, 3);
    EQUAL_INT(loss.steps[2], 3);
    CHECK(loss.values[2] == 6.5 && rate.values[0] == 0.25);
    EQUAL_INT(peak.count, 0); /* NaN is no point of a curve */
    IS_OK(directory_remove(run));
}

TEST(extras_become_paths)
{
    const struct metrics_extra extras[] = {{"val.code.loss", 2.5},
                                           {"task.facts.acc", 0.75}};
    char run[PATH_BYTES];
    struct metrics_row row = metrics_blank(METRICS_VALIDATION);
    struct events_writer writer = {0};
    struct curve code = {.tag = "eval/code/loss"};
    struct curve task = {.tag = "task/facts/acc"};
    struct curve tokens = {.tag = "train/tokens"};

    row.step = 4;
    row.extras = extras;
    row.extra_count = 2;
    test_directory(run);
    IS_OK(events_open(&writer, run, -1, then));
    IS_OK(events_metrics(&writer, &row));
    events_close(&writer);
    read_run(run, &code);
    read_run(run, &task);
    read_run(run, &tokens);
    CHECK(code.count == 1 && code.values[0] == 2.5);
    CHECK(task.count == 1 && task.values[0] == 0.75);
    EQUAL_INT(tokens.count, 0); /* the step's row has them */
    IS_OK(directory_remove(run));
}

/* Killed after step 9 in the middle of a record, resumed behind `kept`. */
static void resume(int64_t kept, int files)
{
    char run[PATH_BYTES], directory[PATH_BYTES], path[PATH_BYTES];
    struct curve loss = {.tag = "train/loss"};
    char **names;
    int count;
    int64_t size;

    test_directory(run);
    write_steps(run, -1, 9);
    IS_OK(path_join(directory, PATH_BYTES, run, "tensorboard"));
    IS_OK(directory_list(directory, &names, &count));
    IS_OK(path_join(path, PATH_BYTES, directory, names[0]));
    directory_list_free(names, count);
    IS_OK(file_size(path, &size));
    CHECK(truncate(path, size - 3) == 0);
    write_steps(run, kept, 12);
    EQUAL_INT(read_run(run, &loss), files);
    EQUAL_INT(loss.count, 12);
    for (int i = 0; i < 12; i++) EQUAL_INT(loss.steps[i], i + 1);
    IS_OK(directory_remove(run));
}

TEST(a_resumed_run_has_every_step_once)
{
    resume(6, 2);
    resume(8, 2);
    resume(-1, 1);
}

TEST(a_session_says_where_it_goes_on)
{
    char run[PATH_BYTES];
    struct events_writer writer = {0};
    struct events_scan scan = {.source = "events", .step_kept = -1};
    struct text bytes = {0};

    test_directory(run);
    IS_OK(events_open(&writer, run, 4, then));
    IS_OK(file_read(writer.lines.path, 1 << 20, &bytes));
    IS_OK(events_scan(&scan, bytes.bytes, bytes.length));
    EQUAL_INT(scan.events, 2);
    EQUAL_INT(scan.starts, 1);
    text_free(&bytes);
    events_close(&writer);
    IS_OK(directory_remove(run));
}

TEST(a_second_file_of_the_same_second_comes_later)
{
    char run[PATH_BYTES];
    struct events_writer first = {0}, second = {0};

    test_directory(run);
    IS_OK(events_open(&first, run, -1, then));
    IS_OK(events_text(&first, (struct events_moment){1, then}, "a", "b", 1));
    IS_OK(events_open(&second, run, 1, then - 5));
    CHECK(strcmp(first.lines.path, second.lines.path) < 0);
    events_close(&first);
    events_close(&second);
    IS_OK(directory_remove(run));
}

TEST(a_place_that_cannot_be_written_is_an_error)
{
    struct events_writer writer = {0};

    CHECK(events_open(&writer, "/proc/nowhere", -1, then) != OK);
    status_clear();
    events_close(&writer);
}

TEST(masks_are_those_of_the_format)
{
    /* (crc >> 15 | crc << 17) + 0xA282EAD8, worked out by hand for 1. */
    EQUAL_INT(events_mask(0), 0xA282EAD8u);
    EQUAL_INT(events_mask(1), 0xA284EAD8u);
}

TEST_MAIN(bytes_are_those_of_the_tensorboard_package,
          a_text_is_written_as_utf8,
          a_row_is_read_back_under_its_names, extras_become_paths,
          a_resumed_run_has_every_step_once, a_session_says_where_it_goes_on,
          a_second_file_of_the_same_second_comes_later,
          a_place_that_cannot_be_written_is_an_error,
          masks_are_those_of_the_format)
