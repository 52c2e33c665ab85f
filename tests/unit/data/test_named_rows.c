/* SPDX-License-Identifier: Apache-2.0 */
/* test_named_rows.c - mirrors src/data/named_rows.c. */
#include "data/named_rows.h"

#include "tests/test.h"

static const struct named_form form = {"validate.sets", "NAME PATH...", 1, 3};

TEST(rows_become_a_name_and_words)
{
    const char *texts[] = {"code  a b/c.jsonl", "web-2\t\"a b.txt\" d"};
    struct named_rows rows;

    IS_OK(named_read(&rows, &form, texts, 2));
    EQUAL_INT(rows.count, 2);
    EQUAL_TEXT(rows.items[0].name, "code");
    EQUAL_INT(rows.items[0].count, 2);
    EQUAL_TEXT(rows.items[0].words[1], "b/c.jsonl");
    EQUAL_TEXT(rows.items[1].name, "web-2");
    EQUAL_TEXT(rows.items[1].words[0], "a b.txt");
    EQUAL_TEXT(rows.items[1].words[1], "d");
    named_free(&rows);
    IS_OK(named_read(&rows, &form, NULL, 0));
    EQUAL_INT(rows.count, 0);
    named_free(&rows);
}

TEST(rows_that_say_nothing_are_refused)
{
    static const struct { const char *first, *second, *words; } rows[] = {
        {"web a", "code", "row 2: 'code' has 1 words; expected NAME PATH..."},
        {"web a", "code a b c d", "has 5 words"},
        {"web a", "web b", "two rows are named 'web'"},
        {"web.1 a", "b c", "row 1: 'web.1' is not a name"},
        {"\"\" a", "b c", "'' is not a name"},
        {"web a", "  ", "row 2 is empty"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        const char *texts[] = {rows[i].first, rows[i].second};
        struct named_rows out;

        FAILS(named_read(&out, &form, texts, 2), ERR_CONFIG, rows[i].words);
        named_free(&out);
        status_clear();
    }
}

TEST_MAIN(rows_become_a_name_and_words, rows_that_say_nothing_are_refused)
