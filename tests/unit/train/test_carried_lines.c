/* SPDX-License-Identifier: Apache-2.0 */
/* test_carried_lines.c - lines that copies in memory take along. */
#include "train/carried_lines.h"

#include <string.h>
#include "tests/test.h"

#define L(n) "{\"step\": " #n ", \"x\": 1}\n"
#define M(n) "{\"kind\": \"step\", \"step\": " #n ", \"loss\": 2}\n"
#define V(n) "{\"kind\": \"validation\", \"step\": " #n ", \"val_loss\": 3}\n"

static char room[PATH_BYTES];

static void put(struct carried *carried, enum carried_file file,
                const char *lines)
{
    IS_OK(text_append_string(&carried->lines[file], lines));
}

static void has(const struct carried *carried, enum carried_file file,
                const char *lines)
{
    const struct text *text = &carried->lines[file];

    EQUAL_INT(text->length, strlen(lines));
    EQUAL_TEXT(text->length > 0 ? text->bytes : "", lines);
}

static void write_file(const char *name, const char *content)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, room, name));
    IS_OK(file_write_atomic(path, content, strlen(content)));
}

static void file_has(const char *name, const char *expected)
{
    char path[PATH_BYTES];
    struct text text = {0};

    IS_OK(path_join(path, sizeof path, room, name));
    IS_OK(file_read(path, 1 << 20, &text));
    EQUAL_TEXT(text.length > 0 ? text.bytes : "", expected);
    text_free(&text);
}

TEST(what_is_put_into_an_open_file_goes_along)
{
    struct carried carried = {.missing = {0}};
    struct lines lines = {0};
    char path[PATH_BYTES];

    test_directory(room);
    carried_follow(&carried, CARRIED_CONSUMED, &lines); /* not open */
    CHECK(lines.also == NULL);
    IS_OK(path_join(path, sizeof path, room, "consumed.jsonl"));
    IS_OK(lines_open(&lines, path, "none", 0));
    IS_OK(lines_put(&lines, L(1), strlen(L(1))));
    carried_follow(&carried, CARRIED_CONSUMED, &lines);
    IS_OK(lines_put(&lines, L(2), strlen(L(2))));
    has(&carried, CARRIED_CONSUMED, L(2));
    file_has("consumed.jsonl", L(1) L(2));
    lines_close(&lines);
    carried_free(&carried);
    IS_OK(directory_remove(room));
}

TEST(saved_and_undone_lines_go)
{
    struct carried carried = {.missing = {0}};

    put(&carried, CARRIED_METRICS, M(4) V(4) M(5) M(6) V(6) M(7));
    put(&carried, CARRIED_CONSUMED, L(4) L(5) L(6) L(7));
    carried_keep(&carried, -1, 7);
    has(&carried, CARRIED_METRICS, M(4) V(4) M(5) M(6) V(6) M(7));
    carried_keep(&carried, 4, 7);
    has(&carried, CARRIED_METRICS, M(5) M(6) V(6) M(7));
    carried_keep(&carried, 4, 6); /* 7 was undone */
    has(&carried, CARRIED_METRICS, M(5) M(6) V(6));
    has(&carried, CARRIED_CONSUMED, L(5) L(6));
    carried_keep(&carried, 6, 6);
    has(&carried, CARRIED_METRICS, "");
    carried_free(&carried);
}

/* The second of two files finds no room, until a checkpoint has its lines. */
TEST(lines_without_room_are_missing_until_they_are_saved)
{
    struct carried carried = {.missing = {0}};
    char line[64];

    for (int i = 1; carried.lines[CARRIED_METRICS].length <
                    CARRIED_MOST / 2 + 100; i++) {
        snprintf(line, sizeof line, "{\"step\": %d}\n", i);
        put(&carried, CARRIED_CONSUMED, line);
        put(&carried, CARRIED_METRICS, line);
    }
    const int64_t last = strtoll(line + 9, NULL, 10);

    carried_keep(&carried, -1, last);
    EQUAL_INT(carried.missing[CARRIED_CONSUMED], 0);
    EQUAL_INT(carried.missing[CARRIED_METRICS], last);
    EQUAL_INT(carried.lines[CARRIED_METRICS].length, 0);
    put(&carried, CARRIED_METRICS, "{\"step\": 900000}\n");
    carried_keep(&carried, last - 1, 900000);
    EQUAL_INT(carried.missing[CARRIED_METRICS], last);
    carried_keep(&carried, last, 900000);
    EQUAL_INT(carried.missing[CARRIED_METRICS], 0);
    has(&carried, CARRIED_METRICS, "{\"step\": 900000}\n");
    carried_free(&carried);
}

