/* SPDX-License-Identifier: Apache-2.0 */
/* test_stop_text.c - mirrors src/inference/stop_text.c. */
#include "inference/stop_text.h"

#include "tests/test.h"

TEST(what_may_be_written)
{
    static const char *const items[] = {"END", "\n\n", "ab"};
    static const struct {
        const char *text;
        size_t certain;
        bool found;
    } rows[] = {
        {"", 0, false},       {"plain", 5, false}, {"some E", 5, false},
        {"some EN", 5, false}, {"some END of", 5, true}, {"END", 0, true},
        {"EEND", 1, true},    {"line\n", 4, false}, {"line\n\nmore", 4, true},
        {"line\nmore", 9, false}, {"ENENEND", 4, true}, {"xaEab", 3, true},
        {"EN ab", 3, true},   {"a", 0, false},
    };
    const struct stop_texts stops = {items, 3}, none = {0};
    bool found;

    for (int i = 0; i < ROWS(rows); i++) {
        const size_t length = strlen(rows[i].text);

        EQUAL_INT(stop_text_certain(&stops, rows[i].text, length, false,
                                    &found),
                  rows[i].certain);
        EQUAL_INT(found, rows[i].found);
        EQUAL_INT(stop_text_certain(&none, rows[i].text, length, false,
                                    &found), length);
        CHECK(!found);
    }
}

TEST(when_nothing_follows)
{
    static const char *const first[] = {"ENDX", "END"};
    static const char *const second[] = {"abcd", "bc"};
    static const struct {
        const char *const *items;
        const char *text;
        size_t certain;
        bool found;
    } rows[] = {
        {first, "END", 0, true},    {first, "some END", 5, true},
        {first, "some EN", 7, false}, {first, "ENDX", 0, true},
        {second, "abc", 1, true},   {second, "ab", 2, false},
        {second, "", 0, false},
    };
    bool found;

    for (int i = 0; i < ROWS(rows); i++) {
        const struct stop_texts stops = {rows[i].items, 2};

        EQUAL_INT(stop_text_certain(&stops, rows[i].text,
                                    strlen(rows[i].text), true, &found),
                  rows[i].certain);
        EQUAL_INT(found, rows[i].found);
    }
}

TEST_MAIN(what_may_be_written, when_nothing_follows)
