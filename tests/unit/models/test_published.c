/* SPDX-License-Identifier: Apache-2.0 */
/* test_published.c - the fields of configurations that have been published,
 * made small (tests/golden/published.jsonl): each is read, and what is written
 * for it reads the same again, or is refused by the words that stand there.
 * check_drawn.py compares what the models compute with transformers. */
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "models/model.h"
#include "tests/test.h"

static const char *const list = "tests/golden/published.jsonl";
static char directory[PATH_BYTES], path[PATH_BYTES];

/* As config.json. */
static void put(const char *bytes, size_t length)
{
    IS_OK(path_join(path, PATH_BYTES, directory, "config.json"));
    IS_OK(file_write_atomic(path, bytes, length));
}

static void is_written_as_it_was_read(const char *name)
{
    struct model model;
    struct text once = {0}, again = {0};

    if (model_from_config(&model, directory) != OK) {
        print_error("%s: %s\n", name, status_message());
        CHECK(false);
    }
    IS_OK(model_write_config(&model, DTYPE_F32, &once));
    put(once.bytes, once.length);
    IS_OK(model_from_config(&model, directory));
    IS_OK(model_write_config(&model, DTYPE_F32, &again));
    EQUAL_TEXT(again.bytes, once.bytes);
    text_free(&once);
    text_free(&again);
}

/* {"name": "...", "refused": "...", "config": {...}} */
static void check_line(const char *line, size_t length)
{
    static const char key[] = "\"config\": ";
    struct arena arena;
    const struct json *row;
    const char *name, *words;
    struct model model;

    arena_init(&arena, "published", 0);
    IS_OK(json_read(&row, &arena, line, length, list));
    IS_OK(json_get_string(row, list, "name", &name));
    IS_OK(json_get_string_or(row, list, "refused", "", &words));
    const char *config = strstr(line, key);

    CHECK(config != NULL);
    config += sizeof key - 1;
    put(config, (size_t)(line + length - 1 - config));
    if (words[0] == 0)
        is_written_as_it_was_read(name);
    else
        FAILS(model_from_config(&model, directory), ERR_CONFIG, words);
    status_clear();
    arena_free(&arena);
}

TEST(published_files_are_read_or_refused_by_name)
{
    struct text all = {0};
    int lines = 0;

    test_directory(directory);
    IS_OK(file_read(list, 1 << 20, &all));
    for (const char *line = all.bytes; *line != 0; lines++) {
        const size_t length = strcspn(line, "\n");

        check_line(line, length);
        line += length + 1;
    }
    CHECK(lines > 90);
    text_free(&all);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(published_files_are_read_or_refused_by_name)