TEST(a_state_brings_them_back)
{
    struct carried carried = {.missing = {[CARRIED_LAYERS] = 3}};
    struct carried back = {.missing = {0}};
    struct text state = {0};

    put(&carried, CARRIED_METRICS, M(5) V(5));
    put(&carried, CARRIED_SAMPLES, L(5));
    IS_OK(text_append_string(&state, "{\"step\": 5}"));
    IS_OK(carried_write(&carried, &state));
    EQUAL_TEXT(state.bytes, "{\"step\": 5}"); /* up to the NUL */
    IS_OK(carried_read(&back, state.bytes, state.length));
    has(&back, CARRIED_METRICS, M(5) V(5));
    has(&back, CARRIED_SAMPLES, L(5));
    has(&back, CARRIED_CONSUMED, "");
    EQUAL_INT(back.missing[CARRIED_LAYERS], 3);
    EQUAL_INT(back.missing[CARRIED_METRICS], 0);
    for (size_t i = strlen(state.bytes) + 1; i < state.length; i++) {
        char *cut = malloc(i); /* so that a read behind the end is seen */

        CHECK(cut != NULL);
        memcpy(cut, state.bytes, i);
        CHECK(carried_read(&back, cut, i) == ERR_FORMAT);
        status_clear();
        free(cut);
    }
    IS_OK(carried_read(&back, "{}", 2));
    has(&back, CARRIED_METRICS, "");
    text_free(&state);
    carried_free(&carried);
    carried_free(&back);
}

TEST(files_have_all_lines_then)
{
    struct carried carried = {.missing = {0}};
    char cut[PATH_BYTES];

    test_directory(room);
    put(&carried, CARRIED_METRICS, M(5) V(5) M(6) M(7));
    put(&carried, CARRIED_CONSUMED, L(5) L(6) L(7));
    /* An older file; one that is torn, without the validation of step 5. */
    write_file("consumed.jsonl", L(1) L(2));
    write_file("metrics.jsonl", M(4) M(5) "{\"kind\": \"valid");
    IS_OK(carried_store(&carried, room, 6));
    file_has("consumed.jsonl", L(1) L(2) L(5) L(6));
    file_has("metrics.jsonl", M(4) M(5) V(5) M(6));
    /* All are there, and one of a step that will be cut: nothing is written. */
    write_file("metrics.jsonl", M(4) M(5) V(5) M(6) M(7));
    IS_OK(path_join(cut, sizeof cut, room, "consumed.jsonl.cut"));
    CHECK(!file_exists(cut));
    IS_OK(carried_store(&carried, room, 6));
    file_has("metrics.jsonl", M(4) M(5) V(5) M(6) M(7));
    /* Another line of step 6, and a file that is gone. */
    write_file("metrics.jsonl", M(5) V(5) M(6) V(6));
    IS_OK(path_join(cut, sizeof cut, room, "consumed.jsonl"));
    CHECK(unlink(cut) == 0);
    IS_OK(carried_store(&carried, room, 6));
    file_has("metrics.jsonl", M(5) V(5) M(6));
    file_has("consumed.jsonl", L(5) L(6));
    IS_OK(carried_store(&carried, room, 4)); /* nothing is as old as that */
    file_has("consumed.jsonl", L(5) L(6));
    carried_free(&carried);
    IS_OK(directory_remove(room));
}

TEST_MAIN(what_is_put_into_an_open_file_goes_along,
          saved_and_undone_lines_go,
          lines_without_room_are_missing_until_they_are_saved,
          a_state_brings_them_back,
          files_have_all_lines_then)
