/* SPDX-License-Identifier: Apache-2.0 */
/* test_layers_file.c - mirrors src/observe/layers_file.c, and the heat maps of
 * layers_draw.c. What layers see in a run is drilled in
 * tests/drills/observe.sh. */
#include <math.h>
#include "tests/test.h"
#include "observe/layers.h"

#define PARAMS "\"logit\": [2.5], \"parameters\": [{\"name\": "             \
               "\"a<b\", \"weight\": 2, "                                   \
               "\"gradient\": 0.5, \"update\": null}]"

static const char two[] =
    "{\"step\": 5, \"rms\": [1, 2], \"max\": [3, 4.5], "
    "\"kurtosis\": [3, null], " PARAMS "}\n"
    "{\"step\": 10, \"rms\": [1, 2], \"max\": [3, 5], "
    "\"kurtosis\": [3, 9], " PARAMS "}\n";

struct fixture {
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct arena arena;
    struct layers_table table;
};

static void begin(struct fixture *f, const char *text)
{
    test_directory(f->directory);
    arena_init(&f->arena, "test", 0);
    IS_OK(path_join(f->path, PATH_BYTES, f->directory, "layers.jsonl"));
    IS_OK(file_write_atomic(f->path, text, strlen(text)));
}

static void end(struct fixture *f)
{
    arena_free(&f->arena);
    IS_OK(directory_remove(f->directory));
}

TEST(lines_are_read)
{
    struct fixture f;

    begin(&f, two);
    IS_OK(layers_read(&f.table, &f.arena, f.path));
    EQUAL_INT(f.table.count, 2);
    EQUAL_INT(f.table.activations, 2);
    EQUAL_INT(f.table.parameters, 1);
    EQUAL_TEXT(f.table.names[0], "a<b");
    EQUAL_INT(f.table.rows[1].step, 10);
    CHECK(f.table.rows[0].most[1] == 4.5);
    CHECK(f.table.rows[0].logit[0] == 2.5);
    CHECK(isnan(f.table.rows[0].kurtosis[1]));
    CHECK(f.table.rows[1].norms[0].gradient == 0.5);
    CHECK(isnan(f.table.rows[1].norms[0].update));
    end(&f);
}

TEST(a_missing_file_is_empty_and_a_torn_line_is_left_out)
{
    struct fixture f;
    char torn[sizeof two + 16];

    snprintf(torn, sizeof torn, "%s{\"step\": 1", two);
    begin(&f, torn);
    IS_OK(layers_read(&f.table, &f.arena, f.path));
    EQUAL_INT(f.table.count, 2);
    IS_OK(layers_read(&f.table, &f.arena, "/nowhere/layers.jsonl"));
    EQUAL_INT(f.table.count, 0);
    end(&f);
}

TEST(other_lines_are_refused)
{
    static const char *const bad[] = {
        "no\n", "[]\n", "{\"step\": 5}\n",
        "{\"step\": 5, \"rms\": [1], \"max\": [1, 2], \"kurtosis\": [1], "
        PARAMS "}\n",
        "{\"step\": 5, \"rms\": [\"1\"], \"max\": [1], \"kurtosis\": [1], "
        PARAMS "}\n",
        "{\"step\": 5, \"rms\": [1, 2], \"max\": [1, 2], "
        "\"kurtosis\": [1, 2], \"logit\": [1, 2], \"parameters\": []}\n",
        "{\"step\": 5, \"rms\": [], \"max\": [], \"kurtosis\": [], "
        "\"logit\": [], \"parameters\": [1]}\n"};
    struct fixture f;

    for (int i = 0; i < ROWS(bad); i++) {
        begin(&f, bad[i]);
        CHECK(layers_read(&f.table, &f.arena, f.path) == ERR_FORMAT);
        status_clear();
        end(&f);
    }
}

