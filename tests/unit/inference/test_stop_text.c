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

        EQUAL_INT(stop_text_certain(&stops, rows[i].text, length, &found),
                  rows[i].certain);
        EQUAL_INT(found, rows[i].found);
        EQUAL_INT(stop_text_certain(&none, rows[i].text, length, &found),
                  length);
        CHECK(!found);
    }
}

TEST_MAIN(what_may_be_written)
