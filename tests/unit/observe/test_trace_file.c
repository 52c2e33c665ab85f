/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace_file.c - mirrors src/observe/trace_file.c. */
#include "observe/trace_file.h"

#include "base/json.h"
#include "base/text.h"
#include "tests/test.h"

static void span(enum meter_kind kind, const char *name, const char *label)
{
    struct meter_track *track = meter_begin();

    meter_end(track, &(struct meter_what){.kind = kind, .name = name,
                                          .label = label, .flops = 7,
                                          .bytes = 3, .shape = {4, 5, 6}});
}

/* The document is strict JSON; how many events of a phase it has. */
static int events_of(const char *path, const char *phase,
                     const struct json **last, struct arena *arena)
{
    const struct json *root, *events;
    int count = 0;

    IS_OK(json_read_file(&root, arena, path, (size_t)1 << 24));
    events = json_get(root, "traceEvents");
    CHECK(events != NULL && events->kind == JSON_ARRAY);
    for (int i = 0; i < events->count; i++) {
        const char *found;

        IS_OK(json_get_string(&events->items[i], path, "ph", &found));
        if (strcmp(found, phase) != 0) continue;
        *last = &events->items[i];
        count++;
    }
    return count;
}

TEST(a_trace_is_json_with_an_event_for_each_span)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct arena arena = {0};
    const struct json *event = NULL;
    const char *name;
    struct meter meter;
    double begin, took;
    int64_t rank;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "trace.json"));
    IS_OK(meter_build(&meter, 2, 64));
    meter_record(&meter, true);
    meter_step_begin(&meter);
    span(METER_MATMUL, "matmul", "dW = dy' x");
    span(METER_MESSAGES, "all-reduce", "a \"quoted\" \\ label");
    meter_background(&meter, "data");
    meter_instruction(7);
    meter_step_end(&meter);
    IS_OK(trace_file_write(&meter, 3, "a \"run\"\n", path));
    arena_init(&arena, "test", 0);
    EQUAL_INT(events_of(path, "X", &event, &arena), 3);
    IS_OK(json_get_string(event, path, "name", &name));
    EQUAL_TEXT(name, "step");
    IS_OK(json_get_integer(event, path, "pid", &rank));
    EQUAL_INT(rank, 3);
    IS_OK(json_get_integer(json_get(event, "args"), path, "instruction",
                           &rank));
    EQUAL_INT(rank, 7);
    IS_OK(json_get_real(event, path, "ts", &begin));
    IS_OK(json_get_real(event, path, "dur", &took));
    CHECK(took >= 0 && begin > 0);
    /* The process, its order, and a name for each of two tracks. */
    EQUAL_INT(events_of(path, "M", &event, &arena), 4);
    arena_free(&arena);
    meter_free(&meter);
    IS_OK(directory_remove(directory));
}

/* Its name and its label, of which one letter is one, too. */
TEST(a_span_is_named)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text text;
    struct meter meter;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "trace.json"));
    IS_OK(meter_build(&meter, 2, 64));
    meter_record(&meter, true);
    meter_step_begin(&meter);
    span(METER_MATMUL, "matmul", "y");
    span(METER_MESSAGES, "barrier", "");
    meter_step_end(&meter);
    IS_OK(trace_file_write(&meter, 0, "", path));
    IS_OK(file_read(path, 1 << 20, &text));
    CHECK(strstr(text.bytes, "\"name\":\"matmul y\"") != NULL);
    CHECK(strstr(text.bytes, "\"name\":\"barrier\"") != NULL);
    text_free(&text);
    meter_free(&meter);
    IS_OK(directory_remove(directory));
}

TEST(a_trace_without_spans_is_json_too)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct arena arena = {0};
    const struct json *event = NULL;
    struct meter meter;

    test_directory(directory);
    IS_OK(path_join(path, sizeof path, directory, "trace.json"));
    IS_OK(meter_build(&meter, 0, 8));
    IS_OK(trace_file_write(&meter, 0, "", path));
    arena_init(&arena, "test", 0);
    EQUAL_INT(events_of(path, "X", &event, &arena), 0);
    arena_free(&arena);
    IS_OK(path_join(path, sizeof path, directory, "no/such/directory"));
    FAILS(trace_file_write(&meter, 0, "", path), ERR_IO, "cannot be written");
    meter_free(&meter);
    IS_OK(directory_remove(directory));
}

TEST(each_rank_has_a_file_of_its_own)
{
    char name[64];

    IS_OK(trace_file_name("a.b/trace.json", 0, 1, name, sizeof name));
    EQUAL_TEXT(name, "a.b/trace.json");
    IS_OK(trace_file_name("a.b/trace.json", 3, 4, name, sizeof name));
    EQUAL_TEXT(name, "a.b/trace.rank-3.json");
    IS_OK(trace_file_name("a.b/trace", 0, 4, name, sizeof name));
    EQUAL_TEXT(name, "a.b/trace.rank-0");
    FAILS(trace_file_name("trace.json", 3, 4, name, 8), ERR_CONFIG,
          "too long");
}

TEST_MAIN(a_trace_is_json_with_an_event_for_each_span, a_span_is_named,
          a_trace_without_spans_is_json_too,
          each_rank_has_a_file_of_its_own)