TEST(lines_of_two_models_are_refused)
{
    struct fixture f;
    char other[2 * sizeof two];

    snprintf(other, sizeof other,
             "%s{\"step\": 15, \"rms\": [1, 2], \"max\": [3, 4], "
             "\"kurtosis\": [3, 3], \"logit\": [1], "
             "\"parameters\": [{\"name\": \"c\"}]}\n",
             two);
    begin(&f, other);
    FAILS(layers_read(&f.table, &f.arena, f.path), ERR_FORMAT,
          "parameter 0 is c");
    end(&f);
}

TEST(heat_maps_have_a_cell_for_each_value)
{
    struct fixture f;
    struct text page = {0};
    int cells = 0;

    begin(&f, two);
    IS_OK(layers_html(&page, f.path));
    for (const char *at = page.bytes; (at = strstr(at, "<rect")) != NULL; at++)
        cells++;
    EQUAL_INT(cells, 2 * (3 * 2 + 1 + 3 * 1));
    CHECK(strstr(page.bytes, "a&lt;b, step 10: 0.5") != NULL);
    CHECK(strstr(page.bytes, "block 0, step 5: 3") != NULL);
    CHECK(strstr(page.bytes, "inf") == NULL);
    text_free(&page);
    end(&f);
}

/* Tokens of two blocks of three, the second dense. */
#define LINE(experts)                                                       \
    "{\"step\": 5, \"rms\": [1, 2, 3], \"max\": [3, 4, 5], "                  \
    "\"kurtosis\": [3, 3, 3], \"logit\": [1, 1], \"experts\": [" experts     \
    "], \"parameters\": []}\n"

TEST(tokens_of_experts_are_read_and_drawn)
{
    struct fixture f;
    struct text page = {0};

    begin(&f, LINE("{\"block\": 0, \"tokens\": [6, 3, 0], \"bias\": [0, 1]}"));
    IS_OK(layers_read(&f.table, &f.arena, f.path));
    EQUAL_INT(f.table.experts, 3);
    CHECK(f.table.rows[0].tokens[1] == 3 && f.table.rows[0].tokens[2] == 0);
    CHECK(f.table.rows[0].tokens[3] == 0); /* of the dense block */
    IS_OK(layers_html(&page, f.path));
    CHECK(strstr(page.bytes, "block 0, expert 0, step 5: 2<") != NULL);
    CHECK(strstr(page.bytes, "block 0, expert 2, step 5: 0<") != NULL);
    text_free(&page);
    end(&f);
}

TEST(tokens_of_experts_that_cannot_be_are_refused)
{
    static const struct { const char *text, *sentence; } rows[] = {
        {LINE("{\"block\": 2, \"tokens\": [1]}"), "experts of block 2"},
        {LINE("{\"block\": -1, \"tokens\": [1]}"), "experts of block -1"},
        {LINE("{\"block\": 0, \"tokens\": [1]}, {\"block\": 1, "
              "\"tokens\": [1, 2]}"), "is not an array of 1 numbers"},
        {LINE("{\"tokens\": [1]}"), "block"},
        {LINE("{\"block\": 0, \"tokens\": [1]}")
             LINE("{\"block\": 0, \"tokens\": [1, 2]}"), "another model"}};

    for (int i = 0; i < ROWS(rows); i++) {
        struct fixture f;

        begin(&f, rows[i].text);
        FAILS(layers_read(&f.table, &f.arena, f.path), ERR_FORMAT,
              rows[i].sentence);
        end(&f);
    }
}

TEST(no_file_is_no_picture)
{
    struct text page = {0};

    IS_OK(layers_html(&page, "/nowhere/layers.jsonl"));
    IS_OK(layers_html(&page, NULL));
    EQUAL_INT(page.length, 0);
}

TEST_MAIN(lines_are_read, a_missing_file_is_empty_and_a_torn_line_is_left_out,
          other_lines_are_refused, lines_of_two_models_are_refused,
          heat_maps_have_a_cell_for_each_value,
          tokens_of_experts_are_read_and_drawn,
          tokens_of_experts_that_cannot_be_are_refused,
          no_file_is_no_picture)
